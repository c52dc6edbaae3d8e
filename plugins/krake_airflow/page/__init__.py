"""The page "Krake" in Airflow's UI: all crawls, one crawl, and a tab on each DAG, run and task of a crawl.

How data flows: `KrakePage` names the app and its places in the UI, and Airflow's API server mounts the app below
`/krake`. The app (`app`) checks the rights of the user, looks at a crawl (`crawls`), makes rows and plots of the status
(`views`), and fills the templates. The page changes nothing: to trigger, clear or mark, people use Airflow's own
buttons.

Every process of Airflow loads this module, and only the API server needs more. So the first request makes the app.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from airflow.plugins_manager import AirflowPlugin

from krake_airflow.settings import TASK_TAB

_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class LaterApp:
    """The app, as ASGI has it; made at the first request."""

    def __init__(self) -> None:
        self._app: Any = None

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Answer a request."""
        if self._app is None:
            from krake_airflow.page.app import make_app  # noqa: PLC0415  # loads FastAPI and Arrow

            self._app = make_app()
        await self._app(scope, receive, send)


_OF_TASK = "/krake/tab?dag_id={DAG_ID}&run_id={RUN_ID}&task_id={TASK_ID}"


_APPS: list[Any] = [{"app": LaterApp(), "url_prefix": "/krake", "name": "Krake"}]
_VIEWS: list[Any] = [
    {"name": "Krake", "href": "/krake/", "destination": "nav", "url_route": "krake"},
    {
        "name": "Krake",
        "href": "/krake/tab?dag_id={DAG_ID}",
        "destination": "dag",
        "url_route": "krake-dag",
    },
    {
        "name": "Krake",
        "href": "/krake/tab?dag_id={DAG_ID}&run_id={RUN_ID}",
        "destination": "dag_run",
        "url_route": "krake-run",
    },
    {"name": "Krake", "href": _OF_TASK, "destination": "task_instance", "url_route": TASK_TAB},
]


class KrakePage(AirflowPlugin):
    """The page as a plug-in of Airflow."""

    name = "krake_page"
    fastapi_apps = _APPS
    external_views = _VIEWS
