"""Modules that parts of Airflow load before they fork.

Each task runs in its own process, and another process parses a DAG file. Each would load modules that its parent lacks:
a small task would take longer for loading than for work.
A fork takes along one thread only, with the locks of the other threads. No module here begins a thread, except for
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
"""The modules by part of Airflow. The scheduler forks the workers, and each worker its tasks."""


def preload(part: str) -> None:
    """Load the modules for the children of a part of Airflow, with the methods of dataclasses.

    The digest of the loaded code of Krake, which each node's task compares, is made once too. The scheduler also makes
    Airflow's list of plugins that listen to tasks.
    """
    for name in MODULES.get(part, ()):
        import_module(name)
    if MODULES.get(part):
        compile_all()
        code_digest()
    if _FOR_TASKS[0] in MODULES.get(part, ()):
        import_module("airflow.sdk.listener").get_listener_manager()


def collect_seldom() -> None:
    """Let Python look for garbage less often.

    Airflow loads a million lasting objects: Python's usual checks of them take a quarter of the CPU of a small crawl.
    """
    gc.set_threshold(200_000, 20, 100)
