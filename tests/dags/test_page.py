"""The page in Airflow's UI: nobody sees what Airflow does not let them see, nothing is changed, and no name is HTML."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from threading import Event, Semaphore
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from airflow import settings
from airflow.models import import_all_models
from airflow.models.base import Base
from airflow.models.dagrun import DagRun
from airflow.models.task_state_store import TaskStateStoreModel
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from sqlalchemy import insert

from crawl_lib.ask import LookUp
from crawl_lib.config import Config
from crawl_lib.errors import ConfigError
from crawl_lib.rounds import commit_iteration, elsewhere, start_iteration
from crawl_lib.rounds.elsewhere import AirflowTask, entry_of
from crawl_lib.stores import open_stores
from tests.dags.crawls import small_config
from tests.dags.hostile_texts import HOSTILE
from tests.rounds.test_start import lay_segment

with (
    warnings.catch_warnings()
):  # Starlette would rather have another library, which Airflow has not
    warnings.simplefilter("ignore")
    from airflow.api_fastapi import app as api_app
    from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from fastapi.testclient import TestClient
    from krake_airflow.configs import crawl_dag_id, read_configs
    from krake_airflow.page import KrakePage, crawls, lookups
    from krake_airflow.page import app as page_app
    from krake_airflow.page.app import make_app
    from krake_airflow.page.behind import Behind
    from krake_airflow.page.crawls import Crawl, Crawls, told_by_nodes
    from krake_airflow.page.style import HEADERS, SCRIPT, STYLE
    from krake_airflow.settings import PROJECT

DAG = "krake_crawl"
TASK = f"/tab?dag_id={DAG}&run_id=r&task_id=iteration_1.crawl.node-0"
CRAWL_ROUTES = ("/crawl/krake", "/crawl/krake/url?url=http://x/", f"/tab?dag_id={DAG}", TASK)


class Choosy(SimpleAuthManager):
    """An auth manager that lets nobody read some DAGs: SimpleAuthManager lets each viewer read all."""

    refused: set[str] = set()  # noqa: RUF012

    def is_authorized_dag(
        self, *, method: Any, user: Any, access_entity: Any = None, details: Any = None
    ) -> bool:
        return details is None or details.id not in self.refused

    def get_authorized_dag_ids(
        self, *, user: Any, method: Any = "GET", session: Any = None
    ) -> set[str]:
        return {DAG, "other_crawl", "broken_config_error"} - self.refused


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The tables of Airflow's database, in a database of these tests alone."""
    import_all_models()
    with pytest.MonkeyPatch.context() as patch:
        place = tmp_path_factory.mktemp("database") / "airflow.db"
        patch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", f"sqlite:///{place}")
        _connect()
        Base.metadata.create_all(settings.engine)
        yield
    _connect()


def _connect() -> None:
    """Let Airflow use the database that its configuration names now."""
    settings.dispose_orm()
    settings.configure_vars()
    settings.configure_orm()


@pytest.fixture
def manager(database: None, monkeypatch: pytest.MonkeyPatch) -> Choosy:
    monkeypatch.setenv("AIRFLOW__API_AUTH__JWT_SECRET", "s" * 64)
    found = Choosy()
    monkeypatch.setattr(api_app._AuthManagerState, "instance", found)
    found.refused = set()
    return found


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """A crawl with a committed iteration, next to a config that is broken."""
    config, path = small_config(tmp_path)
    (path.parent / "broken.yml").write_text("servers: []\n")
    monkeypatch.setenv("KRAKE_CONFIG_PATH", str(path.parent))
    stores = open_stores(config)
    folder = start_iteration(stores, run_id="r", iteration=1).folder
    for node in config.servers:
        lay_segment(stores, folder, node, outcomes={"ok": 7})
    commit_iteration(stores, run_id="r", iteration=1)
    return config


@pytest.fixture
def client(manager: Choosy, config: Config) -> Iterator[TestClient]:
    with TestClient(make_app(), raise_server_exceptions=False) as found:
        yield found


def token(manager: Choosy, role: str = "viewer", *, user: str = "reader") -> dict[str, str]:
    known = SimpleAuthManagerUser(username=user, role=role)
    return {
        "Authorization": f"Bearer {manager.generate_jwt(known, expiration_time_in_seconds=600)}"
    }


