"""The console in a browser: loopback only unless asked, nothing without the token, and it draws."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from eaglemon.cli.main import run
from eaglemon.io.web import allowed, cookie_name, new_token, same_origin
from tests.ports import free_port

TOKEN = "a-token-for-this-test"


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Serve a console on this computer, and return its address."""
    port = free_port()
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "EAGLEMON_SERVE_TOKEN": TOKEN,
        "PYTHONUTF8": "1",
    }
    argv = [sys.executable, "-m", "eaglemon", "serve", "local", "--port", str(port)]
    with subprocess.Popen(
        argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        assert line == f"http://127.0.0.1:{port}/?token={TOKEN}"
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(20)


async def get(http: aiohttp.ClientSession, url: str) -> tuple[int, str]:
    """Ask until the server listens."""
    while True:
        try:
            async with http.get(url, allow_redirects=False) as answer:
                return answer.status, await answer.text()
        except aiohttp.ClientConnectorError:
            continue


async def test_nothing_is_served_without_the_token(address: str) -> None:
    async with aiohttp.ClientSession() as http, asyncio.timeout(60):
        for path in ("/", "/ws", "/static/js/textual.js", "/?token=wrong"):
            assert (await get(http, address + path))[0] == 401
        http.cookie_jar.update_cookies({cookie_name(TOKEN): "wrong"})
        assert (await get(http, address + "/"))[0] == 401


async def test_the_console_is_drawn_for_who_has_the_token(address: str) -> None:
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(cookie_jar=jar) as http, asyncio.timeout(60):
        assert (await get(http, f"{address}/?token={TOKEN}"))[0] == 302
        cookie = next(iter(jar))
        assert cookie["httponly"]
        assert cookie["samesite"] == "Strict"
        status, page = await get(http, address + "/")
        assert status == 200
        assert TOKEN not in page
        async with http.get(f"{address}/") as answer:
            assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
        # A page of another port is the same site to a browser, and would send the cookie.
        for path in ("/", "/ws"):
            headers = {"Origin": "http://127.0.0.1:1"}
            async with http.get(address + path, headers=headers) as answer:
                assert answer.status == 403
        with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
            await http.ws_connect(f"{address}/ws", origin="http://127.0.0.1:1")
        # Under another name, as through a forwarded port or TLS, the page asks under that name.
        name, cookies = {"Host": "console.example:9"}, {cookie_name(TOKEN): TOKEN}
        for more, place in (({}, "ws://"), ({"X-Forwarded-Proto": "https"}, "wss://")):
            async with http.get(address, headers={**name, **more}, cookies=cookies) as answer:
                assert f"{place}console.example:9/ws" in await answer.text()
        drawn = b""
        url = f"{address}/ws?width=120&height=40"
        async with http.ws_connect(url, origin=address) as page_socket:
            while b"Hosts and GPUs" not in drawn:
                message = await page_socket.receive()
                if message.type is aiohttp.WSMsgType.BINARY:
                    drawn += message.data
                else:
                    assert message.type is aiohttp.WSMsgType.TEXT, message
            await page_socket.send_str(json.dumps(["stdin", "?"]))
            while b"esc closes" not in drawn:
                message = await page_socket.receive()
                assert message.type in {aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT}
                drawn += message.data if isinstance(message.data, bytes) else b""


def test_other_addresses_must_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "local", "--address", "0.0.0.0"]) == 2
    assert "add --beyond-loopback" in capsys.readouterr().err


def test_tokens_are_long_and_compared_whole() -> None:
    assert len(new_token()) >= 32
    assert new_token() != new_token()
    assert allowed("x", "x")
    assert not allowed("", "x")
    assert not allowed(None, "x")


@pytest.mark.parametrize(
    ("origin", "same"),
    [
        (None, True),
        ("http://127.0.0.1:8000", True),
        ("https://127.0.0.1:8000", True),
        ("http://127.0.0.1:8001", False),
        ("http://127.0.0.1", False),
        ("http://localhost:8000", False),
        ("null", False),
        ("", False),
        ("http://[", False),
    ],
)
def test_only_pages_of_the_same_place_are_answered(origin: str | None, same: bool) -> None:
    assert same_origin(origin, "127.0.0.1:8000") is same
    assert same_origin("http://GPU-A:80", "gpu-a:80")


def test_each_console_has_a_cookie_of_its_own() -> None:
    assert cookie_name("a") != cookie_name("b")
    assert TOKEN not in cookie_name(TOKEN)
