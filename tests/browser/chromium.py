"""Drives a headless Chromium over its DevTools protocol, with aiohttp alone."""

import asyncio
import base64
import json
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import pytest

LIMIT_S = 60.0
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
    "--window-size=1280,800",
)
_PIECE = re.compile(
    r"\x1b\[(?P<numbers>[0-9;]*)(?P<final>[HCGX])|\x1b\[[0-9;?<>=]*[ -/]*[@-~]|\x1b\][^\x07]*\x07"
    r"|\x1b.|\r|\n|(?P<text>[^\x00-\x1f]+)"
)
_BINARY = 2


class Page:
    """One tab: what it asked the network for, and what its terminal was sent."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, session: str) -> None:
        self._socket = socket
        self._session = session
        self._numbers = count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.answered: list[str] = []
        """Addresses that answered, and what failed without being kept back by the page's rules."""
        self.drawn = b""
        """What the terminal in the page was sent, its escape sequences included."""
        self._screen: dict[tuple[int, int], str] = {}
        self._row = self._column = self._read = 0
        self._size = (1 << 16, 1 << 16)

    async def listen(self) -> None:
        """Take answers and events until the browser ends."""
        async for message in self._socket:
            told = json.loads(message.data)
            if "id" in told:
                self._answers.pop(told["id"]).set_result(told)
            elif told["method"] == "Network.responseReceived":
                self.answered.append(told["params"]["response"]["url"])
            elif told["method"] == "Network.loadingFailed" and not told["params"].get(
                "blockedReason"
            ):
                self.answered.append(told["params"]["errorText"])
            elif told["method"] == "Network.webSocketFrameSent":
                self._sent(told["params"]["response"]["payloadData"])
            elif told["method"] == "Network.webSocketFrameReceived":
                frame = told["params"]["response"]
                if frame["opcode"] == _BINARY:
                    self.drawn += base64.b64decode(frame["payloadData"])

    def _sent(self, text: str) -> None:
        kind, *content = json.loads(text)
        if kind == "resize":
            self._size = (content[0]["height"], content[0]["width"])

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Ask the browser something and return its result."""
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        content = {"id": number, "sessionId": self._session, "method": method, "params": params}
        await self._socket.send_str(json.dumps(content))
        async with asyncio.timeout(LIMIT_S):
            told = await answer
        assert "error" not in told, told
        result: dict[str, Any] = told["result"]
        return result

    async def open(self, url: str) -> None:
        """Go to an address and wait until it is loaded."""
        self.drawn, self._read, self._screen = b"", 0, {}
        await self.call("Page.navigate", url=url)
        await self.until("document.readyState === 'complete'")

    async def value(self, expression: str) -> Any:
        """Return what a piece of JavaScript gives."""
        told = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        return told["result"].get("value")

    async def until(self, expression: str) -> None:
        """Wait until a piece of JavaScript is true."""
        async with asyncio.timeout(LIMIT_S):
            while not await self.value(expression):
                await asyncio.sleep(0.05)

    def text(self) -> str:
        """Return what the terminal shows: a small one that knows what Textual sends."""
        # What ends in the middle of a character or of a sequence is read with what follows.
        end = self.drawn.rfind(b"\x1b")
        new = self.drawn[self._read : end] if end > self._read else b""
        self._read += len(new)
        for piece in _PIECE.finditer(new.decode(errors="replace")):
            self._take(piece)
        height, width = self._size
        # What is drawn over the edge is cut, as a terminal does.
        self._screen = {
            place: character
            for place, character in self._screen.items()
            if place[0] < height and place[1] < width
        }
        rows = max((row for row, _ in self._screen), default=0) + 1
        lines = [dict[int, str]() for _ in range(rows)]
        for (row, column), character in self._screen.items():
            lines[row][column] = character
        return "\n".join(
            "".join(line.get(column, " ") for column in range(max(line, default=0) + 1)).rstrip()
            for line in lines
        )

    def _take(self, piece: re.Match[str]) -> None:
        final, text = piece["final"], piece["text"]
        if final == "H":
            row, _, column = piece["numbers"].partition(";")
            self._row, self._column = int(row or 1) - 1, int(column or 1) - 1
        elif final == "C":
            self._column += int(piece["numbers"] or 1)
        elif final == "G":
            self._column = int(piece["numbers"] or 1) - 1
        elif final == "X":
            for column in range(self._column, self._column + int(piece["numbers"] or 1)):
                self._screen[self._row, column] = " "
        elif piece[0] == "\n":
            self._row += 1
        elif piece[0] == "\r":
            self._column = 0
        for character in text or "":
            self._screen[self._row, self._column] = character
            self._column += 1

    async def shows(self, *texts: str, limit_s: float = LIMIT_S) -> None:
        """Wait until the terminal shows one of ``texts``."""
        try:
            async with asyncio.timeout(limit_s):
                while not any(text in self.text() for text in texts):
                    await asyncio.sleep(0.02)
        except TimeoutError:
            pytest.fail(f"{texts} did not show:\n{self.text()}")

    async def hides(self, text: str) -> None:
        """Wait until the terminal shows ``text`` no more."""
        async with asyncio.timeout(LIMIT_S):
            while text in self.text():
                await asyncio.sleep(0.02)

    async def press(self, key: str, code: str = "", number: int = 0, *, ctrl: bool = False) -> None:
        """Press and release a key in the page."""
        if ctrl:
            number = ord(key.upper())
            for kind in ("rawKeyDown", "keyUp"):
                await self.call(
                    "Input.dispatchKeyEvent",
                    type=kind,
                    modifiers=2,
                    key=key,
                    code=f"Key{key.upper()}",
                    windowsVirtualKeyCode=number,
                )
            return
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        known = {"key": key, "code": code, "windowsVirtualKeyCode": number or ord(key[0].upper())}
        await self.call("Input.dispatchKeyEvent", type="keyDown", **known, **text)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **known)

    async def resize(self, width: int, height: int) -> None:
        """Give the page another size, in pixels."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    async def picture(self, path: Path) -> bytes:
        """Write a picture of the page and return it as PNG."""
        data = base64.b64decode((await self.call("Page.captureScreenshot"))["data"])
        path.write_bytes(data)
        return data


