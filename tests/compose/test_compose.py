"""`docker-compose.yml`, started for real: what it promises of networks and rights, and what it survives.

The tests share one stack and follow each other: two runs of a crawl, with losses in between.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import yaml

from tests.compose import docker
from tests.compose.stack import HOSTS, SEEDED, Stack

_ALL = yaml.safe_load((docker.ROOT / "docker-compose.yml").read_text())["services"]
SERVICES = {name: service for name, service in _ALL.items() if "profiles" not in service}
"""The services that `docker compose up` starts."""
NODES = ["node-a", "node-b", "node-c"]
LASTING = sorted(set(SERVICES) - {"set-up"})
HDFS = ["namenode", "datanode-1", "datanode-2"]
KEY_SERVERS = ["mariadb-a", "mariadb-b", "mariadb-c"]
PORTS = {
    "postgres": 5432,
    "api-server": 8080,
    "gate": 8080,
    "scheduler": 8974,
    "search": 8090,
    "namenode": 9870,
    **dict.fromkeys(HDFS[1:], 9864),
    **dict.fromkeys(KEY_SERVERS, 3306),
}
"""Where each service that listens does so."""
SEEDS = "/opt/krake/seeds/pages.txt"
pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def stack(unstarted: Stack) -> Stack:
    """All services, and the web."""
    unstarted.up()
    unstarted.serve_web()
    return unstarted


# -- rights


@pytest.mark.parametrize("name", LASTING)
def test_a_container_has_the_rights_and_limits_of_the_file(stack: Stack, name: str) -> None:
    stack.check_rights(name, is_hardened=name not in HDFS)


def test_no_container_but_hdfs_can_use_sudo(stack: Stack) -> None:
    for name in ("node-a", "api-server", "postgres"):
        assert "no new privileges" in stack.exec(name, "sudo", "true", check=False)


# -- networks


@pytest.mark.parametrize(
    "source",
    [
        "node-a",
        "batch",
        "gate",
        "api-server",
        "scheduler",
        "search",
        "postgres",
        "mariadb-a",
        *HDFS[:2],
    ],
)
def test_a_container_reaches_the_networks_that_it_shares_and_no_other(
    stack: Stack, source: str
) -> None:
    """By name, and by each address that another container has on any network."""
    own = set(SERVICES[source]["networks"])
    expected, places = set(), []
    for name in sorted(set(PORTS) - {source}):
        shared = own & set(SERVICES[name]["networks"])
        found = {f"{name}:{PORTS[name]}": bool(shared)}
        for network in SERVICES[name]["networks"]:
            found[f"{stack.address(name, network)}:{PORTS[name]}"] = network in own
        expected |= {place for place, is_shared in found.items() if is_shared}
        places += found
    assert stack.reached(source, places) == expected


def test_only_nodes_reach_the_outside_and_none_the_published_port(stack: Stack) -> None:
    web = f"{stack.web_address}:8000"
    published = f"{stack.gateway('outside')}:{stack.port}"
    for name in NODES:
        assert stack.reached(name, [web, published]) == {web}
    for name in ("batch", "gate", "namenode", "mariadb-a", "scheduler", "search", "postgres"):
        assert stack.reached(name, [web, published]) == set()


ASK = """
import http.client, json, sys
from airflow.api_fastapi.auth.tokens import JWTGenerator
from airflow.configuration import conf
host, *asked = json.load(sys.stdin)
audience = conf.get("api_auth", "jwt_audience", fallback="apache-airflow")
secret = conf.get("api_auth", "jwt_secret")
token = JWTGenerator(secret_key=secret, valid_for=600, audience=audience).generate({"sub": "admin", "role": "ADMIN"})
found = {}
for method, path in asked:
    connection = http.client.HTTPConnection(host, 8080, timeout=300)
    body = json.dumps({"is_paused": True}) if method == "PATCH" else None
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    connection.putrequest(method, path, skip_host=True)
    connection.putheader("Host", "api-server")
    for name, value in headers.items():
        connection.putheader(name, value)
    if body:
        connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body.encode() if body else None)
    found[f"{method} {path}"] = connection.getresponse().status
print("RESULT" + json.dumps(found))
"""
"""Signs a token of Airflow's admin with what the container knows, and asks with it."""


def asked_as_admin(
    stack: Stack, service: str, host: str, *asked: tuple[str, str]
) -> dict[str, int]:
    done = stack.exec(
        service,
        "bash",
        "-c",
        f"cat > /tmp/asked && python -c '{ASK}' < /tmp/asked",
        stdin=json.dumps([host, *asked]),
    )
    answers: dict[str, int] = json.loads(done.split("RESULT")[1].splitlines()[0])
    return answers


