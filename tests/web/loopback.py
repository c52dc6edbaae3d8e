"""One socket that listens on every loopback address, so that a server may be a hundred thousand hosts."""

import socket

BACKLOG = 4096


def listen_everywhere(port: int = 0) -> socket.socket:
    """A listening socket for all of 127.0.0.0/8, on a port of the kernel's choice; no other network reaches it.

    The wildcard address alone would open the port to every network. A socket that is bound to the loopback device sees
    what comes through that device only (Linux 5.7 lets every user do so). The address that a client meant is the
    `getsockname()` of its connection.
    """
    opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
        opened.bind(("0.0.0.0", port))
        opened.listen(BACKLOG)
    except OSError:
        opened.close()
        raise
    return opened
