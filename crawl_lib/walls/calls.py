"""System calls never made by a process that reads strangers' bytes: the kernel refuses them (seccomp).

Landlock (`sandbox`) guards files. A filter guards the other ways out: sockets to other programs of the machine, new
processes, memory beyond limits. A refused call ends in an error, never in a signal, so libraries that probe for a
service find it missing: glibc looks names up without netlink and nscd, and makes threads by `clone`.

The filter is a program for the kernel's classic BPF machine, put together here. A filter holds for the threads and
children of its process, and no later filter takes anything back. Calls whose arguments the filter does not look at cost
next to nothing: the kernel remembers each answer (5.11 and later).

Sources: https://docs.kernel.org/userspace-api/seccomp_filter.html, seccomp(2), linux/filter.h, linux/seccomp.h.
"""

import ctypes
import errno
import os
import socket
import struct
import sys
from collections.abc import Iterable, Sequence

NO_FILTER_TEXT = (
    "fetching processes may fork, execute and open any socket: this kernel has no filter of system calls (seccomp),"
    " refuses it, or runs on a processor that Krake has no numbers for"
)
_SAME_NUMBERS = {
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "clone3": 435,
    "pidfd_getfd": 438,
    "memfd_secret": 447,
}
_NUMBERS = {
    "x86_64": {
        "mmap": 9,
        "shmget": 29,
        "socket": 41,
        "listen": 50,
        "socketpair": 53,
        "clone": 56,
        "fork": 57,
        "vfork": 58,
        "execve": 59,
        "ptrace": 101,
        "setrlimit": 160,
        "add_key": 248,
        "request_key": 249,
        "keyctl": 250,
        "unshare": 272,
        "perf_event_open": 298,
        "prlimit64": 302,
        "setns": 308,
        "process_vm_readv": 310,
        "process_vm_writev": 311,
        "seccomp": 317,
        "memfd_create": 319,
        "bpf": 321,
        "execveat": 322,
        "userfaultfd": 323,
    },
    "aarch64": {
        "unshare": 97,
        "ptrace": 117,
        "setrlimit": 164,
        "shmget": 194,
        "socket": 198,
        "socketpair": 199,
        "listen": 201,
        "add_key": 217,
        "request_key": 218,
        "keyctl": 219,
        "clone": 220,
        "execve": 221,
        "mmap": 222,
        "perf_event_open": 241,
        "prlimit64": 261,
        "setns": 268,
        "process_vm_readv": 270,
        "process_vm_writev": 271,
        "seccomp": 277,
        "memfd_create": 279,
        "bpf": 280,
        "execveat": 281,
        "userfaultfd": 282,
    },
}
"""Calls by processor, without `_SAME_NUMBERS`; `fork` and `vfork` are not calls of every one."""
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_SET_MODE_FILTER, _GET_ACTION_AVAILABLE = 1, 2
_SPECULATION_ALLOWED = 1 << 2
"""Without this flag older kernels make the whole process slower."""
_PR_SET_NO_NEW_PRIVS = 38
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_FOREIGN_FROM = 1 << 30
"""Numbers from here on are calls of x32, another ABI of x86_64."""

_LOAD, _AND, _IF_EQUAL, _IF_AT_LEAST, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
_NUMBER_AT, _ARCH_AT, _ARGUMENTS_AT = 0, 4, 16
_WORD = 0xFFFFFFFF
_TYPES = 0xF
"""The bits of a socket's type; the others are flags."""
_CLONE_THREAD = 0x10000
_MAP_SHARED, _MAP_ANONYMOUS, _MAP_GROWSDOWN = 0x01, 0x20, 0x100
_UNCOUNTED = _MAP_SHARED | _MAP_ANONYMOUS | _MAP_GROWSDOWN
"""Bits of `mmap` flags: RLIMIT_DATA counts neither shared memory without a file nor what grows as a stack."""

_Step = tuple[int, int, int, int]
"""An instruction: code, how many to skip if its test holds, how many if not, and its operand."""
_Test = tuple[int, int, Sequence[int]]
"""A 32-bit half of an argument (0 and 1: of the first argument), a mask, and the values that pass."""


def can_filter() -> bool:
    """Return whether `refuse_calls` works here."""
    machine = os.uname().machine
    if machine not in _NUMBERS or sys.byteorder != "little" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return False
    return _seccomp(machine, _GET_ACTION_AVAILABLE, 0, ctypes.byref(ctypes.c_uint32(_ERRNO))) == 0


