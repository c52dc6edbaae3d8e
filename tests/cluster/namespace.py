"""A network namespace of its own, whose one interface can be cut: for what a crawl makes of a network that is gone."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_CLONE_NEWNET = 0x40000000
_GET_FLAGS, _SET_FLAGS = 0x8913, 0x8914
_UP = 1
_REQUEST = "16sH22x"
"""A `struct ifreq` with flags."""
Answer = TypeVar("Answer")


def apart(work: Callable[[], Answer]) -> Answer:
    """Do something in a new namespace that has a loopback only, and return what it returns.

    It holds for a thread, with all that `work` starts, and goes with them. Only root may make one.
    """

    def there() -> Answer:
        if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET):
            code = ctypes.get_errno()
            raise OSError(code, f"no network namespace: {os.strerror(code)}")
        set_network(up=True)
        return work()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(there).result()


def set_network(*, up: bool) -> None:
    """Begin or cut the network of this thread's namespace. Connections stay, and nothing comes through."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        asked = fcntl.ioctl(any_socket, _GET_FLAGS, struct.pack(_REQUEST, b"lo", 0))
        flags = struct.unpack(_REQUEST, asked)[1]
        fcntl.ioctl(
            any_socket,
            _SET_FLAGS,
            struct.pack(_REQUEST, b"lo", flags | _UP if up else flags & ~_UP),
        )
