"""Modules that parts of Airflow load before they fork.

A process of its own runs each task, and another one parses a DAG file. Each would load again what its parent lacks, and
a small task would spend more time on that than on its work.
A fork takes along one thread only, with whatever locks the others hold. No module here begins a thread, except that of
Arrow's allocator, jemalloc, which handles forks (`pthread_atfork`).
"""

from __future__ import annotations

import gc
from importlib import import_module

from crawl_lib.dataclass import compile_all
from crawl_lib.version import code_digest

_FOR_DAGS = ("krake_airflow.wiring", "airflow.providers.common.compat.assets", "jinja2.ext")
_FOR_TASKS = (
    "airflow.sdk.execution_time.supervisor",
    "airflow.sdk.execution_time.task_runner",
    "airflow.sdk.execution_time.timeout",
    "crawl_lib.engine.duck",
    "crawl_lib.export",
    "crawl_lib.graph",
    "crawl_lib.node.crawl",
    "crawl_lib.usable",
    "encodings.idna",
    "pyarrow.compute",
    "pyarrow.parquet",
)
MODULES = {"scheduler": (*_FOR_DAGS, *_FOR_TASKS), "dag-processor": _FOR_DAGS}
"""By the part of Airflow. The scheduler forks the workers, and each worker its tasks."""


def preload(part: str) -> None:
    """Load the modules that the children of a part of Airflow need, with the methods of dataclasses.

    The digest of Krake's code, which each node's task compares, is made once too, of the code that is loaded here. The
    scheduler also makes Airflow's list of plugins that listen to tasks.
    """
    for name in MODULES.get(part, ()):
        import_module(name)
    if MODULES.get(part):
        compile_all()
        code_digest()
    if _FOR_TASKS[0] in MODULES.get(part, ()):
        import_module("airflow.sdk.listener").get_listener_manager()


def collect_seldom() -> None:
    """Have Python look for garbage less often than it does.

    Airflow loads a million objects that stay: to look through them as often as Python does takes a quarter of the CPU
    of a small crawl.
    """
    gc.set_threshold(200_000, 20, 100)
