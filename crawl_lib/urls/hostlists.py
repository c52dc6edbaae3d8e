"""A list of hosts in a file: sorted, a line each."""

from __future__ import annotations

import re
from collections.abc import Iterable

_HOST_LINE = re.compile(rb"[!-~]+\n")


def scope_bytes(hosts: Iterable[str]) -> bytes:
    """The file."""
    return "".join(f"{host}\n" for host in sorted(hosts)).encode()


def is_list_of_hosts(data: bytes) -> bool:
    """Whether bytes can be a whole list of hosts, a line each; an empty one is whole."""
    return all(_HOST_LINE.fullmatch(line) for line in data.splitlines(keepends=True))


def whole_hosts(data: bytes) -> set[str]:
    """The lines of a damaged list that can be hosts."""
    return {line[:-1].decode("ascii") for line in data.splitlines(keepends=True) if _HOST_LINE.fullmatch(line)}
