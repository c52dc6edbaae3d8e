"""The processes that fetch: start, walls, and work on a page.

How data flows: `prepare_workers` starts the fork server of `crawl_lib.walls` during the intake; `process`, the server's
program, loads the modules. `run_workers` shares a take among processes by host. Walls round a fetching process keep
secrets, files and system calls away from pages. Fetching processes ask the task for turns shared by nodes. A `worker`
fetches its URLs (`crawl_lib.fetch`), appends their records, and has `page` make the rows: content and links
(`crawl_lib.parse`), then which links are followed (`discovery`), with a memory of earlier links (`rows`). A separate
process reads large pages (`large`, `aside`), so that the loop goes on. `patterns` ends URLs whose pages are nearly all
the same.

After a kill the records in the spool count: only URLs without a record are fetched again. A page that killed two
readers is skipped, since its place is noted before the reading.
"""

from typing import TYPE_CHECKING

from crawl_lib.lazy import loads_later

if TYPE_CHECKING:
    from crawl_lib.worker.discovery import Discovery
    from crawl_lib.worker.page import PageHandler
    from crawl_lib.worker.patterns import room_of
    from crawl_lib.worker.reading import Reader
    from crawl_lib.worker.worker import build_walls, limit_worker
    from crawl_lib.worker.workers import WorkerTask, prepare_workers, run_workers
else:
    # A fetching process bars packages before anything else is loaded.
    __getattr__ = loads_later(
        __name__,
        {
            "discovery": ("Discovery",),
            "page": ("PageHandler",),
            "patterns": ("room_of",),
            "reading": ("Reader",),
            "worker": ("build_walls", "limit_worker"),
            "workers": ("WorkerTask", "prepare_workers", "run_workers"),
        },
    )
