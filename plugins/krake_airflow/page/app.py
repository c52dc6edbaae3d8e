"""The app behind the page: the rights of users, and headers that bind the browser.

Airflow leaves an app of a plug-in open, and protects none against forged requests. So each route asks for a login, each
route of a crawl asks for the right to read the DAG of this crawl, and no route changes anything.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Annotated, Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.core_api.security import (
    GetUserDep,
    requires_access_dag,
    requires_authenticated,
)
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from krake_airflow.configs import CRAWL
from krake_airflow.page.crawls import Crawl, Crawls, told_by
from krake_airflow.page.views import STYLE, crawl_view, list_view, task_view

_TEMPLATES = Path(__file__).parent / "templates"
SCRIPT = (_TEMPLATES / "refresh.js").read_text(encoding="utf-8").strip()
_SCRIPT_HASH = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
HEADERS = {
    "content-security-policy": (
        f"default-src 'none'; script-src 'sha256-{_SCRIPT_HASH}'; style-src 'unsafe-inline'; connect-src 'self';"
        " form-action 'self'; frame-ancestors 'self'; base-uri 'none'"
    ),
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "referrer-policy": "same-origin",
}
"""Of every answer, errors too."""
_ENVIRONMENT = Environment(
    loader=FileSystemLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True
)
_Message = MutableMapping[str, Any]
_Send = Callable[[_Message], Awaitable[None]]
router = APIRouter()


class _App(FastAPI):
    """An app with `HEADERS` in all answers, also in answers without a route."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await super().__call__(scope, receive, _with_headers(send))


def make_app(crawls: Crawls | None = None) -> FastAPI:
    """Make the app: each route asks for a login, and none describes the others.

    `crawls`: the crawls to show; None: those of the configs of this Airflow.
    """
    app = _App(
        title="Krake",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        dependencies=[Depends(requires_authenticated())],
    )
    app.state.crawls = crawls or Crawls()
    app.include_router(router)
    return app


def _with_headers(send: _Send) -> _Send:
    async def sending(message: _Message) -> None:
        if message["type"] == "http.response.start":
            given = [pair for pair in message.get("headers", ()) if pair[0].decode().lower() not in HEADERS]
            message["headers"] = [*given, *((name.encode(), value.encode()) for name, value in HEADERS.items())]
        await send(message)

    return sending


def readable_crawl(name: str, request: Request, user: GetUserDep) -> Crawl:
    """Return a crawl that the user may read.

    Raises HTTPException: 403 without the right, whether the crawl is there or not; 404 for no crawl of this name.
    """
    crawls: Crawls = request.app.state.crawls
    crawl = crawls.named(name)
    requires_access_dag("GET", param_dag_id=crawl.dag_id if crawl else f"{name}_{CRAWL}")(request, user)
    if crawl is None:
        raise HTTPException(404, "Krake has no crawl of this name in this Airflow.")
    return crawl


def crawl_of_dag(dag_id: str, request: Request, user: GetUserDep) -> Crawl:
    """Return the crawl that a DAG belongs to. Raises as `readable_crawl` does, and without the right to this DAG."""
    crawl = readable_crawl(dag_id.rpartition("_")[0], request, user)
    requires_access_dag("GET", param_dag_id=dag_id)(request, user)
    return crawl


ReadableCrawl = Annotated[Crawl, Depends(readable_crawl)]
CrawlOfDag = Annotated[Crawl, Depends(crawl_of_dag)]


@router.get("/", response_class=HTMLResponse)
def all_crawls(request: Request, user: GetUserDep) -> HTMLResponse:
    """Show the crawls that the user may read, as `ReadableDagsFilterDep` of Airflow has it for its own app."""
    crawls: Crawls = request.app.state.crawls
    found, bad = crawls.all()
    allowed = get_auth_manager().get_authorized_dag_ids(user=user, method="GET")
    shown = [crawl for crawl in found if crawl.dag_id in allowed]
    wrong = [one for one in bad if one.dag_id in allowed]
    return _page("list.html", **list_view(shown, wrong))


@router.get("/crawl/{name}", response_class=HTMLResponse)
def one_crawl(crawl: ReadableCrawl) -> HTMLResponse:
    """Show a crawl."""
    return _page("crawl.html", **crawl_view(crawl, crawl.look()))


@router.get("/tab", response_class=HTMLResponse)
def tab(crawl: CrawlOfDag, dag_id: str, run_id: str = "", task_id: str = "") -> HTMLResponse:
    """Show the crawl of a DAG; of a run its iterations alone; of a task its curve and its counts."""
    if task_id:
        return _page("task.html", **task_view(crawl, task_id, told_by(dag_id, run_id, task_id)))
    return _page("crawl.html", **crawl_view(crawl, crawl.look(), run_id=run_id))


def _page(template: str, **view: Any) -> HTMLResponse:
    text = _ENVIRONMENT.get_template(template).render(style=Markup(STYLE), script=Markup(SCRIPT), **view)  # noqa: S704
    return HTMLResponse(text)
