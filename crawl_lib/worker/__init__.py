"""The processes that fetch: how they are started and confined, and what one does with a page.

How data flows: `prepare_workers` starts `forkserver` during the intake. `forkserver` loads the modules, and forks the
processes. `run_workers` shares a take among processes by host. A fetching process has no secret in its environment, and
can open few files (`sandbox`). The kernel refuses system calls that fetching never needs (`calls`). Fetching processes
ask the task for turns that nodes share. A `worker` fetches its URLs (`crawl_lib.fetch`), appends their records, and has
`page` make the rows: content and links (`crawl_lib.parse`), then which links are followed (`discovery`), with a memory
of earlier links (`rows`). Large pages are read by a process of their own (`large`, `aside`), so that the loop goes on.
`patterns` ends URLs whose pages are nearly all the same.

After a kill the records in the spool count: only URLs without a record are fetched again. A page at which two readers
died is skipped, since its place is noted before it is read.
"""

from typing import TYPE_CHECKING

from crawl_lib.lazy import loads_later

if TYPE_CHECKING:
    from crawl_lib.worker.calls import refuse_calls
    from crawl_lib.worker.discovery import Discovery
    from crawl_lib.worker.forkserver import Forked, die_with_parent, fork_server
    from crawl_lib.worker.page import PageHandler
    from crawl_lib.worker.patterns import room_of
    from crawl_lib.worker.process import bar_packages, keep_memory
    from crawl_lib.worker.reading import Reader
    from crawl_lib.worker.sandbox import clean_environment, data_bytes, set_limits, shut_in
    from crawl_lib.worker.worker import build_walls, limit_worker
    from crawl_lib.worker.workers import WorkerTask, prepare_workers, run_workers
else:
    # `process` bars packages before anything else is loaded.
    __getattr__ = loads_later(
        __name__,
        {
            "calls": ("refuse_calls",),
            "discovery": ("Discovery",),
            "forkserver": ("Forked", "die_with_parent", "fork_server"),
            "page": ("PageHandler",),
            "patterns": ("room_of",),
            "process": ("bar_packages", "keep_memory"),
            "reading": ("Reader",),
            "sandbox": ("clean_environment", "data_bytes", "set_limits", "shut_in"),
            "worker": ("build_walls", "limit_worker"),
            "workers": ("WorkerTask", "prepare_workers", "run_workers"),
        },
    )
