"""The program of a child process that reads pages, one after the other, until its end or the end of its input.

Each page has its own limit of CPU time; all pages of a child share one limit of memory. (After a page has killed its
child, `children` tries the page once more in a new child.) Only this process reads foreign content, behind the same
walls as the fetching processes: it may open Python's own files only, and its environment has no secret.

Messages on standard input and output: a length in 4 bytes, then the bytes. A question is a letter of `KINDS` and a
WARC member; an answer is a line of JSON, `PageText` as a list. Arguments: the parent process, bytes of memory, seconds
of CPU time, and the fields of `ExtractOptions`. The child ends with its parent.
"""

import json
import math
import resource
import sys
from typing import BinaryIO

from crawl_lib.walls import (
    bar_packages,
    data_bytes,
    die_with_parent,
    keep_memory,
    refuse_calls,
    set_limits,
    shut_in,
)

LENGTH_BYTES = 4
DESCRIPTORS = 64


def read_message(file: BinaryIO) -> bytes | None:
    """Read the next message; None at the end."""
    size = file.read(LENGTH_BYTES)
    return file.read(int.from_bytes(size, "big")) if len(size) == LENGTH_BYTES else None


def message(data: bytes) -> bytes:
    """Encode data as a message."""
    return len(data).to_bytes(LENGTH_BYTES, "big") + data


def main() -> int:
    """Answer questions."""
    parent, memory, cpu_s, max_bytes, max_chars = map(int, sys.argv[1:6])
    die_with_parent(parent)
    bar_packages()
    keep_memory()
    from crawl_lib.text.extract import ExtractOptions, page_text  # noqa: PLC0415

    asked = ExtractOptions(max_bytes, max_chars, *sys.argv[6:])
    set_limits(DATA=data_bytes() + memory, CORE=0, FSIZE=0, NOFILE=DESCRIPTORS)
    shut_in(read=(), write=())
    refuse_calls(forks=False, internet=False, limits=True)
    while question := read_message(sys.stdin.buffer):
        used = resource.getrusage(resource.RUSAGE_SELF)
        _limit(resource.RLIMIT_CPU, math.ceil(used.ru_utime + used.ru_stime) + cpu_s)
        found = page_text(question[1:], question[:1].decode(), asked)
        sys.stdout.buffer.write(message(json.dumps(found).encode()))
        sys.stdout.buffer.flush()
    return 0


def _limit(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


if __name__ == "__main__":
    sys.exit(main())
