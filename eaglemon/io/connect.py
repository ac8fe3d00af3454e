"""Chooses the transport for a host, and who answers there."""

from eaglemon.core.hosts import HostSpec
from eaglemon.errors import ConfigError
from eaglemon.io.agent_link import AgentLink
from eaglemon.io.host_link import HostLink, NoPythonError
from eaglemon.io.local import LocalTransport
from eaglemon.io.shell_host import ShellLink
from eaglemon.io.ssh import SshTransport
from eaglemon.io.transport import Asker, Teller, Transport


def transport_to(
    spec: HostSpec, *, ask: Asker | None = None, tell: Teller | None = None
) -> Transport:
    """Return a transport to ``spec``, not connected yet.

    ``ask`` asks a person if need be; ``tell`` says what one has to do, with the host's name.
    """
    match spec.transport:
        case "local":
            return LocalTransport(spec.name)
        case "ssh":
            return SshTransport(spec, ask=ask, tell=tell)
        case other:
            raise ConfigError(
                f"host {spec.name}: unknown transport {other!r}", hint="use ssh or local"
            )


async def open_link(transport: Transport, spec: HostSpec) -> HostLink:
    """Start the agent on a host, or do with sh where it has no Python; raises ``HostError``."""
    try:
        return await AgentLink.open(transport, python=spec.python, env=spec.env)
    except NoPythonError:
        link = await ShellLink.open(transport, env=spec.env)
        if spec.python is not None:
            link.python_is_wrong(spec.python, spec.source or "hosts.toml")
        return link
