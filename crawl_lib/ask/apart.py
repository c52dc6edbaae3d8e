"""A look-up of one URL in a child process, for a server: the child is killed at a limit of time.

The question goes to the child as a pickle. Only the server writes this pickle. The child reads what strangers wrote,
and so the child answers with JSON, a line for each part.
"""

import json
import os
import pickle
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from crawl_lib.config import Config
from crawl_lib.stores import Secrets

PARTS = ("why", "cat", "text", "show")
"""The parts of an answer, in order: `explain`, headers and source, the main text, `find_page`."""
LINKS_SHARE = 0.6
"""The part of the limit of time after which the search for links ends."""

_READ_BYTES = 1 << 16


class ChildQuestion(NamedTuple):
    """A request to a child. `seconds`: until the child is killed."""

    config: Config
    secrets: Secrets
    url: str
    seconds: float


@dataclass(frozen=True)
class LookUp:
    """The answer of a child. `parts`: by name; `missed`: names of `PARTS` that the child did not get to."""

    parts: Mapping[str, Any]
    missed: tuple[str, ...]


def look_up(config: Config, secrets: Secrets, url: str, *, seconds: float) -> LookUp:
    """Look a URL up in a child process, within a time limit.

    `seconds`: the limit, once Python has started. The start has the same limit of its own, since a machine may be busy.
    A part is a mapping as the command of its name prints, or has an `error`.
    """
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "crawl_lib.ask.child", str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
    ) as process:
        output = _answer(
            process, pickle.dumps(ChildQuestion(config, secrets, url, seconds)), seconds
        )
        process.kill()
    parts: dict[str, Any] = {}
    for line in output.splitlines(keepends=True):
        if line.endswith(b"\n") and line.strip():
            parts |= json.loads(line)
    return LookUp(parts, tuple(name for name in PARTS if name not in parts))


def _answer(process: "subprocess.Popen[bytes]", question: bytes, seconds: float) -> bytes:
    """Ask a child, and read until its end or time limit.

    A child first writes an empty line, and then reads. A long question to a child that does not read would block.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    data, until_s, file = bytearray(), time.monotonic() + seconds, process.stdout.fileno()
    poll = select.poll()
    poll.register(file, select.POLLIN)
    while poll.poll(max(0, until_s - time.monotonic()) * 1000):
        piece = os.read(file, _READ_BYTES)
        if not piece:
            break
        if not data:
            with suppress(BrokenPipeError), process.stdin:
                process.stdin.write(question)
            until_s = time.monotonic() + seconds
        data += piece
    return bytes(data)