def paths(client: TestClient) -> list[str]:
    """Return a path of each route, from the route table."""
    app: Any = client.app
    found = [route.path.replace("{name}", "krake") for route in app.routes]
    assert set(found) == {"/", "/crawl/krake", "/crawl/krake/url", "/tab"}
    return [*found, *CRAWL_ROUTES]


def test_without_a_login_every_route_answers_401(client: TestClient) -> None:
    """Finding 4: an app of a plug-in is open, and so were its `/docs` and `/openapi.json`."""
    for path in paths(client):
        assert client.get(path).status_code == 401, path
        assert client.get(path, headers={"Authorization": "Bearer forged"}).status_code == 403, path
    for path in (
        "/docs",
        "/redoc",
        "/openapi.json",
        "/docs/oauth2-redirect",
        "/crawl",
        "/crawl/a/b",
        "/static/x",
    ):
        assert client.get(path).status_code == 404, path


def test_no_route_changes_anything(client: TestClient, manager: Choosy) -> None:
    for path in paths(client):
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            assert (
                client.request(method, path, headers=token(manager, "admin")).status_code == 405
            ), (method, path)


def test_who_may_not_read_the_dag_sees_nothing_of_the_crawl(
    client: TestClient, manager: Choosy
) -> None:
    assert "crawl/krake" in client.get("/", headers=token(manager)).text
    manager.refused = {DAG}
    for path in CRAWL_ROUTES:
        assert client.get(path, headers=token(manager)).status_code == 403, path
    text = client.get("/", headers=token(manager)).text
    assert "crawl/krake" not in text
    manager.refused = {"unknown_crawl", "broken_config_error"}
    assert client.get("/crawl/unknown", headers=token(manager)).status_code == 403, (
        "nor whether it is there"
    )
    assert client.get("/crawl/other", headers=token(manager)).status_code == 404
    assert "broken_config_error" not in client.get("/", headers=token(manager)).text


def test_a_task_of_another_dag_of_the_crawl_is_shown_to_its_readers(
    client: TestClient, manager: Choosy
) -> None:
    """What a task of `krake_outputs` told was looked for in the DAG that crawls."""
    with create_session() as session:
        run = DagRun(dag_id="krake_outputs", run_id="r", run_type="manual")
        session.add(run)
        session.flush()
        told = TaskStateStoreModel(
            dag_run_id=run.id, dag_id="krake_outputs", run_id="r", task_id="text"
        )
        told.key, told.value = "progress", '{"phase": "made", "counts": {"texts": 1234}}'
        session.add(told)
    path = "/tab?dag_id=krake_outputs&run_id=r&task_id=text"
    shown = Page(client.get(path, headers=token(manager)).text).texts
    assert {"made", "texts", "1,234"} <= set(shown)
    assert "made" not in client.get(path.replace("outputs", "process"), headers=token(manager)).text
    manager.refused = {"krake_outputs"}
    assert client.get(path, headers=token(manager)).status_code == 403


def test_a_task_that_waits_for_its_next_try_is_no_silent_one(
    client: TestClient, config: Config
) -> None:
    """Its new try has told nothing, and `krake status` leaves it out too."""
    node, begun = config.servers[0], datetime(2026, 11, 27, 10, tzinfo=UTC)
    with create_session() as session:
        session.add(DagRun(dag_id=DAG, run_id="waits", run_type="manual"))
        session.flush()
        for iteration, state in enumerate(("success", "scheduled", "queued"), 1):
            row = {
                "id": uuid4(),
                "dag_id": DAG,
                "run_id": "waits",
                "task_id": f"iteration_{iteration}.crawl.{node}",
            }
            more = {
                "operator": "CrawlOperator",
                "pool": "p",
                "pool_slots": 1,
                "state": state,
                "try_number": 1,
            }
            begin = {"start_date": begun + timedelta(hours=iteration)}
            session.execute(insert(TaskInstance).values(**row, **more, **begin))
    told = told_by_nodes(config, config.servers)
    assert {name: entry["task"]["state"] for name, entry in told.items()} == {node: "success"}


