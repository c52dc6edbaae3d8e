"""A service in a process of its own, to be killed: `python -m tests.realtime.program FOLDER`.

Its fetcher answers after a few milliseconds, and dies now and then: `/r/N/...` redirects to the host N, everything else
is a page.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

from crawl_lib.realtime import serve_realtime
from crawl_lib.realtime.protocol import Fetch
from crawl_lib.stores import open_stores
from tests.realtime.fake import ThreadFetcher, Web, make_config, page, redirect


class SlowWeb(Web):
    """Answers after 1 to 40 ms; sometimes the fetcher dies."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = random.Random(seed)
        self.answers = _Any(self._answer)  # type: ignore[assignment]

    async def _answer(self, wanted: Fetch) -> Any:
        await asyncio.sleep(self._random.uniform(0.001, 0.04))
        if self._random.random() < 0.005:
            return None
        path = wanted.url.split("/", 3)[3]
        if path.startswith("r/"):
            _, number, rest = path.split("/", 2)
            return redirect(wanted, f"http://{number}.example/{rest}")
        return page(wanted)


class _Any(dict):  # type: ignore[type-arg]
    """The same function for each URL."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def get(self, key: object, default: object = None) -> Any:
        return self._function


def main(folder: Path, *keys: str) -> None:
    """Serve until SIGTERM. `keys`: MySQL servers and a database, else a SQLite file."""
    options = {"servers": list(keys[1:]), "database": keys[0], "user": "krake"} if keys else {}
    queue = {"lock_timeout_s": 10, "local_dir": str(folder / "q")}
    config = make_config(folder, queue=queue, key_storage=options, fetch={"host_delay_s": 0.0})
    stores = open_stores(config)
    signal.signal(signal.SIGTERM, lambda *_: stores.stop.set())
    web = SlowWeb(os.getpid())
    serve_realtime(stores, lambda lock: ThreadFetcher(web), lambda url: print(url, flush=True))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
