"""Servers behind ``https`` and a gateway's path: certificates, and keys that do not leak."""

import asyncio
import datetime as dt
import ipaddress
import json
import logging
import ssl
from pathlib import Path

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from eaglemon.core.server_url import Trust, parse_server_url
from eaglemon.errors import HostError, ProbeError, UsageError
from eaglemon.io.tls import read_authorities
from tests.cli import conftest as command_line
from tests.probes.scripted_server import (
    DONE,
    END,
    OK,
    Script,
    ScriptedServer,
    chunk,
    event,
    good,
    local_hub,
    plan,
)

home = command_line.home
run = command_line.run

KEY = "sk-very-secret"
GOOD = good(1, 4, 6, spec_verify_ct=2)
FROM = pytest.mark.parametrize("from_host", [True, False], ids=["from-host", "from-here"])


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``pair.pem`` (key and certificate of 127.0.0.1) and ``ca.pem``."""
    folder = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "gateway")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = made.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    (folder / "ca.pem").write_bytes(pem)
    (folder / "pair.pem").write_bytes(private + pem)
    return folder


@pytest.fixture
def tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "pair.pem")
    return context


async def test_a_plain_url_of_a_port_with_tls_says_so(tls: ssl.SSLContext, tmp_path: Path) -> None:
    async with (
        ScriptedServer(lambda _: GOOD, tls=tls) as server,
        local_hub(tmp_path) as hub,
        asyncio.timeout(90),
    ):
        with pytest.raises(ProbeError) as raised:
            await hub.reach(f"http://127.0.0.1:{server.port}/v1", host="local", api_key=KEY)
    assert "speaks TLS" in raised.value.message
    assert raised.value.hint == f"write https://127.0.0.1:{server.port}/v1"
    assert not any(KEY in head for head in server.heads)


@FROM
async def test_a_probe_through_a_gateway(
    tmp_path: Path,
    certificate: Path,
    tls: ssl.SSLContext,
    caplog: pytest.LogCaptureFixture,
    *,
    from_host: bool,
) -> None:
    caplog.set_level(logging.DEBUG)
    trust = Trust(ca_pem=read_authorities(certificate / "ca.pem"))
    async with (
        ScriptedServer(lambda _: GOOD, tls=tls, prefix="/team") as server,
        local_hub(tmp_path) as hub,
        asyncio.timeout(90),
    ):
        target = await hub.reach(f"{server.url}/v1", host="local", api_key=KEY, trust=trust)
        done = await hub.probe(target, plan(from_host=from_host, flush=True))

    assert done.figures.ok == 4
    assert done.figures.accept_length == 3.0
    assert set(server.paths) == {"/v1/models", "/flush_cache?timeout=10", "/metrics", "/generate"}
    assert all(f"authorization: bearer {KEY}" in head.lower() for head in server.heads)
    assert all(f"host: 127.0.0.1:{server.port}" in head.lower() for head in server.heads)
    # Neither what is kept nor what is logged has the key.
    assert KEY not in msgspec.json.encode(done).decode()
    assert KEY not in repr(hub._probes._reached[target])
    assert KEY not in caplog.text


@FROM
async def test_a_certificate_that_is_not_trusted(
    tmp_path: Path, tls: ssl.SSLContext, *, from_host: bool
) -> None:
    async with (
        ScriptedServer(lambda _: GOOD, tls=tls) as server,
        local_hub(tmp_path) as hub,
        asyncio.timeout(90),
    ):
        with pytest.raises(HostError, match=r"is not trusted: self.signed certificate.*--ca FILE"):
            await hub.reach(server.url, host="local")
        target = await hub.reach(server.url, host="local", trust=Trust(verify=False))
        done = await hub.probe(target, plan(from_host=from_host))
    assert done.figures.ok == 4
    assert any("certificate was not checked" in note for note in done.notes)


async def answering(text: bytes, *, after: bytes = b"") -> tuple[asyncio.Server, int]:
    """Return a server that says ``text`` to everyone, once ``after`` or anything has arrived."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await (reader.readuntil(after) if after else reader.read(1))
        writer.write(text)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1]