ADMIN = "/api/v2/connections"
SPELLINGS = [
    ADMIN,
    f"/execution/..{ADMIN}",
    f"/execution/%2e%2e{ADMIN}",
    f"/execution/..%2f{ADMIN[1:]}",
    f"/execution/%252e%252e{ADMIN}",
    f"/edge_worker/v1/../..{ADMIN}",
    f"/execution{ADMIN}",
    f"/{ADMIN}",
    f"http://api-server:8080{ADMIN}",
    f"http://api-server:8080/execution/..{ADMIN}",
    "/edge_worker/ui/worker",
    "/edge_worker/v1/../ui/worker",
    "/auth/token",
    "/",
]


def test_a_worker_with_its_secret_is_no_admin_of_airflow(stack: Stack) -> None:
    """The secret signs any token, as the API server shows where it is asked itself."""
    itself = asked_as_admin(
        stack, "api-server", "localhost", ("GET", ADMIN), ("GET", "/edge_worker/ui/worker")
    )
    assert set(itself.values()) == {200}
    wanted = [("GET", path) for path in SPELLINGS] + [("PATCH", "/api/v2/dags/krake_crawl")]
    answers = asked_as_admin(stack, "node-a", "gate", *wanted)
    assert {text: status for text, status in answers.items() if status < 400} == {}
    assert answers[f"GET {ADMIN}"] == answers["PATCH /api/v2/dags/krake_crawl"] == 403


def test_a_worker_reaches_the_api_of_workers(stack: Stack) -> None:
    answers = asked_as_admin(
        stack, "node-a", "gate", ("GET", "/edge_worker/v1/health"), ("GET", "/execution/health")
    )
    assert answers["GET /edge_worker/v1/health"] == 200
    assert answers["GET /execution/health"] not in {403, 502, 503}


# -- losses


@dataclass
class Troubled:
    """A run of two iterations that lost much in the middle of the first one.

    `restarts`: of the container whose first process was killed. `stayed`: the state of that which `docker kill` ended.
    """

    state: str
    tasks: dict[str, tuple[str, int]]
    restarts: int
    stayed: str
    commit_s: float
    requests: int


@pytest.fixture(scope="module")
def troubled(stack: Stack) -> Troubled:
    """The run, with all that was lost in it: a node, a datanode, a key server and the API server, and another node."""
    run = stack.api.trigger(seeds=SEEDS, iterations=2)
    stack.wait("the nodes fetch", lambda: stack.requests() > 2 * len(HOSTS))
    stack.kill_first_process("node-a")
    stack.signal("kill", "datanode-2", "mariadb-b")
    stack.signal("restart", "api-server")
    stack.wait("the API server is back", lambda: stack.health("api-server") == "healthy")
    stack.signal("kill", "node-b")
    stayed = str(stack.inspect("node-b")["State"]["Status"])
    stack.signal("start", "node-b")
    first = next(
        task
        for task in stack.api.tasks(run)
        if task.startswith("iteration_1.") and "commit" in task
    )
    stack.wait("the first iteration is over", lambda: stack.api.tasks(run)[first][0] == "success")
    began, ended = stack.api.times(run)[first]
    stack.up()
    state = stack.api.wait_end(run)
    restarts = int(stack.inspect("node-a")["RestartCount"])
    return Troubled(state, stack.api.tasks(run), restarts, stayed, ended - began, stack.requests())


def test_a_run_ends_well_though_servers_and_nodes_are_lost_in_it(troubled: Troubled) -> None:
    bad = {
        task: state
        for task, state in troubled.tasks.items()
        if state[0] not in ("success", "skipped")
    }
    assert (troubled.state, bad) == ("success", {})
    assert troubled.requests >= len(HOSTS) * SEEDED


def test_a_node_whose_first_process_is_killed_comes_back_once(troubled: Troubled) -> None:
    """It began 12 times in three minutes, since it could not write its pid file.

    Airflow refuses the name of the node for half a minute, in which each start ends after some seconds. Docker waits
    twice as long before each start, from 0.1 s on, so half a minute has room for eight starts at most.
    """
    assert 1 <= troubled.restarts <= 8


def test_a_container_that_docker_kill_ended_stays_down_until_it_is_started(
    troubled: Troubled,
) -> None:
    assert troubled.stayed == "exited"


def test_no_task_of_a_node_is_lost_by_a_restart_of_the_api_server(troubled: Troubled) -> None:
    """Node c lost nothing else: its one try is enough."""
    tries = {
        task: tried
        for task, (_, tried) in troubled.tasks.items()
        if "node-c" in task or "node_c" in task
    }
    assert tries
    assert max(tries.values()) <= 1


def test_a_dead_datanode_delays_a_commit_little(troubled: Troubled) -> None:
    """It took 114 s in place of 6."""
    assert troubled.commit_s < 60


