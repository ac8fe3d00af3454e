"""Chooses the transport for a host."""

from eaglemon.core.hosts import HostSpec
from eaglemon.errors import ConfigError
from eaglemon.io.local import LocalTransport
from eaglemon.io.ssh import SshTransport
from eaglemon.io.transport import Transport


def transport_to(spec: HostSpec) -> Transport:
    """Return a transport to ``spec``, not connected yet."""
    match spec.transport:
        case "local":
            return LocalTransport()
        case "ssh":
            return SshTransport(spec)
        case other:
            raise ConfigError(
                f"host {spec.name}: unknown transport {other!r}", hint="use ssh or local"
            )
