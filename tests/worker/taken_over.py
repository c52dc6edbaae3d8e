"""What somebody does who has taken a process over; run in it as a program text. `attack()` returns what became of it.

"refused": an error of the system. The attacker would go on after each; so does a process that was not taken over.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import socket
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

LARGE = 1500 << 20
MANY = 5_000
_NUMBERS = {"x86_64": {"clone": 56, "socket": 41}, "aarch64": {"clone": 220, "socket": 198}}
NUMBERS = _NUMBERS.get(os.uname().machine, {}) | {"clone3": 435, "io_uring_setup": 425}


def call(name: str, *arguments: int | ctypes.Array[ctypes.c_char], more: int = 0) -> None:
    """A system call by its number, past the C library."""
    libc = ctypes.CDLL(None, use_errno=True)
    found = libc.syscall(NUMBERS[name] + more, *arguments)
    if found == 0 and name.startswith("clone"):
        os._exit(0)
    if found < 0:
        raise OSError(ctypes.get_errno(), name)


def fork() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def execute() -> None:
    """Only an error comes back from it, so it is tried where a success ends nothing else."""
    subprocess.run(["/bin/true"], check=True)


def in_thread(act: Callable[[], object]) -> None:
    raised: list[BaseException] = []

    def run() -> None:
        try:
            act()
        except OSError as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]


def talk(path: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        one.sendto(b"x", path)


def talk_by_a_pair(path: str) -> None:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with one, other:
        one.sendto(b"x", path)


def open_socket(family: int, kind: int, protocol: int = 0) -> None:
    socket.socket(family, kind, protocol).close()


def serve() -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.listen()


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        try:
            os.pwrite(file.fileno(), b"x", 8 << 40)
        finally:
            path.unlink()


def descriptors() -> None:
    mine = [os.dup(0)]
    try:
        while len(mine) < MANY:
            mine.append(os.dup(0))
    finally:
        for one in mine:
            os.close(one)


def raise_limits() -> None:
    """As root, who may; it sets what is there already, if that is no limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def private_memory() -> None:
    mmap.mmap(-1, LARGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()


def attack(
    folder: str, unix_path: str, *, internet: bool, but: Sequence[str] = ()
) -> dict[str, str]:
    """Try everything. `folder`: where files may be made; `unix_path`: of a datagram socket that listens.

    `internet`: TCP is left to the network's rules. `but`: left out.
    """
    tried: dict[str, Callable[[], object]] = {
        "a socket with a path": lambda: talk(unix_path),
        "a socket with a path, in a thread": lambda: in_thread(lambda: talk(unix_path)),
        "a socket with a path, by a pair": lambda: talk_by_a_pair(unix_path),
        "a stream socket": lambda: open_socket(socket.AF_UNIX, socket.SOCK_STREAM),
        "packets": lambda: open_socket(socket.AF_PACKET, socket.SOCK_DGRAM),
        "raw packets": lambda: open_socket(socket.AF_PACKET, socket.SOCK_RAW),
        "netlink": lambda: open_socket(socket.AF_NETLINK, socket.SOCK_RAW),
        "raw IP": lambda: open_socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP),
        "raw IPv6": lambda: open_socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6),
        "the hypervisor": lambda: open_socket(socket.AF_VSOCK, socket.SOCK_STREAM),
        "a socket by another ABI": lambda: call(
            "socket", socket.AF_UNIX, socket.SOCK_STREAM, 0, more=1 << 30
        ),
        "a server": serve,
        "a process": fork,
        "a process, in a thread": lambda: in_thread(fork),
        "a process by clone": lambda: call("clone", 17, 0, 0, 0, 0),
        "a process by clone3": lambda: call("clone3", ctypes.create_string_buffer(64), 64),
        "a ring": lambda: call("io_uring_setup", 1, ctypes.create_string_buffer(120)),
        "a program": execute,
        "a program, in place": lambda: os.execv("/bin/false", ["false"]),
        "memory": private_memory,
        "memory of Python": lambda: bytearray(LARGE),
        "shared memory": lambda: mmap.mmap(-1, LARGE).close(),
        "stacks": lambda: mmap.mmap(
            -1, LARGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x100
        ).close(),
        "a file in memory": lambda: os.close(os.memfd_create("x")),
        "a sparse file": lambda: sparse(Path(folder) / "sparse"),
        "descriptors": descriptors,
        "other limits": raise_limits,
    }
    if not internet:
        tried["TCP"] = lambda: open_socket(socket.AF_INET, socket.SOCK_STREAM)
        tried["UDP"] = lambda: open_socket(socket.AF_INET6, socket.SOCK_DGRAM)
    return {name: become(act) for name, act in tried.items() if name not in but}


def honest() -> dict[str, str]:
    """What a process still needs; "done" each."""
    tried: dict[str, Callable[[], object]] = {
        "a name": lambda: socket.getaddrinfo("localhost", 80),
        "a pair": lambda: [one.close() for one in socket.socketpair()],
        "a thread": lambda: in_thread(lambda: None),
        "a limit": lambda: resource.getrlimit(resource.RLIMIT_NOFILE),
        "memory": lambda: bytearray(32 << 20),
    }
    return {name: become(act) for name, act in tried.items()}


def become(act: Callable[[], object]) -> str:
    try:
        act()
    except (OSError, MemoryError, ValueError):  # Python says of a limit that its value is wrong
        return "refused"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return "done"