async def test_a_server_that_speaks_no_tls(tmp_path: Path) -> None:
    server, port = await answering(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    async with server, local_hub(tmp_path) as hub, asyncio.timeout(90):
        with pytest.raises(HostError, match="does not speak TLS here"):
            await hub.reach(f"https://127.0.0.1:{port}", host="local")


async def test_a_wrong_name_is_no_match(
    tmp_path: Path, certificate: Path, tls: ssl.SSLContext
) -> None:
    trust = Trust(ca_pem=read_authorities(certificate / "ca.pem"))
    async with (
        ScriptedServer(lambda _: GOOD, tls=tls) as server,
        local_hub(tmp_path) as hub,
        asyncio.timeout(90),
    ):
        with pytest.raises(HostError, match=r"is not trusted: .*localhost"):
            await hub.reach(f"https://localhost:{server.port}", host="local", trust=trust)


@FROM
async def test_a_stream_that_tls_cuts_is_counted_apart(
    tmp_path: Path, certificate: Path, tls: ssl.SSLContext, *, from_host: bool
) -> None:
    cut: Script = [OK, chunk(event(3)), 0.05, "abort"]
    big: Script = [OK, chunk(event(1)), chunk(event(60_000, done=True)), chunk(DONE), END]
    trust = Trust(ca_pem=read_authorities(certificate / "ca.pem"))
    async with (
        ScriptedServer(lambda n: big if n % 2 else cut, tls=tls) as server,
        local_hub(tmp_path) as hub,
        asyncio.timeout(90),
    ):
        target = await hub.reach(server.url, host="local", trust=trust)
        done = await hub.probe(target, plan(concurrency=1, from_host=from_host))
    assert (done.figures.ok, done.figures.cut) == (2, 2)
    assert done.figures.completion_tokens == 120_000


@pytest.mark.parametrize(
    ("text", "base"),
    [
        ("http://127.0.0.1:30000", "http://127.0.0.1:30000"),
        ("https://gw", "https://gw"),
        ("https://gw:443/", "https://gw"),
        ("https://gw:8443/x/v1", "https://gw:8443/x"),
        ("https://gw/x/v1/", "https://gw/x"),
        ("https://gw/v1", "https://gw"),
        ("http://[::1]:8000/a/b", "http://[::1]:8000/a/b"),
        ("http://GW", "http://gw"),
    ],
)
def test_addresses(text: str, base: str) -> None:
    assert parse_server_url(text).base == base


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ftp://gw", "is not asked"),
        ("https://", "no address"),
        ("https://gw?key=1", "no address"),
        ("https://gw:0x50", "is no URL"),
        ("https://me:secret@gw", "holds credentials"),
    ],
)
def test_what_is_no_address(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as told:
        parse_server_url(text)
    assert "secret" not in str(told.value)


async def test_a_gateway_that_wants_a_key_says_how(tmp_path: Path) -> None:
    refusal = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"
    server, port = await answering(refusal, after=b"\r\n\r\n")
    async with server, local_hub(tmp_path) as hub, asyncio.timeout(90):
        with pytest.raises(ProbeError, match="wants an API key") as told:
            await hub.reach(f"http://127.0.0.1:{port}/x", host="local")
    assert "--api-key-env" in str(told.value.hint)


class TestCommand:
    """``eaglemon probe https://...``."""

    URL = "https://gw/x/v1"

    def test_the_key_comes_from_the_environment(
        self, run: command_line.CommandLine, monkeypatch: pytest.MonkeyPatch, certificate: Path
    ) -> None:
        monkeypatch.setenv("GATEWAY_KEY", KEY)
        ca = certificate / "ca.pem"
        done = run("probe", self.URL, "--api-key-env", "GATEWAY_KEY", "--ca", str(ca))
        (call,) = [given for name, given in run.console.calls if name == "reach"]
        assert call == (self.URL, "local", KEY, Trust(ca_pem=ca.read_text()))
        assert KEY not in done.out + done.err

    def test_waiting_takes_them_too(
        self, run: command_line.CommandLine, monkeypatch: pytest.MonkeyPatch, certificate: Path
    ) -> None:
        monkeypatch.setenv("GATEWAY_KEY", KEY)
        ca = certificate / "ca.pem"
        run("wait", self.URL, "--api-key-env", "GATEWAY_KEY", "--ca", str(ca))
        (call,) = [given for name, given in run.console.calls if name == "wait_at"]
        assert call == (self.URL, "local", KEY, Trust(ca_pem=ca.read_text()))

    def test_insecure_is_said_loudly(self, run: command_line.CommandLine) -> None:
        done = run("probe", self.URL, "--insecure")
        (call,) = [given for name, given in run.console.calls if name == "reach"]
        assert isinstance(call, tuple)
        assert call[-1] == Trust(verify=False)
        assert "nobody checks that https://gw/x/v1 is that server" in done.err

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (("probe", "http://gw", "--insecure"), "for https URLs"),
            (("probe", "https://gw", "--insecure", "--ca", "x"), "give one"),
            (("probe", "https://gw", "--ca", "missing.pem"), "--ca missing.pem: no such file"),
            (("probe", "https://gw", "--api-key-env", "NOT_SET_HERE"), "the variable is not set"),
            (("wait", "http://gw", "--insecure"), "for https URLs"),
            (("wait", "https://gw", "--api-key-env", "NOT_SET_HERE"), "the variable is not set"),
        ],
    )
    def test_what_does_not_fit(
        self, run: command_line.CommandLine, words: tuple[str, ...], said: str
    ) -> None:
        done = run(*words)
        assert done.code == 2
        assert said in done.err

    def test_a_file_without_certificates(
        self, run: command_line.CommandLine, tmp_path: Path
    ) -> None:
        path = tmp_path / "empty.pem"
        path.write_text(json.dumps({"no": "certificate"}))
        done = run("probe", "https://gw", "--ca", str(path))
        assert done.code == 2
        assert f"--ca {path}" in done.err
