"""A folder whose file system never answers, as a hard-mounted NFS home whose server is away.

Really one: a FUSE mount whose requests nobody reads. Needs root and ``/dev/fuse``.
"""

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

_DETACH = 2


@contextlib.contextmanager
def hung(folder: Path) -> Iterator[None]:
    """Hang every access below ``folder`` until the block ends; what is in it is back then."""
    libc = ctypes.CDLL(None, use_errno=True)
    handle = os.open("/dev/fuse", os.O_RDWR)
    try:
        options = f"fd={handle},rootmode=40000,user_id=0,group_id=0"
        words = [str(folder).encode(), b"fuse", options.encode()]
        if libc.mount(b"hung", words[0], words[1], 0, words[2]) != 0:
            raise OSError(ctypes.get_errno(), "cannot mount FUSE", str(folder))
        try:
            yield
        finally:
            # First, so that nobody new gets in; then what waits is released with an error.
            libc.umount2(words[0], _DETACH)
    finally:
        os.close(handle)
