"""`python -m krake_airflow.loopback airflow ...`: the command `airflow` with log servers on loopback alone.

Airflow 3.3.2 has no option for the address of a log server: `airflow.utils.serve_logs.core` gives uvicorn an empty
host, for all addresses. Here uvicorn gets 127.0.0.1 instead; a named host is kept. A log server is forked from the
scheduler, and inherits this change. The API server asks the log server by the name of `settings.host_name`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import uvicorn

from krake_airflow.database import compare_milliseconds
from krake_airflow.preload import collect_seldom, preload
from krake_airflow.settings import host_name

_run = uvicorn.run


def run_on_loopback(app: Any, **options: Any) -> None:
    """Run a server as `uvicorn.run` does, on loopback if no host is named."""
    _run(app, **{**options, "host": options.get("host") or host_name()})


def main() -> None:
    """Run `airflow` with the arguments after its name."""
    collect_seldom()
    airflow = import_module("airflow.__main__")  # takes a second, and only the program needs it

    del sys.argv[1]
    uvicorn.run = run_on_loopback
    preload(sys.argv[1])
    if sys.argv[1] == "scheduler":
        compare_milliseconds()
    airflow.main()


if __name__ == "__main__":
    main()