def test_the_newest_task_of_a_node_that_rested_is_found(client: TestClient, config: Config) -> None:
    """A few tasks are read first, and all of them could be of the other node."""
    rests, works = config.servers
    begun = datetime(2026, 11, 27, 10, tzinfo=UTC)
    with create_session() as session:
        session.add(DagRun(dag_id=DAG, run_id="long", run_type="manual"))
        session.flush()
        for iteration, node in enumerate((rests, *[works] * 40), 1):
            row = {
                "id": uuid4(),
                "dag_id": DAG,
                "run_id": "long",
                "task_id": f"iteration_{iteration}.crawl.{node}",
            }
            more = {
                "operator": "CrawlOperator",
                "pool": "p",
                "pool_slots": 1,
                "state": "success",
                "try_number": 1,
            }
            begin = {"start_date": begun + timedelta(hours=iteration)}
            session.execute(insert(TaskInstance).values(**row, **more, **begin))
    assert told_by_nodes(config, config.servers).keys() == {rests, works}


def test_configs_are_parsed_again_when_they_change(
    client: TestClient, manager: Choosy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To parse configs was most of what a refresh cost."""
    parsed = list[Path]()
    monkeypatch.setattr(
        crawls, "read_configs", lambda path: parsed.append(path) or read_configs(path)
    )
    for _ in range(5):
        assert "broken_config_error" in client.get("/", headers=token(manager)).text
    assert len(parsed) == 1
    (parsed[0] / "broken.yml").unlink()
    assert "broken_config_error" not in client.get("/", headers=token(manager)).text
    assert len(parsed) == 2


def test_each_answer_binds_the_browser(
    client: TestClient, manager: Choosy, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [
        client.get("/"),
        client.post("/"),
        client.get("/nowhere"),
        client.get("/", headers=token(manager)),
    ]
    monkeypatch.setattr(page_app, "crawl_view", lambda *_, **__: 1 / 0)
    answers.append(client.get("/crawl/krake", headers=token(manager)))
    assert [answer.status_code for answer in answers] == [401, 405, 404, 200, 500]
    for answer in answers:
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    policy = HEADERS["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'sha256-" in policy


class Page(HTMLParser):
    """Tags with their attributes, texts, and what scripts and styles are in a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.raw: dict[str, list[str]] = {"script": [], "style": []}
        self.links: list[str] = []
        self.texts: list[str] = []
        self.tag = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tag = tag
        self.tags.append((tag, tuple(name for name, _ in attrs)))
        self.links += [str(value) for name, value in attrs if name == "href"]

    def handle_endtag(self, tag: str) -> None:
        self.tag = ""

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if self.tag in self.raw:
            self.raw[self.tag].append(data)


def test_the_pages_show_the_crawl(client: TestClient, manager: Choosy) -> None:
    shown = Page(client.get("/", headers=token(manager)).text)
    assert "rests after 1 iterations" in shown.texts
    assert any("broken" in text for text in shown.texts)
    crawl = Page(client.get("/crawl/krake", headers=token(manager)).text)
    assert {"node-0", "14"} <= set(crawl.texts)
    assert f"/dags/{DAG}/runs/r" in crawl.links
    assert crawl.raw["script"] == [SCRIPT]
    other_run = Page(client.get(f"/tab?dag_id={DAG}&run_id=else", headers=token(manager)).text)
    assert f"/dags/{DAG}/runs/r" not in other_run.links
    task = Page(client.get(TASK, headers=token(manager)).text)
    assert "This task has told nothing yet." in task.texts
    assert any("Takes URLs of the node's queue" in text for text in task.texts)


def test_before_the_first_run_it_says_what_to_do(
    manager: Choosy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, path = small_config(tmp_path)
    monkeypatch.setenv("KRAKE_CONFIG_PATH", str(path))
    with TestClient(make_app()) as client:
        text = client.get("/crawl/krake", headers=token(manager)).text
    assert "This crawl has not run yet." in text


@pytest.mark.parametrize("gone", ["the crawl", "the whole store"])
def test_a_store_that_is_away_is_said(
    client: TestClient, manager: Choosy, config: Config, gone: str
) -> None:
    store = Path(config.dfs_primary)
    path = store / config.crawl.directory if gone == "the crawl" else store
    path.rename(path.with_name("gone"))
    path.write_text("no folder")
    answer = client.get("/crawl/krake", headers=token(manager))
    assert answer.status_code == 200
    assert "The file store does not answer" in answer.text
    assert "node-0" in answer.text, "Airflow knows its nodes"


@pytest.mark.parametrize("order", ["fifo", "crawldb"])
def test_krake_status_asks_for_the_same_dag(config: Config, order: str) -> None:
    """`krake status` has no plug-ins of Airflow, and so a rule of its own."""
    other = replace(config, frontier=replace(config.frontier, order=order))
    assert elsewhere._runs_path(other) == f"/api/v2/dags/{crawl_dag_id(other)}/dagRuns"
    assert crawl_dag_id(other) != crawl_dag_id(config) or order == config.frontier.order


def test_a_connection_that_cannot_be_used_leaves_the_other_crawls(
    client: TestClient, manager: Choosy, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One such crawl took the page of all crawls away."""

    def secrets_for(config: Config) -> Any:
        raise ConfigError("Airflow's connection krake_dfs: login: fill in both")

    with monkeypatch.context() as patch:
        patch.setattr(crawls, "secrets_for", secrets_for)
        for path in ("/", "/crawl/krake"):
            answer = client.get(path, headers=token(manager))
            assert answer.status_code == 200, path
            assert "krake_dfs: login: fill in both" in answer.text, path
    assert "rests after 1 iterations" in client.get("/crawl/krake", headers=token(manager)).text


def with_texts(value: Any, text: str) -> Any:
    """Return a status in which each text, and each name of a mapping that a stranger chooses, is another one."""
    if isinstance(value, dict):
        return {name: with_texts(inner, text) for name, inner in value.items()}
    if isinstance(value, list):
        return [with_texts(inner, text) for inner in value]
    return text if isinstance(value, str) else value


def with_names(status: Any, name: str) -> Any:
    """Return a status whose texts, and names of mappings, a stranger chose."""
    found = with_texts(copy.deepcopy(status), name)
    found["iterations"][0]["counts"]["outcomes"] = found["totals"]["outcomes"] = {name: 3}
    found["queues"] = {name: found["queues"]["node-0"]}
    found["queues"][name] |= {
        "hosts": {name: {"urls": 3}},
        "back_off": {"hosts": 3, "until": {name: name}},
    }
    found["pages"] = {
        "rows": 3,
        "status codes": {name: 3},
        "MIME types": {name: 3},
        "hosts": {name: 3},
    }
    return found


def looked_up(name: str) -> LookUp:
    """Return the answer of a child about a page of which a stranger chose everything."""
    why = {
        "url": f"http://host/{name}",
        "answer": name,
        "notes": [name],
        "scope": {"rule": name},
        name: name,
    }
    row = {"title": name, "description": name, name: {name: name}}
    return LookUp(
        {
            "why": why,
            "cat": {"head": name, "source": name, "left_out": 1, "time": "2026", "error": name},
            "text": {"text": name, "left_out": 0, "language": name, "error": name},
            "show": {
                "export": name,
                "row": row,
                "in_links": [{"url": name}],
                "out_links": [{"url": name}],
            },
        },
        ("show",),
    )


@pytest.fixture
def status(client: TestClient, config: Config) -> dict[str, Any]:
    """A status that fills each part of the page."""
    crawl = Crawls().named("krake")
    assert crawl is not None
    found = crawl.look()
    curve = [[0, 0], [5, 3], [10, 9]]
    said = {
        "phase": "fetch",
        "taken": 9,
        "fetched": 3,
        "queue": 5,
        "reason": "r",
        "try": 1,
        "time": 9e9,
    }
    found["queues"]["node-0"] = entry_of(
        AirflowTask("node-0", 1, "t", "run", "running", 1), {**said, "curve": curve}
    )
    found["waiting"] = "waits"
    found["exports"] = [{"name": "export", "pages": 3, "bytes": {"content": 9}, "complete": True}]
    found["iterations"][0] |= {
        "warning": "few",
        "budgets": "limits",
        "late": ["node-1"],
        "bytes": 7,
    }
    return found


def test_no_name_is_html(
    client: TestClient, manager: Choosy, monkeypatch: pytest.MonkeyPatch, status: dict[str, Any]
) -> None:
    """Titles, URLs, hosts, errors, labels, header lines: with any of them the page is built as with harmless ones.

    The browser then has nothing to run: tests/cluster/ui/test_page.py shows that of a real crawl.
    """
    replay = "https://replay.example/krake"
    shown_crawl, asked = Crawls().named("krake"), CRAWL_ROUTES[1]
    assert shown_crawl is not None
    outputs = replace(shown_crawl.config.outputs, replay_url=replay)
    monkeypatch.setattr(shown_crawl, "config", replace(shown_crawl.config, outputs=outputs))
    monkeypatch.setattr(Crawls, "all", lambda self: ([shown_crawl], []))

    def shown(given: str) -> Page:
        found = with_names(status, given)
        monkeypatch.setattr(Crawl, "look", lambda self, wait_s=None: found)
        told = {
            "phase": given,
            "reason": given,
            "error": given,
            "counts": {given: {given: given}},
            "curve": [[0, 0]],
        }
        monkeypatch.setattr(page_app, "told_by", lambda *_: told)
        monkeypatch.setattr(lookups, "look_up", lambda *_, **__: looked_up(given))
        pages = [
            client.get(path, headers=token(manager)) for path in ("/", "/crawl/krake", TASK, asked)
        ]
        assert [page.status_code for page in pages] == [200] * 4
        return Page("".join(page.text for page in pages))

    harmless = shown("harmless")
    assert f"{replay}/2026/http://host/harmless" in harmless.links
    for text in HOSTILE:
        hostile = shown(text)
        assert hostile.tags == harmless.tags, text
        assert hostile.raw["script"] == [SCRIPT] * 4
        assert hostile.raw["style"] == [STYLE] * 4
        assert all(link.startswith(("/", f"{replay}/")) or not link for link in hostile.links)


def test_later_tries_are_named(
    client: TestClient, manager: Choosy, monkeypatch: pytest.MonkeyPatch, status: dict[str, Any]
) -> None:
    """A failed try that Airflow repeats looked like the end of its task."""
    for state, number, phase, words in (
        ("up_for_retry", 1, "failed", "try 1 failed, and Airflow tries again, no disk"),
        ("running", 2, "fetch", "try 2, no disk"),
        ("running", 1, "fetch", "no disk"),
    ):
        said = {"phase": phase, "error": "no disk", "try": number, "time": 9e9}
        found = {
            **status,
            "queues": {
                "node-0": entry_of(AirflowTask("node-0", 1, "t", "run", state, number), said)
            },
        }
        monkeypatch.setattr(Crawl, "look", lambda self, wait_s=None, found=found: found)
        assert words in Page(client.get("/crawl/krake", headers=token(manager)).text).texts


def test_a_look_up_for_another_site_is_refused(
    client: TestClient, manager: Choosy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look-up costs a process, and a browser sends the cookie for other sites too."""
    monkeypatch.setattr(lookups, "look_up", lambda *_, **__: looked_up("x"))
    codes = {}
    for site in ("cross-site", "same-site", "same-origin", "none", ""):
        headers = token(manager) | ({"sec-fetch-site": site} if site else {})
        codes[site] = client.get(CRAWL_ROUTES[1], headers=headers).status_code
    assert codes == {"cross-site": 403, "same-site": 403, "same-origin": 200, "none": 200, "": 200}


def test_a_user_looks_one_url_up_at_a_time_and_a_process_two(
    client: TestClient, manager: Choosy, monkeypatch: pytest.MonkeyPatch
) -> None:
    going_on, codes = Event(), list[tuple[str, int]]()
    begun = Semaphore(0)

    def look_up(*_: Any, **__: Any) -> LookUp:
        begun.release()
        going_on.wait()
        return looked_up("x")

    def ask(user: str) -> None:
        answer = client.get(CRAWL_ROUTES[1], headers=token(manager, user=user))
        codes.append((user, answer.status_code))
        assert answer.status_code == 200 or int(answer.headers["retry-after"]) > 0

    monkeypatch.setattr(lookups, "look_up", look_up)
    with ThreadPoolExecutor(2) as pool:
        slow = [pool.submit(ask, user) for user in ("a", "b")]
        for _ in slow:
            begun.acquire()
        ask("a")
        ask("c")
        going_on.set()
        for one in slow:
            one.result()
    ask("c")
    assert codes[:2] == [("a", 429), ("c", 429)]
    assert sorted(codes[2:4]) == [("a", 200), ("b", 200)]
    assert codes[4:] == [("c", 200)]


def test_what_a_look_up_did_not_get_to_is_said(
    client: TestClient, manager: Choosy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        lookups, "look_up", lambda *_, **__: LookUp({}, ("why", "cat", "text", "show"))
    )
    text = client.get(CRAWL_ROUTES[1], headers=token(manager)).text
    assert "Not reached within 5 s: where the URL is. `krake why http://x/` takes its time." in text
    assert text.count("Not reached") == 4


def test_a_server_that_hangs_delays_no_page(
    client: TestClient, manager: Choosy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request of a page waited for each time limit of a file store: up to 10 s a name server."""
    going_on = Event()
    monkeypatch.setattr(crawls, "_WAIT_S", 0.01)

    def status(*_: Any, **__: Any) -> dict[str, Any]:
        going_on.wait()
        return {"queues": {}}

    monkeypatch.setattr(crawls.CrawlReader, "status", status)
    for path in ("/", "/crawl/krake"):
        assert "does not answer" in client.get(path, headers=token(manager)).text, path
    going_on.set()


ENDS = """
import duckdb
from krake_airflow.page.behind import Behind

def read():
    for _ in range(40):
        sums = duckdb.connect().execute("select sum(a) from range(300000) t(a) group by a % 1000")
        sums.to_arrow_table().to_pylist()

Behind(read, 1.0).get(0.05)
"""


def test_a_server_that_ends_during_a_read_ends_well() -> None:
    """A thread that is within DuckDB when Python ends would abort the process."""
    paths = {**os.environ, "PYTHONPATH": str(PROJECT / "plugins")}
    ended = subprocess.run(
        [sys.executable, "-c", ENDS], env=paths, capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_refresh_brings_what_changes_alone(client: TestClient, manager: Choosy) -> None:
    whole = client.get("/crawl/krake", headers=token(manager)).text
    part = client.get("/crawl/krake", headers={**token(manager), "part": "1"}).text
    assert not {tag for tag, _ in Page(part).tags} & {"html", "form", "script", "style", "main"}
    assert [tag for tag in Page(whole).tags if tag in Page(part).tags].count(
        ("dl", ("class",))
    ) == 1
    assert len(part) < len(whole) / 2


def test_links_stay_below_the_path_of_the_api_server(client: TestClient, manager: Choosy) -> None:
    """Airflow may be at `https://example.org/airflow`: `/dags/...` left it."""
    with TestClient(make_app(), root_path="/airflow/krake") as below:
        links = Page(below.get("/crawl/krake", headers=token(manager)).text).links
    assert links
    assert all(link.startswith("/airflow/") for link in links if link)
    assert f"/airflow/dags/{DAG}/runs/r" in links


def test_all_crawls_are_looked_at_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of ten crawls on a store without an answer took ten waits."""
    waits = list[float]()
    crawl = SimpleNamespace(
        begin=lambda: waits.append(-1.0), look=lambda wait_s: waits.append(wait_s) or {}
    )
    times = iter((100.0, 100.5, 109.0))
    monkeypatch.setattr(crawls, "time", SimpleNamespace(monotonic=lambda: next(times)))
    monkeypatch.setattr(crawls, "_WAIT_S", 2.0)
    crawls.look_at_all([crawl, crawl])  # type: ignore[list-item]
    assert waits == [-1.0, -1.0, 1.5, 0]


class TestBehind:
    """A value that a thread reads."""

    def test_a_reader_that_blocks_leaves_the_last_value(self) -> None:
        turns = [Event(), Event()]
        values = iter((1, 2))

        def read() -> int:
            value = next(values)
            turns[value - 1].wait()
            return value

        found = Behind(read, keep_s=-1.0)
        assert found.get(0.0) is None
        turns[0].set()
        first = found.get(60.0)
        assert first is not None
        assert first.value == 1
        again = found.get(0.0)
        assert again is not None
        assert again.value == 1
        turns[1].set()
        later = found.get(60.0)
        assert later is not None
        assert later.value == 2

    def test_a_partial_value_is_read_again_by_the_same_thread(self) -> None:
        values, whole = iter((1, 2, 3)), Event()

        def read() -> int:
            value = next(values)
            if value == 3:
                whole.set()
            return value

        found = Behind(read, keep_s=600.0, is_partial=lambda value: value < 3)
        assert found.get(60.0)
        assert whole.wait(60.0)

    def test_an_error_of_the_thread_is_raised(self) -> None:
        found: Behind[float] = Behind(lambda: 1 / 0, keep_s=600.0)
        with pytest.raises(ZeroDivisionError):
            found.get(60.0)


def test_the_script_and_the_plug_in_are_small(manager: Choosy) -> None:
    assert len(SCRIPT) < 1_000
    assert "</" not in SCRIPT
    assert [view["destination"] for view in KrakePage.external_views] == [
        "nav",
        "dag",
        "dag_run",
        "task_instance",
    ]
