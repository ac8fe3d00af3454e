"""Ports for servers that tests start by number: each is given out once on this machine.

Asking the system for any port and closing it again is a race: between that and the server's own
``bind`` the number may go to another test or to an outgoing connection. These ports lie below
Linux's range for outgoing connections, and the name of each is held until the test process ends.
"""

import itertools
import os
import socket

_FIRST, _COUNT = 20000, 10000
_numbers = itertools.count(os.getpid() * 97)
_held: list[socket.socket] = []


def free_port() -> int:
    """Return a port that nobody listens on and that no other test process is given."""
    for number in itertools.islice(_numbers, _COUNT):
        port = _FIRST + number % _COUNT
        # An abstract name: the kernel frees it with the process, however that ends.
        name = socket.socket(socket.AF_UNIX)
        try:
            name.bind(f"\0eaglemon-test-port-{port}")
            with socket.socket() as tried:
                tried.bind(("", port))
        except OSError:
            name.close()
            continue
        _held.append(name)
        return port
    raise RuntimeError(f"no port of {_FIRST} to {_FIRST + _COUNT - 1} is free")
