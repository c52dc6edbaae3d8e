"""Ports of the loopback for servers that are started with a number."""

from __future__ import annotations

import random
import socket
from functools import cache

LOWEST = 20_000
LOWEST_OF_THE_SYSTEM = 32_768
"""Of Linux, unless it is told otherwise (`net.ipv4.ip_local_port_range`); others begin higher."""


def free_port() -> int:
    """A port that no program has now, and that no other is given as long as this process lives.

    It lies below those that the system gives to outgoing connections and to servers that ask for any port, so that it
    is still free when a server starts again long after its death. A socket that is bound and does not listen keeps it;
    a server may listen there all the same, and again after its death, since servers say SO_REUSEADDR.
    """
    while True:
        port = random.randrange(LOWEST, LOWEST_OF_THE_SYSTEM)
        try:
            _bound(port, shared=False).close()
            keeper = _bound(port)
        except OSError:
            continue
        if _may_be_kept():
            keeper.detach()
        else:
            keeper.close()
        return port


@cache
def _may_be_kept() -> bool:
    """Whether this system lets a server listen at a port that is kept."""
    with _bound(0) as keeper:
        try:
            with _bound(keeper.getsockname()[1]) as server:
                server.listen()
        except OSError:
            return False
    return True


def _bound(port: int, *, shared: bool = True) -> socket.socket:
    opened = socket.socket()
    try:
        if shared:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(("127.0.0.1", port))
    except OSError:
        opened.close()
        raise
    return opened
