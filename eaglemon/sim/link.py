"""The connection between the front process of a simulated engine and the one that decodes.

JSON lines over a socket pair. Towards the decoding process: ``{"add": {...}}``, ``{"abort": id}``,
``{"ask": name}``, ``{"end": true}``. Back:
``{"out": [[id, new, accepted, finish], ...], "load": [running, waiting, tokens]}``,
``{"told": name, ...}`` and whatever the engine adds.
"""

import asyncio
import json
import socket
from collections.abc import Callable
from dataclasses import dataclass, field

from eaglemon.sim.decode import Decoder, Output, Request

Message = dict[str, object]


def send_blocking(sock: socket.socket, message: Message) -> None:
    """Send one message from a process that has no event loop yet."""
    sock.sendall(json.dumps(message).encode() + b"\n")


def receive_blocking(sock: socket.socket) -> Message | None:
    """Return the next message, ``None`` at the end; one message at a time only."""
    line = bytearray()
    while not line.endswith(b"\n"):
        data = sock.recv(1)
        if not data:
            return None
        line += data
    message: Message = json.loads(line)
    return message


class Channel:
    """One end of the link inside an event loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, sock: socket.socket) -> "Channel":
        """Take over a socket of the pair."""
        sock.settimeout(0)
        reader, writer = await asyncio.open_connection(sock=sock, limit=1 << 20)
        return cls(reader, writer)

    def send(self, message: Message) -> None:
        """Send without waiting: what goes over this link is small."""
        self._writer.write(json.dumps(message).encode() + b"\n")

    async def receive(self) -> Message | None:
        """Return the next message, ``None`` when the other process is gone."""
        try:
            line = await self._reader.readline()
        except ConnectionError:
            return None
        if not line.endswith(b"\n"):
            return None
        message: Message = json.loads(line)
        return message

    def close(self) -> None:
        """Close this end."""
        self._writer.close()


@dataclass(slots=True)
class Inbox:
    """Outputs of one request as they arrive."""

    queue: asyncio.Queue[Output | None] = field(default_factory=asyncio.Queue)

    async def next(self) -> Output | None:
        """Return the next output; ``None`` when the decoding process died."""
        return await self.queue.get()


class Front:
    """The front process's side: requests out, outputs back to whoever waits for them."""

    def __init__(self, channel: Channel, on_message: Callable[[Message], None]) -> None:
        self._channel = channel
        self._on_message = on_message
        self._inboxes: dict[str, Inbox] = {}
        self._answers: dict[str, list[asyncio.Future[Message]]] = {}
        self.alive = True

    @property
    def pending(self) -> int:
        """Requests under way."""
        return len(self._inboxes)

    def submit(self, request: Request) -> Inbox:
        """Send a request and return where its outputs will arrive."""
        inbox = self._inboxes[request.id] = Inbox()
        if not self.alive:
            inbox.queue.put_nowait(None)
        self._channel.send(
            {
                "add": {
                    "id": request.id,
                    "prompt_tokens": request.prompt_tokens,
                    "max_tokens": request.max_tokens,
                    "natural_length": request.natural_length,
                    "seed": request.seed,
                    "temperature": request.temperature,
                }
            }
        )
        return inbox

    def drop(self, request_id: str) -> None:
        """Forget a request; when it still runs, abort it."""
        if self._inboxes.pop(request_id, None) is not None:
            self._channel.send({"abort": request_id})

    async def ask(self, name: str) -> Message:
        """Ask the decoding process for something; waits as long as that process is hung."""
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._answers.setdefault(name, []).append(future)
        self._channel.send({"ask": name})
        return await future

    def tell_end(self) -> None:
        """Ask the decoding process to end."""
        self._channel.send({"end": True})

    async def run(self) -> None:
        """Hand out what arrives until the decoding process is gone."""
        while (message := await self._channel.receive()) is not None:
            outputs = message.get("out")
            if isinstance(outputs, list):
                for one in outputs:
                    self._deliver(
                        Output(id=one[0], new_tokens=one[1], accepted=one[2], finish=one[3])
                    )
            told = message.get("told")
            if isinstance(told, str):
                for future in self._answers.pop(told, []):
                    if not future.done():
                        future.set_result(message)
            self._on_message(message)
        self.alive = False
        for inbox in self._inboxes.values():
            inbox.queue.put_nowait(None)

    def _deliver(self, output: Output) -> None:
        inbox = self._inboxes.get(output.id)
        if inbox is not None:
            inbox.queue.put_nowait(output)
            if output.finish:
                del self._inboxes[output.id]


class Core:
    """The decoding process's side: takes requests, keeps the simulated clock, sends outputs."""

    channel: Channel
    """Set inside the event loop, before ``run``."""

    def __init__(self, decoder: Decoder) -> None:
        self.decoder = decoder
        self.orphaned = False
        """The front process went away without saying so."""
        self._wake = asyncio.Event()
        self._ended = False

    def on_prefill(self, requests: list[Request]) -> None:
        """Hook: these were prefilled."""

    def on_step(self, outputs: list[Output]) -> None:
        """Hook: a step was taken."""

    def on_busy(self, *, busy: bool) -> None:
        """Hook: the batch became empty or stopped being empty."""

    def answer(self, name: str) -> Message:
        """Hook: answer a question of the front process."""
        return {"told": name}

    async def run(self) -> None:
        """Decode until told to end, or the front process is gone."""
        listening = asyncio.create_task(self._listen())
        try:
            await self._decode()
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)

    async def _listen(self) -> None:
        self.orphaned = True
        while (message := await self.channel.receive()) is not None:
            added, asked, aborted = message.get("add"), message.get("ask"), message.get("abort")
            if isinstance(added, dict):
                self.decoder.add(Request(**added))
            elif isinstance(asked, str):
                self.channel.send(self.answer(asked))
            elif isinstance(aborted, str):
                self.decoder.abort(aborted)
            if message.get("end"):
                self.orphaned = False
                break
            self._wake.set()
        self._ended = True
        self._wake.set()

    async def _decode(self) -> None:
        loop = asyncio.get_running_loop()
        at = loop.time()
        busy = False
        while not self._ended:
            if not self.decoder.running and not self.decoder.waiting:
                if busy:
                    busy = False
                    self.on_busy(busy=False)
                self._wake.clear()
                await self._wake.wait()
                at = loop.time()
                continue
            if not busy:
                busy = True
                self.on_busy(busy=True)
            admitted = self.decoder.admit()
            if admitted:
                at += self.decoder.prefill_s(admitted)
                await asyncio.sleep(at - loop.time())
                outputs = self.decoder.prefill(admitted)
                self.on_prefill(admitted)
                self._send(outputs)
            if self.decoder.running:
                at += self.decoder.step_s()
                await asyncio.sleep(at - loop.time())
                outputs = self.decoder.step()
                self._send(outputs)
                self.on_step(outputs)

    def _send(self, outputs: list[Output]) -> None:
        if outputs:
            decoder = self.decoder
            self.channel.send(
                {
                    "out": [[one.id, one.new_tokens, one.accepted, one.finish] for one in outputs],
                    "load": [decoder.running, decoder.waiting, decoder.tokens],
                }
            )
