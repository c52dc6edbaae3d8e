"""Failures that pass, in an attempt: one host does not listen at first, and no failed try is waited for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from crawl_lib.fetch.transport import Transport

REFUSED = 6
"""Connections: five in a row are as many as a host may fail, and the sixth is one of a later iteration."""
NOBODY = "127.255.0.9"
"""An address at which nothing listens."""


def refuse_at_first(host: str, note: Path) -> None:
    """The first connections for pages of a host are refused. `note`: counts them for all processes of a round."""
    start = Transport.start

    def refused_at_first(self: Transport, job: Any, address: str | None, done: Any) -> None:
        if job.taken is not None and f"//{host}:" in job.url and _count(note) <= REFUSED:
            address = NOBODY
        start(self, job, address, done)

    Transport.start = refused_at_first  # type: ignore[method-assign]


def _count(note: Path) -> int:
    descriptor = os.open(note, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, b".")
    size = os.fstat(descriptor).st_size
    os.close(descriptor)
    return size
