"""Logs in to a host, hop by hop, and asks a person where a key is unknown or encrypted.

Every hop is checked against known_hosts as strictly as the host itself. Imported once asyncssh is
in use.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncssh

from eaglemon.core.hosts import JUMP_WORDS, HostQuestion, HostSpec
from eaglemon.errors import HostError, HostKeyError
from eaglemon.io.ssh_answers import ANSWERS
from eaglemon.io.ssh_errors import (
    Offered,
    Target,
    explain_connect,
    explain_loss,
    find_changed_key,
    is_encrypted,
    is_known_now,
    is_revoked,
    is_security_key,
    untouched,
)
from eaglemon.io.ssh_key_rules import KeyRules
from eaglemon.io.ssh_keys import add_known_host, key_algorithms, known_keys
from eaglemon.io.ssh_proxy import Proxy
from eaglemon.io.ssh_target import Way, parse_hop, way_to
from eaglemon.io.transport import Asker

CONNECT_LIMIT_S = 15.0
TOUCH_LIMIT_S = 60.0
"""A person needs longer to touch a security key."""
TOUCH_AFTER_S = 1.0
AGENT_LIMIT_S = 2.0
PASSPHRASE_TRIES = 3
_HOPS_MOST = 8


class _UnjudgedError(asyncssh.HostKeyNotVerifiable):
    """The host shows a key that its rules are yet to judge."""


class Login:
    """One attempt to reach a host; ``hops`` are the jump hosts that it went through."""

    def __init__(
        self, spec: HostSpec, *, ask: Asker | None, tell: Callable[[str], None], depth: int = 0
    ) -> None:
        self.hops: list[asyncssh.SSHClientConnection] = []
        self.proxies: list[Proxy] = []
        """The programs that this connection goes through (ProxyCommand)."""
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._spec, self._ask, self._tell, self._depth = spec, ask, tell, depth
        self._offered = Offered()
        self._reached = False
        self._proxy: Proxy | None = None
        self._logged_in = False
        self._plain = False
        """The host's certificate proved nothing: only its key itself counts, as for ssh."""
        self.unused: tuple[str, ...] = ()
        """What OpenSSH's configuration asks for and is not done here, in words."""
        self._rules: KeyRules | None = None
        self._kinds = ""
        """The lines of KnownHostsCommand that say which kinds of keys to ask for."""
        self._judged: set[bytes] = set()
        """The keys of the host that the rules have let pass."""
        self._used: frozenset[str] = frozenset()
        """The unlocked keys that the last attempt had."""
        self._relied: set[str] = set()
        """The keys of hosts that another login has made known."""
        self._shown = b""
        """A key that they are yet to judge."""

    async def connect(self) -> asyncssh.SSHClientConnection:
        """Connect and log in; raises ``HostError`` that names the cause and the fix."""
        spec = self._spec
        way = await _way(spec)
        self.unused = way.target.unused
        try:
            for jump in way.target.jumps:
                await self._jump(jump)
            return await self._attempts(way)
        except BaseException:
            for hop in reversed(self.hops):
                hop.abort()
            for proxy in self.proxies:
                await proxy.close()
            raise

    async def _attempts(self, way: Way) -> asyncssh.SSHClientConnection:
        """Try, ask for what is missing, and try again."""
        target, options, self._rules = way.target, way.options, way.rules
        if self._rules is not None:
            self._kinds = await asyncio.to_thread(self._rules.order)
        while True:
            try:
                return await self._attempt(target, options)
            except _UnjudgedError:
                target = await self._judge(target)
            except (OSError, ValueError, asyncssh.Error) as error:
                said = await self._proxy.last_words() if self._proxy is not None else ""
                if self._bad_certificate(error):
                    self._plain = True
                    continue
                denied = isinstance(error, asyncssh.PermissionDenied)
                trusted = await self._unlock(target) if denied else None
                # A thread: it reads keys and known_hosts, maybe over a network.
                refusal = await asyncio.to_thread(
                    explain_connect, target, error, self._offered, proxy_said=said
                )
                if isinstance(error, asyncssh.HostKeyNotVerifiable):
                    trusted = await self._accept(target, refusal)
                if trusted is None:
                    raise refusal from error
                target = trusted
            finally:
                if self._proxy is not None and not self._logged_in:
                    await self._proxy.close()

    async def _judge(self, target: Target) -> Target:
        """Let the rules decide about the key that the host has shown; raises ``HostError``."""
        rules, shown = self._rules, self._shown
        told = await asyncio.to_thread(rules.judge, shown) if rules is not None else ""
        self._judged.add(shown)
        return replace(target, told=target.told + told)

    def _bad_certificate(self, error: Exception) -> bool:
        return (
            isinstance(error, asyncssh.HostKeyNotVerifiable)
            and not self._plain
            and self._offered.key is None
            and not is_revoked(error)
        )

    async def _attempt(
        self, target: Target, options: Mapping[str, Any]
    ) -> asyncssh.SSHClientConnection:
        given = dict(options)
        # Always a list or a function: asyncssh takes None, which the configuration can lead to,
        # as "do not check".
        given["known_hosts"] = await asyncio.to_thread(known_keys, target)
        self._used = frozenset(ANSWERS.unlocked).intersection(target.keys)
        if self._used:
            unlocked = [ANSWERS.unlocked[key] for key in target.keys if key in self._used]
            open_keys = [key for key in target.keys if key not in self._used]
            given["client_keys"] = [*unlocked, *open_keys]
            given["ignore_encrypted"] = True
        if self.hops:
            given["tunnel"] = self.hops[-1]
        elif target.jumps:
            given["tunnel"] = None
        # Where the library reads the configuration itself, its HostKeyAlgorithms are to count.
        if self._plain or options.get("config", "") is None:
            given["server_host_key_algs"] = await asyncio.to_thread(
                key_algorithms,
                target,
                options.get("server_host_key_algs"),
                plain=self._plain,
                told=self._kinds,
            )
        self._reached = False
        command = given.pop("proxy_command", None)
        touched = await _has_security_key(target)
        teller = asyncio.get_running_loop().call_later(
            TOUCH_AFTER_S,
            self._tell,
            "touch the security key if it blinks" if touched else "",
        )
        try:
            least_s = TOUCH_LIMIT_S if touched else CONNECT_LIMIT_S
            async with asyncio.timeout(max(least_s, options.get("connect_timeout", 0.0))):
                if command is not None and not self.hops:
                    self._proxy = Proxy()
                    self.proxies = [self._proxy]
                    await self._proxy.start(command)
                    given["sock"] = self._proxy.socket
                return await asyncssh.connect(
                    target.address, client_factory=self._client(), **given
                )
        except TimeoutError as error:
            if not (touched and self._reached):
                raise
            raise untouched(target, TOUCH_LIMIT_S) from error
        finally:
            teller.cancel()

    def _client(self) -> type[asyncssh.SSHClient]:
        login = self

        class Client(asyncssh.SSHClient):
            """Notes what the library does not put into its exceptions."""

            def validate_host_public_key(
                self, host: str, addr: str, port: int, key: asyncssh.SSHKey
            ) -> bool:
                """Refuse a key that known_hosts does not have, and keep it for the message."""
                login._offered.note(host, addr, port, key)
                return False

            def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
                """From here on it is the login that takes time."""
                login._reached = True
                login._watch(conn)
                if login._proxy is not None:
                    login._proxy.is_taken = True

            def connection_lost(self, exc: Exception | None) -> None:
                """Keep why the connection ended; an attempt that is repeated does not count."""
                proxy = login._proxy
                if self._was_up and proxy is not None:
                    said = f" ({proxy.said})" if proxy.said else ""
                    proxy.end()
                else:
                    said = ""
                if self._was_up and not login.lost.done():
                    login.lost.set_result(explain_loss(login._spec.name, exc) + said)

            def auth_completed(self) -> None:
                """From here on an end is a loss."""
                self._was_up = login._logged_in = True

            _was_up = False

        return Client

    def _watch(self, connection: asyncssh.SSHClientConnection) -> None:
        """Have each key that the host shows judged first, which takes another connection.

        The library asks its client only about keys that known_hosts does not have.
        """
        if self._rules is None:
            return
        usual = connection.validate_server_host_key

        def judged(key_data: bytes) -> asyncssh.SSHKey:
            if key_data not in self._judged:
                self._shown = key_data
                raise _UnjudgedError("the key has not been looked up")
            return usual(key_data)

        connection.validate_server_host_key = judged  # type: ignore[method-assign]

    async def _jump(self, hop: str) -> None:
        """Log in to a jump host, through those before it."""
        if self._depth + len(self.hops) >= _HOPS_MOST:
            raise HostError(
                f"{self._spec.name}: more than {_HOPS_MOST} jump hosts",
                hint="see whether ProxyJump of ~/.ssh/config leads in a circle",
            )
        user, place, port = parse_hop(hop)
        spec = HostSpec(
            name=f"{self._spec.name}{JUMP_WORDS}{hop.rpartition('@')[2]})",
            address=place,
            user=user,
            port=port,
            ssh_config=self._spec.ssh_config,
            accept_new=self._spec.accept_new,
            source=self._spec.source,
        )
        login = Login(spec, ask=self._ask, tell=self._tell, depth=self._depth + 1)
        if self.hops:
            # Only the first hop's own ProxyJump counts, as with OpenSSH.
            login.hops = list(self.hops)
            connection = await login._direct()
        else:
            connection = await login.connect()
        self.hops = [*login.hops, connection]
        self.proxies += login.proxies

    async def _direct(self) -> asyncssh.SSHClientConnection:
        """Connect through the hops that are up, whatever ProxyJump says."""
        spec = self._spec
        way = await _way(spec)
        return await self._attempts(replace(way, target=replace(way.target, is_direct=False)))

    async def _accept(self, target: Target, refusal: HostError) -> Target | None:
        """Ask whether an unknown key is the right one, and note it; never for a changed one."""
        offered = self._offered
        key = offered.key
        if key is None or not isinstance(refusal, HostKeyError):
            return None
        if await asyncio.to_thread(find_changed_key, target, offered) is not None:
            return None
        file = target.known_hosts[0]
        about = f"{offered.place()} {key.get_fingerprint()} {file}"
        async with ANSWERS.alone(about):
            # Once: a key that is there and still refused is asked about.
            if about not in self._relied and await asyncio.to_thread(is_known_now, target, offered):
                self._relied.add(about)
            elif not await self._make_known(target, key, about):
                return None
        self._offered = Offered()
        return replace(
            target,
            known_hosts=tuple(dict.fromkeys([file, *target.known_hosts])),
        )

    async def _make_known(self, target: Target, key: asyncssh.SSHKey, about: str) -> bool:
        """Write a host's key to known_hosts, if a person says so."""
        file = target.known_hosts[0]
        if not self._spec.accept_new:
            if not target.asks:
                return False
            question = HostQuestion(
                host=self._spec.name,
                kind="host-key",
                text=f"is this the key of {target.place}?",
                detail=f"{key.get_algorithm()} {key.get_fingerprint()}; yes writes it to {file}",
            )
            if await self._answer(question, about) != "yes":
                return False
        try:
            await asyncio.to_thread(
                add_known_host, Path(file), self._offered.place(hashed=target.hashes_names), key
            )
        except OSError as error:
            raise HostError(
                f"{target.name}: the key cannot be written to {file}: {error.strerror}",
                hint="correct its mode",
            ) from error
        return True

    async def _answer(self, question: HostQuestion, about: str) -> str | None:
        host = self._spec.name.partition(JUMP_WORDS)[0]
        if self._ask is None or ANSWERS.is_declined(about, host):
            return None
        answer = await self._ask(question)
        if answer is None:
            ANSWERS.decline(about, host)
        return answer

    async def _unlock(self, target: Target) -> Target | None:
        """Ask for the passphrase of one more key; ``None`` when there is none to try."""
        for path in target.keys:
            if path in self._used or not await asyncio.to_thread(is_encrypted, path):
                continue
            async with ANSWERS.alone(path):
                if path in ANSWERS.unlocked or await self._ask_passphrase(target, path):
                    return target
        return None

    async def _ask_passphrase(self, target: Target, path: str) -> bool:
        for number in range(PASSPHRASE_TRIES):
            again = "" if number == 0 else " (that was not it)"
            question = HostQuestion(
                host=self._spec.name,
                kind="passphrase",
                text=f"passphrase of {path}{again}",
                detail=f"for {target.ssh}; it is kept in memory only",
            )
            answer = await self._answer(question, path)
            if answer is None:
                return False
            with contextlib.suppress(asyncssh.KeyEncryptionError, asyncssh.KeyImportError):
                # A thread: the key is derived slowly on purpose.
                ANSWERS.unlocked[path] = await asyncio.to_thread(
                    asyncssh.read_private_key, path, answer
                )
                return True
        ANSWERS.wrong[path] = PASSPHRASE_TRIES
        # Whoever does not know it now will not know it for the next host either.
        ANSWERS.decline(path, target.host)
        return False


async def _way(spec: HostSpec) -> Way:
    """Return how to reach a host; in a thread, for it runs ssh and what "Match exec" names."""
    try:
        return await asyncio.to_thread(way_to, spec, spec.address or spec.name)
    except (OSError, ValueError, asyncssh.Error) as error:
        raise HostError(
            f"{spec.name}: how to reach it cannot be read: {error}",
            hint="correct its key files or the OpenSSH configuration",
        ) from error


async def _has_security_key(target: Target) -> bool:
    """Whether one of the keys is on hardware: a key file, or one that the key agent holds."""
    hardware = await asyncio.to_thread(lambda: any(map(is_security_key, target.keys)))
    if hardware:
        return True
    if not target.agent:
        return False
    # No agent, or one that does not answer, offers no such key.
    with contextlib.suppress(OSError, ValueError, TimeoutError, asyncssh.Error):
        async with asyncio.timeout(AGENT_LIMIT_S):
            agent = await asyncssh.connect_agent(target.agent)
            async with agent:
                return any(key.algorithm.startswith(b"sk-") for key in await agent.get_keys())
    return False