@pytest.mark.parametrize("name", LASTING)
def test_each_service_is_healthy(stack: Stack, troubled: Troubled, name: str) -> None:
    assert stack.inspect("set-up")["State"]["ExitCode"] == 0
    stack.wait(f"{name} is healthy", lambda: stack.health(name) == "healthy", 300)


def test_workers_write_no_line_each_second(stack: Stack, troubled: Troubled) -> None:
    for name in NODES:
        assert "job is running" not in docker.run("docker", "logs", stack.container(name))


def test_all_services_restart(stack: Stack, troubled: Troubled) -> None:
    """As config/compose.yml says after a change; each tmpfs has the mode of the file again."""
    stack.compose("restart", timeout_s=600)
    for name in LASTING:
        for mount in SERVICES[name].get("tmpfs", []):
            folder, _, mode = mount.partition(":mode=")
            found = stack.exec(name, "stat", "--format", "%a", folder).strip()
            assert found == (mode or "1777"), (name, folder)
    stack.wait("the API server is back", lambda: stack.health("api-server") == "healthy")
    stack.api.sign_in("admin", stack.environment["KRAKE_WEB_PASSWORD"])


def test_the_search_page_shows_pages_of_the_index_and_their_copies(
    stack: Stack, troubled: Troubled
) -> None:
    """It finds a new version by itself, copies that to its volume, and has no secret."""

    def made() -> bool:
        with suppress(
            AssertionError
        ):  # HDFS was restarted, and takes no file until it has left its safe mode
            stack.exec("batch", "krake", "index", "update")
            return True
        return False

    stack.wait("the index is made", made, 300)
    page = f"http://127.0.0.1:{stack.search_port}"

    def found() -> bool:
        return httpx.get(f"{page}/healthz", timeout=60).status_code == 200

    stack.wait("the search page has an index", found, 120)
    answer = httpx.get(f"{page}/api/search?q=site:site-1.example", timeout=60).json()
    assert answer["total"] > 0
    first = answer["results"][0]
    copy = httpx.get(f"{page}/cached/{first['key']}/page", timeout=60)
    assert (copy.status_code, f'<base href="{first["url"]}"' in copy.text) == (200, True)
    assert (
        httpx.get(f"{page}/?q=x", headers={"Host": "evil.example"}, timeout=60).status_code == 400
    )
    assert "krake" in stack.exec("search", "ls", "/var/lib/krake/search")
    assert "PASSWORD" not in stack.exec("search", "env")


@pytest.fixture(scope="module")
def made_again(stack: Stack, troubled: Troubled) -> int:
    """The stack after `down` and `up -d`, and a run of one iteration more; returns its requests."""
    stack.down()
    stack.up()
    stack.serve_web()
    run = stack.api.trigger(
        seeds="\n".join(f"http://{host}:8000/0" for host in HOSTS), iterations=1
    )
    assert stack.api.wait_end(run) == "success"
    return stack.requests()


def test_a_crawl_goes_on_after_down_and_up(
    stack: Stack, made_again: int, troubled: Troubled
) -> None:
    """It fetches the new page of each host, and nothing that it had before."""
    robots = len(HOSTS)
    assert len(HOSTS) <= made_again <= len(HOSTS) + robots


@pytest.mark.parametrize("name", ["batch", "node-a"])
def test_fsck_is_clean(stack: Stack, made_again: int, name: str) -> None:
    """On a node it called each good export damaged, for want of scratch room."""
    text = stack.exec(name, "krake", "fsck", "--json", check=False)
    report, _ = json.JSONDecoder().raw_decode(text[text.index("{") :])
    assert [finding for finding in report["findings"] if finding["severity"] != "note"] == []
    assert report["checked"]["exports"] >= 2


def test_results_can_be_copied_out(stack: Stack, made_again: int, tmp_path: Path) -> None:
    """As docs/cluster.md says."""
    stack.exec("namenode", "hdfs", "dfs", "-get", "/export", "/tmp/export")
    docker.run("docker", "cp", f"{stack.container('namenode')}:/tmp/export", str(tmp_path))
    assert {path.name for path in tmp_path.glob("export/*/*")} >= {
        "content",
        "offsets",
        "urlmapping",
        "webgraph",
    }


def test_compose_leaves_one_node_by_the_small_file(stack: Stack) -> None:
    files = (
        "--file",
        str(docker.ROOT / "docker-compose.yml"),
        "--file",
        str(docker.ROOT / "docker-compose.small.yml"),
    )
    environment = ("--env-file", str(stack.directory / ".env"))
    left = docker.run("docker", "compose", *environment, *files, "config", "--services").split()
    assert set(left) == set(SERVICES) - {"node-b", "node-c", "mariadb-b", "mariadb-c"}
