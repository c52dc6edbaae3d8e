"""The app behind the page: the rights of users, and headers that bind the browser.

Airflow does not protect an app of a plug-in, not even against forged requests. So each route asks for a login, each
route of a crawl asks for the right to read the DAG of this crawl, and no route changes anything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Annotated, Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.core_api.security import (
    GetUserDep,
    requires_access_dag,
    requires_authenticated,
)
from fastapi import APIRouter, Depends, FastAPI, Header, HTTPException, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.exceptions import HTTPException as StarletteHTTPException

from crawl_lib.errors import BusyError, ConfigError
from krake_airflow.configs import CRAWL
from krake_airflow.page.crawls import Crawl, Crawls, told_by
from krake_airflow.page.lookups import LookUps
from krake_airflow.page.style import HEADERS, SCRIPT, STYLE, TEMPLATES
from krake_airflow.page.table import Links
from krake_airflow.page.urlview import url_view
from krake_airflow.page.views import crawl_view, list_view, task_view

_ENVIRONMENT = Environment(
    loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True
)
_Message = MutableMapping[str, Any]
_Send = Callable[[_Message], Awaitable[None]]
router = APIRouter()


class _App(FastAPI):
    """An app with `HEADERS` in all answers, also in answers without a route."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await super().__call__(scope, receive, _with_headers(send))


def make_app(crawls: Crawls | None = None) -> FastAPI:
    """Make the app: each route asks for a login, and no route describes the others.

    `crawls`: the crawls to show; None: the crawls of this Airflow's configs.
    """
    app = _App(
        title="Krake",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        dependencies=[Depends(requires_authenticated())],
    )
    app.state.crawls, app.state.lookups = crawls or Crawls(), LookUps()
    app.add_exception_handler(StarletteHTTPException, _failed)
    app.add_exception_handler(RequestValidationError, _failed)
    app.include_router(router)
    return app


def _with_headers(send: _Send) -> _Send:
    async def sending(message: _Message) -> None:
        if message["type"] == "http.response.start":
            given = [
                pair
                for pair in message.get("headers", ())
                if pair[0].decode().lower() not in HEADERS
            ]
            message["headers"] = [
                *given,
                *((name.encode(), value.encode()) for name, value in HEADERS.items()),
            ]
        await send(message)

    return sending


def readable_crawl(name: str, request: Request, user: GetUserDep) -> Crawl:
    """Return a crawl that the user may read.

    Raises HTTPException: 403 without the right, whether the crawl exists or not; 404 if no crawl has this name.
    """
    crawls: Crawls = request.app.state.crawls
    crawl = crawls.named(name)
    requires_access_dag("GET", param_dag_id=crawl.dag_id if crawl else f"{name}_{CRAWL}")(
        request, user
    )
    if crawl is None:
        raise HTTPException(404, "Krake has no crawl of this name in this Airflow.")
    return crawl


def crawl_of_dag(dag_id: str, request: Request, user: GetUserDep) -> Crawl:
    """Return the crawl of a DAG. Raises as `readable_crawl` does, and without the right to this DAG."""
    crawl = readable_crawl(dag_id.rpartition("_")[0], request, user)
    requires_access_dag("GET", param_dag_id=dag_id)(request, user)
    return crawl


def require_own_site(sec_fetch_site: Annotated[str, Header()] = "none") -> None:
    """Raise HTTPException 403 if another site makes a browser ask: each look-up costs a process."""
    if sec_fetch_site not in {"same-origin", "none"}:
        raise HTTPException(
            403, "Another site asked for this look-up. Ask on the page of the crawl."
        )


ReadableCrawl = Annotated[Crawl, Depends(readable_crawl)]
CrawlOfDag = Annotated[Crawl, Depends(crawl_of_dag)]
AskedUrl = Annotated[str, Query(min_length=1, max_length=10_000)]


@router.get("/", response_class=HTMLResponse)
def all_crawls(request: Request, user: GetUserDep) -> HTMLResponse:
    """Show the crawls that the user may read, chosen as by Airflow's `ReadableDagsFilterDep`."""
    crawls: Crawls = request.app.state.crawls
    found, bad = crawls.all()
    allowed = get_auth_manager().get_authorized_dag_ids(user=user, method="GET")
    shown = [crawl for crawl in found if crawl.dag_id in allowed]
    wrong = [one for one in bad if one.dag_id in allowed]
    return _page(request, "list.html", **list_view(shown, wrong, _links(request)))


@router.get("/crawl/{name}", response_class=HTMLResponse)
def one_crawl(request: Request, crawl: ReadableCrawl) -> HTMLResponse:
    """Show a crawl."""
    return _page(request, "crawl.html", **crawl_view(crawl, crawl.look(), _links(request)))


@router.get("/tab", response_class=HTMLResponse)
def tab(
    request: Request, crawl: CrawlOfDag, dag_id: str, run_id: str = "", task_id: str = ""
) -> HTMLResponse:
    """Show the crawl of a DAG; of a run its iterations alone; of a task its curve and its counts."""
    links = _links(request)
    if task_id:
        return _page(
            request,
            "task.html",
            **task_view(crawl, task_id, told_by(dag_id, run_id, task_id), links),
        )
    return _page(request, "crawl.html", **crawl_view(crawl, crawl.look(), links, run_id=run_id))


@router.get(
    "/crawl/{name}/url", response_class=HTMLResponse, dependencies=[Depends(require_own_site)]
)
def one_url(
    request: Request, crawl: ReadableCrawl, user: GetUserDep, url: AskedUrl
) -> HTMLResponse:
    """Show the answers of `krake why`, `cat` and `show` for a URL.

    Raises HTTPException: 429 if this user looks up another URL, or others use all look-ups.
    """
    lookups: LookUps = request.app.state.lookups
    if isinstance(crawl.secrets, ConfigError):
        raise HTTPException(503, str(crawl.secrets))
    try:
        found = lookups.of(user.get_id(), crawl.config, crawl.secrets, url.strip())
    except BusyError as error:
        raise HTTPException(429, str(error), {"retry-after": str(error.retry_after_s)}) from error
    return _page(
        request, "url.html", refreshes=False, **url_view(crawl, url.strip(), found, _links(request))
    )


async def _failed(request: Request, error: Exception) -> HTMLResponse:
    """Show an error as a page. The page does not repeat the request."""
    status, text, headers = 400, "The address is not complete.", None
    if isinstance(error, StarletteHTTPException):
        status, text, headers = error.status_code, str(error.detail), error.headers
    title = f"{status} {HTTPStatus(status).phrase}"
    page = _page(request, "error.html", refreshes=False, title=title, text=text)
    page.status_code = status
    page.headers.update(headers or {})
    return page


def _links(request: Request) -> Links:
    return Links(request.scope.get("root_path", "").rstrip("/"))


def _page(request: Request, template: str, *, refreshes: bool = True, **view: Any) -> HTMLResponse:
    """Fill a template; a request of the script gets only the changing part."""
    look = {"style": Markup(STYLE), "script": Markup(SCRIPT)}  # noqa: S704  # files of ours
    part = refreshes and "part" in request.headers
    home = _links(request).home
    text = _ENVIRONMENT.get_template(template).render(
        **look, refreshes=refreshes, part=part, home=home, **view
    )
    return HTMLResponse(text)