@asynccontextmanager
async def browser(folder: Path) -> AsyncIterator[Page]:
    """Start Chromium with a new profile in ``folder`` and give its page."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.fail("no chromium: apt-get install chromium")
    process = await asyncio.create_subprocess_exec(
        program,
        *_FLAGS,
        f"--user-data-dir={folder}",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        told = folder / "DevToolsActivePort"
        async with asyncio.timeout(LIMIT_S):
            while not told.exists() or told.read_text().count("\n") < 1:
                await asyncio.sleep(0.05)
        port, path = told.read_text().split()
        async with (
            aiohttp.ClientSession() as http,
            http.ws_connect(f"ws://127.0.0.1:{port}{path}", max_msg_size=0) as socket,
        ):
            page = await _page(socket)
            listening = asyncio.create_task(page.listen())
            for domain in ("Page", "Runtime", "Network"):
                await page.call(f"{domain}.enable")
            yield page
            listening.cancel()
    finally:
        process.terminate()
        await process.wait()


async def _page(socket: aiohttp.ClientWebSocketResponse) -> Page:
    async def call(number: int, method: str, **params: Any) -> dict[str, Any]:
        await socket.send_str(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            told = json.loads((await socket.receive()).data)
            if told.get("id") == number:
                result: dict[str, Any] = told["result"]
                return result

    target = (await call(1, "Target.createTarget", url="about:blank"))["targetId"]
    attached = await call(2, "Target.attachToTarget", targetId=target, flatten=True)
    return Page(socket, attached["sessionId"])
