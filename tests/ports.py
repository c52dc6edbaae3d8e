"""Ports of the loopback for servers that are started with a number."""

from __future__ import annotations

import socket
from functools import cache


def free_port() -> int:
    """A port that nobody has now, and that nobody else is given as long as this process lives.

    A socket that is bound and does not listen keeps it from whoever asks for any port; a server may listen there all
    the same, and again after its death, since servers say SO_REUSEADDR.
    """
    keeper = _bound(0)
    port = int(keeper.getsockname()[1])
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


def _bound(port: int) -> socket.socket:
    opened = socket.socket()
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(("127.0.0.1", port))
    except OSError:
        opened.close()
        raise
    return opened
