"""A process that has loaded Airflow, which costs each six seconds of CPU: the tests fork theirs from it."""

from __future__ import annotations

import asyncio
import os
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
from krake_airflow.settings import PROJECT, environment

from tests.forks import Forks

LOADED = (
    "tests.loaded",
    "krake_airflow.operators",
    "krake_airflow.run",
    "airflow.dag_processing.bundles.local",
    "airflow.dag_processing.collection",
    "airflow.dag_processing.dagbag",
    "airflow.models.serialized_dag",
    "airflow.utils.db",
)


class AirflowForks(Forks):
    """What forks programs with Airflow. `home`: their `KRAKE_AIRFLOW_HOME`, so that one database is made for all."""

    def __init__(self, home: Path) -> None:
        self.home = home
        (home / "ui").mkdir(parents=True)
        variables = {**os.environ, **environment(home / "ui", PROJECT / "config" / "demo.yml")}
        super().__init__("from tests.dags.loaded import load; load()", variables)


def load() -> None:
    """Import Airflow, and make its server of tasks, but for the thread that it runs in."""
    for name in LOADED:
        import_module(name)
    api = import_module("airflow.sdk.execution_time.supervisor").in_process_api_server()
    asyncio.run(_ask(api.app))


async def _ask(app: Any) -> None:
    """Make any request: before the first one, the server makes the forms of all its versions."""
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app)) as client:
        await client.get("http://localhost/nowhere")