def refuse_calls(*, forks: bool, internet: bool, limits: bool) -> str:
    """Have the kernel refuse system calls unneeded for reading pages.

    This holds for the process, its later threads and its children. Always refused: programs, sockets but TCP and UDP
    over IP, connected pairs aside, servers, other ABIs, and calls that read other processes or go around the filter.
    For a process of one thread.

    Args:
        forks: Whether processes may still be made. False also refuses memory beyond limits.
        internet: Whether TCP and UDP sockets may be opened.
        limits: Whether the limits of a process (`setrlimit`) may still be changed.

    Returns:
        A line about the missing feature, or "" if the filter is in place.
    """
    machine = os.uname().machine
    if not can_filter():
        return NO_FILTER_TEXT
    steps = _program(machine, forks=forks, internet=internet, limits=limits)
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    program = struct.pack("@HP", len(steps), ctypes.addressof(code))
    ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    return (
        NO_FILTER_TEXT if _seccomp(machine, _SET_MODE_FILTER, _SPECULATION_ALLOWED, program) else ""
    )


def _seccomp(machine: str, operation: int, flags: int, argument: object) -> int:
    return int(ctypes.CDLL(None).syscall(_NUMBERS[machine]["seccomp"], operation, flags, argument))


def _program(machine: str, *, forks: bool, internet: bool, limits: bool) -> list[_Step]:
    numbers = _NUMBERS[machine] | _SAME_NUMBERS
    steps: list[_Step] = [
        (_LOAD, 0, 0, _ARCH_AT),
        (_IF_EQUAL, 1, 0, _AUDIT_ARCH[machine]),
        (_RETURN, 0, 0, _ERRNO | errno.ENOSYS),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_IF_AT_LEAST, 0, 1, _FOREIGN_FROM),
        (_RETURN, 0, 0, _ERRNO | errno.ENOSYS),
    ]
    for name, body in _rules(forks=forks, internet=internet, limits=limits).items():
        if name in numbers:
            steps += [(_IF_EQUAL, 0, len(body), numbers[name]), *body]
    return [*steps, (_RETURN, 0, 0, _ALLOW)]


def _rules(*, forks: bool, internet: bool, limits: bool) -> dict[str, list[_Step]]:
    """Return the rules for calls with conditions.

    The body of a rule ends in a return.
    """
    families = (socket.AF_INET, socket.AF_INET6) if internet else ()
    protocols = (
        0,
        socket.IPPROTO_TCP,
        socket.IPPROTO_UDP,
    )  # not SCTP, nor what asks for raw packets
    rules = {
        "socket": _only_if(
            [(0, _WORD, families), (2, _TYPES, _STREAM_OR_DATAGRAM), (4, _WORD, protocols)]
        ),
        # A pair of datagram sockets is connected, and may still send to any path.
        "socketpair": _only_if([(2, _TYPES, (socket.SOCK_STREAM, socket.SOCK_SEQPACKET))]),
    }
    rules |= dict.fromkeys(("execve", "execveat", "listen"), _refuse(errno.EACCES))
    rules |= dict.fromkeys(_OTHER_PROCESSES, _refuse(errno.EPERM))
    # Programs that know these calls have another way.
    rules |= dict.fromkeys(
        ("io_uring_setup", "io_uring_enter", "io_uring_register"), _refuse(errno.ENOSYS)
    )
    if not forks:
        rules |= {
            "clone": _only_if([(0, _CLONE_THREAD, (_CLONE_THREAD,))], errno.EPERM),
            "clone3": _refuse(errno.ENOSYS),  # its flags lie in memory, where no filter sees them
            "mmap": _only_if([(6, _UNCOUNTED, (0, _MAP_SHARED, _MAP_ANONYMOUS))], errno.EPERM),
        }
        rules |= dict.fromkeys(
            ("fork", "vfork", "memfd_create", "memfd_secret", "shmget"), _refuse(errno.EPERM)
        )
    if not limits:
        rules["setrlimit"] = _refuse(errno.EPERM)
        rules["prlimit64"] = _only_if(
            [(4, _WORD, (0,)), (5, _WORD, (0,))], errno.EPERM
        )  # a limit may be read
    return rules


_STREAM_OR_DATAGRAM = (socket.SOCK_STREAM, socket.SOCK_DGRAM)
_OTHER_PROCESSES = (
    *("ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "unshare", "setns"),
    *("bpf", "perf_event_open", "userfaultfd", "add_key", "request_key", "keyctl"),
)
"""Calls that reach into other processes, into their names and keys, or into the kernel itself."""


def _refuse(number: int) -> list[_Step]:
    return [(_RETURN, 0, 0, _ERRNO | number)]


def _only_if(tests: Iterable[_Test], number: int = errno.EACCES) -> list[_Step]:
    """Allow a call whose arguments pass all tests.

    Other calls are refused with an error number.
    """
    steps: list[_Step] = []
    for half, mask, values in tests:
        steps += [(_LOAD, 0, 0, _ARGUMENTS_AT + 4 * half), (_AND, 0, 0, mask)]
        steps += [(_IF_EQUAL, len(values) - index, 0, value) for index, value in enumerate(values)]
        steps += _refuse(number)
    return [*steps, (_RETURN, 0, 0, _ALLOW)]
