"""The console in a browser: textual-serve behind a token.

The library is an extra (``pip install 'eaglemon[serve]'``) and is imported when it is used. Whoever
has the token can do what the console can; so it is asked of every request, kept in a cookie that
other sites cannot send, and never part of a page's address after the first one. To a browser all
ports of a computer are one site, so what a page of another port asks for is refused by its origin.
"""

import errno
import hashlib
import hmac
import importlib
import secrets
import shlex
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from eaglemon.errors import UsageError

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})

_HEADERS = {
    # The library's page asks another site for its font; a console on a closed network must not.
    "Content-Security-Policy": (
        "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; font-src 'self' data:; connect-src 'self' ws: wss:; "
        "frame-ancestors 'none'; base-uri 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

Handler = Callable[[Any], Awaitable[Any]]


def new_token() -> str:
    """Return a token that cannot be guessed."""
    return secrets.token_urlsafe(24)


def allowed(given: str | None, token: str) -> bool:
    """Tell whether a token is the right one, in the same time for any wrong one."""
    return given is not None and hmac.compare_digest(given.encode(), token.encode())


def cookie_name(token: str) -> str:
    """Return a name that only who has the token knows, another for each console of a computer."""
    return f"eaglemon-{hashlib.sha256(token.encode()).hexdigest()[:16]}"


def same_origin(origin: str | None, host: str) -> bool:
    """Tell whether a request comes from a page of the place that it is sent to, or from none."""
    if origin is None:
        return True
    try:
        return urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:
        return False


async def _harden(request: Any, response: Any) -> None:
    """Keep pages from other sites, and other sites from pages."""
    del request
    response.headers.update(_HEADERS)


def serve(
    argv: Sequence[str],
    *,
    address: str,
    port: int,
    token: str,
    title: str,
    announce: Callable[[], None] = lambda: None,
) -> None:
    """Serve the program ``argv``, one for each page, until interrupted.

    ``announce`` is called once it is known that pages can be served. Raises ``UsageError``
    where textual-serve is not installed or the address cannot be used.
    """
    try:
        library = importlib.import_module("textual_serve.server")
        web = importlib.import_module("aiohttp.web")
    except ImportError as error:
        raise UsageError(
            "the console in a browser needs textual-serve",
            hint="pip install 'eaglemon[serve]'",
        ) from error

    cookie = cookie_name(token)

    async def guard(request: Any, handler: Handler) -> Any:
        if not same_origin(request.headers.get("Origin"), request.host):
            return web.Response(status=403, text="this is asked for by a page of another place\n")
        given = request.query.get("token")
        if given is not None and allowed(given, token):
            answer = web.HTTPFound(request.rel_url.with_query({}))
            answer.set_cookie(cookie, token, httponly=True, samesite="Strict", path="/")
            return answer
        if not allowed(request.cookies.get(cookie), token):
            return web.Response(status=401, text="open the address that eaglemon serve printed\n")
        return await handler(request)

    class Guarded(library.Server):  # type: ignore[name-defined,misc]
        """textual-serve, with the guard before every route and without its greeting."""

        async def _make_app(self) -> Any:
            app = await super()._make_app()
            app.middlewares.append(web.middleware(guard))
            app.on_response_prepare.append(_harden)
            return app

        async def handle_index(self, request: Any) -> Any:
            """Have the page ask where it came from: a forwarded port, a name, TLS before it."""
            secure = request.headers.get("X-Forwarded-Proto", request.scheme) == "https"
            self.public_url = f"{'https' if secure else 'http'}://{request.host}"
            return await super().handle_index(request)

        async def on_startup(self, app: Any) -> None:
            """Say nothing: the caller has told the address."""

    _require_free(address, port)
    announce()
    server = Guarded(shlex.join(argv), host=address, port=port, title=title)
    try:
        server.serve()
    except OSError as error:
        raise _unusable(address, port, error) from error


def _require_free(address: str, port: int) -> None:
    """Raise ``UsageError`` where the address cannot be listened at."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as listener:
            # As the server does it: what an ended one left in TIME_WAIT does not matter.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(place)
            listener.listen(1)
    except OSError as error:
        raise _unusable(address, port, error) from error


def _unusable(address: str, port: int, error: OSError) -> UsageError:
    taken = error.errno == errno.EADDRINUSE
    return UsageError(
        f"{address}:{port} cannot be used: {error.strerror or error}",
        hint="choose another with --port" if taken else "",
    )
