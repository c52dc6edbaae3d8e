"""A look-up of one URL in a child process, for a server: the child is killed at a limit of time.

The question goes to the child as a pickle. Only the server writes this pickle. The child reads what strangers wrote,
and so the child answers with JSON, a line for each part.
"""

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from crawl_lib.config import Config
from crawl_lib.stores import Secrets

PARTS = ("why", "cat", "text", "show")
"""The parts of an answer, in order: `explain`, headers and source, the main text, `find_page`."""
LINKS_SHARE = 0.6
"""Of the limit of time, after which no more iterations are searched for links."""


class Question(NamedTuple):
    """What a child is asked. `seconds`: until the child is killed."""

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
    """Look a URL up in a child process, and return what the child has found within a limit of time.

    A part is a mapping as the command of its name prints, or has an `error`.
    """
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "crawl_lib.ask.child", str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
    ) as process:
        try:
            output, _ = process.communicate(pickle.dumps(Question(config, secrets, url, seconds)), timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
    parts: dict[str, Any] = {}
    for line in output.splitlines(keepends=True):
        if line.endswith(b"\n"):
            parts |= json.loads(line)
    return LookUp(parts, tuple(name for name in PARTS if name not in parts))
