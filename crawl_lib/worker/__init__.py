"""The processes that fetch: how they are started and confined, and what one does with a page."""

from typing import TYPE_CHECKING

from crawl_lib.lazy import loads_later

if TYPE_CHECKING:
    from crawl_lib.worker.page import PageHandler
    from crawl_lib.worker.worker import WorkerTask
    from crawl_lib.worker.workers import run_workers
else:
    # `process` bars packages before anything else is loaded.
    __getattr__ = loads_later(
        __name__, {"page": ("PageHandler",), "worker": ("WorkerTask",), "workers": ("run_workers",)}
    )

__all__ = [
    "PageHandler",
    "WorkerTask",
    "run_workers",
]
