"""The profile `realtime` of docker-compose.yml, started for real: networks, certificates, and fetches.

The tests share one stack and follow each other. Fetchers reach the web and nothing of `storage`, and fetch all pages.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import httpx
import pytest
import yaml

from crawl_lib.realtime import Client
from crawl_lib.realtime.answers import Page
from tests.compose import docker
from tests.compose.stack import HOSTS, UP_S, Stack

SERVICES = yaml.safe_load((docker.ROOT / "docker-compose.yml").read_text())["services"]
PROFILE = ("--profile", "realtime")
FETCHERS = {"fetcher-1": "live-1", "fetcher-2": "live-2"}
"""Names of the fetchers, by service."""
LASTING = ["realtime", *FETCHERS]
OWNER = "50000:0"
"""User and group of the image."""
PORTS = {
    "postgres": (5432,),
    "namenode": (8020, 9870),
    "datanode-1": (9864, 9866, 9867),
    "datanode-2": (9864, 9866, 9867),
    "mariadb-a": (3306,),
    "mariadb-b": (3306,),
    "mariadb-c": (3306,),
    "realtime": (8095,),
    "fetcher-1": (8096,),
    "fetcher-2": (8096,),
}
"""All ports of the profile's services, and of the services that the profile depends on."""
URLS = [f"http://{host}:8000/{page}" for host in HOSTS for page in range(2)]
pytestmark = pytest.mark.timeout(1800)


@dataclass
class Live:
    """The started profile. `token`: may do everything."""

    stack: Stack
    token: str

    @property
    def url(self) -> str:
        """The service at its published port."""
        return f"http://127.0.0.1:{self.stack.live_port}"

    def parts(self) -> list[int]:
        """Return how many parts each fetcher has, as the service tells Prometheus."""
        headers = {"Authorization": f"Bearer {self.token}"}
        lines = httpx.get(f"{self.url}/metrics", headers=headers, timeout=60).text.splitlines()
        told = dict(
            line.rsplit(" ", 1) for line in lines if line.startswith("krake_realtime_parts{")
        )
        return [
            int(float(told.get(f'krake_realtime_parts{{fetcher="{name}"}}', "0")))
            for name in FETCHERS.values()
        ]


@pytest.fixture(scope="module")
def live(unstarted: Stack) -> Live:
    """The service, its fetchers and a web for these."""
    stack = unstarted
    # Without `--no-deps` each command would run `set-up` again.
    stack.compose(*PROFILE, "up", "--detach", "--no-build", "certificates", timeout_s=UP_S)
    assert docker.run("docker", "wait", stack.container("certificates")).strip() == "0"
    make_token = ("bash", "-c", "krake realtime tokens --add chat --rights submit read metrics")
    token = stack.compose(*PROFILE, "run", "--rm", "--no-deps", "realtime", *make_token).split()[-1]
    stack.compose(*PROFILE, "up", "--detach", "--no-build", "--no-deps", *LASTING)
    stack.serve_web("web")
    for name in LASTING:
        stack.wait(f"{name} is healthy", lambda name=name: stack.health(name) == "healthy", 300)
    return Live(stack, token)


@pytest.mark.parametrize("name", LASTING)
def test_a_container_has_the_rights_and_limits_of_the_file(live: Live, name: str) -> None:
    live.stack.check_rights(name, is_hardened=True)


def listed(live: Live, service: str, folder: str) -> dict[str, str]:
    """Return owner and mode of each file in a folder, by name."""
    lines = live.stack.exec(service, "find", folder, "-printf", "%P %U:%G %m\n").splitlines()
    return dict(line.split(" ", 1) for line in lines)


def test_each_side_has_its_own_certificates_and_no_other(live: Live) -> None:
    made = listed(live, "realtime", "/var/lib/krake/realtime/certificates")
    files = dict.fromkeys(
        ("ca.key", "ca.pem", "scheduler.pem", "live-1.pem", "live-2.pem"), f"{OWNER} 600"
    )
    assert {name: found for name, found in made.items() if name} == files
    for service, name in FETCHERS.items():
        folder = f"/var/lib/krake/certificates/{name}"
        own = {"": f"{OWNER} 775", "ca.pem": f"{OWNER} 600", f"{name}.pem": f"{OWNER} 600"}
        assert listed(live, service, folder) == own
        everything = listed(live, service, "/var/lib/krake/certificates")
        assert {file for file in everything if "." in file} == {
            f"{name}/ca.pem",
            f"{name}/{name}.pem",
        }
        assert "Read-only file system" in live.stack.exec(
            service, "touch", f"{folder}/made", check=False
        )


def test_a_fetcher_writes_to_its_own_volume_and_has_no_config_and_no_secret(live: Live) -> None:
    for service in FETCHERS:
        assert listed(live, service, "/var/lib/krake/fetcher")[""] == f"{OWNER} 775"
        assert listed(live, service, "/var/lib/krake/realtime") == {"": f"{OWNER} 775"}
        environment = live.stack.exec(service, "env")
        assert not any(
            value in environment
            for name, value in live.stack.environment.items()
            if "_PORT" not in name
        )
        assert "KRAKE_CONFIG_PATH" not in environment


def test_the_service_listens_on_one_network_and_publishes_this_port_on_loopback(live: Live) -> None:
    stack = live.stack
    address = stack.address("realtime", "service")
    assert stack.exec("realtime", "getent", "hosts", "realtime-api").split()[0] == address
    others = [stack.address("realtime", network) for network in ("dmz", "storage")]
    places = [f"{host}:8095" for host in (address, *others, "127.0.0.1")]
    assert stack.reached("realtime", places) == {f"{address}:8095"}
    published = stack.inspect("realtime")["NetworkSettings"]["Ports"]
    assert published == {"8095/tcp": [{"HostIp": "127.0.0.1", "HostPort": str(stack.live_port)}]}
    assert httpx.get(f"{live.url}/healthz", timeout=60).status_code == 200


ALIASES = {
    "realtime": ["realtime", "realtime-api"],
    **{service: [name] for service, name in FETCHERS.items()},
}
"""Other names than that of the service. A fetcher's service has addresses of two networks that fetchers share."""


def places_of(live: Live, name: str) -> dict[str, str]:
    """Return all places of a service, HOST:PORT, with the network of each address ("" for a name)."""
    found = dict.fromkeys(ALIASES.get(name, [name]), "")
    found |= {live.stack.address(name, network): network for network in SERVICES[name]["networks"]}
    return {f"{host}:{port}": network for host, network in found.items() for port in PORTS[name]}


@pytest.mark.parametrize(
    ("source", "other"), [("fetcher-1", "fetcher-2"), ("fetcher-2", "fetcher-1")]
)
def test_a_fetcher_reaches_the_web_and_the_port_of_the_other_fetcher_alone(
    live: Live, source: str, other: str
) -> None:
    """By name and by address. The service reaches MariaDB and HDFS at the same addresses, so this test can fail."""
    stack = live.stack
    places = [place for name in PORTS if name != source for place in places_of(live, name)]
    published = f"{stack.gateway('web')}:{stack.live_port}"
    found = stack.reached(source, [*places, published, f"{HOSTS[0]}:8000"])
    shown = {f"{host}:8096" for host in (FETCHERS[other], stack.address(other, "dmz"))}
    assert found == {f"{HOSTS[0]}:8000", *shown}
    storage = {
        place
        for name in PORTS
        for place, network in places_of(live, name).items()
        if network == "storage"
    }
    storage -= {f"{stack.address('realtime', 'storage')}:8095"}
    assert storage <= stack.reached("realtime", places)


@pytest.fixture(scope="module")
def pages(live: Live) -> dict[str, Page | None]:
    """The pages of all URLs, once both fetchers have parts."""
    live.stack.wait(
        "both fetchers have parts", lambda: min(live.parts()) > 0 and sum(live.parts()) == 256, 60
    )
    with Client(live.url, live.token) as client:
        client.submit(URLS)
        return {url: client.page(url, wait_s=60) for url in URLS}


def test_each_submitted_url_ends_in_a_document(pages: dict[str, Page | None]) -> None:
    documents = {url: page.document for url, page in pages.items() if page and page.document}
    assert {url: document.outcome for url, document in documents.items()} == dict.fromkeys(
        URLS, "ok"
    )


def test_both_fetchers_asked_the_web_and_nobody_else(
    live: Live, pages: dict[str, Page | None]
) -> None:
    assert set(live.stack.clients("web")) == {
        live.stack.address(service, "web") for service in FETCHERS
    }


def test_a_renewed_certificate_reaches_its_fetcher_and_the_other_stays(live: Live) -> None:
    """No fetcher is restarted, and later tests connect by the new certificate."""
    kept, renewed = (
        (service, f"/var/lib/krake/certificates/{name}/{name}.pem")
        for service, name in reversed(FETCHERS.items())
    )
    before = [live.stack.exec(service, "cat", file) for service, file in (kept, renewed)]
    live.stack.exec("realtime", "rm", "/var/lib/krake/realtime/certificates/live-1.pem")
    live.stack.compose(*PROFILE, "run", "--rm", "--no-deps", "certificates")
    after = [live.stack.exec(service, "cat", file) for service, file in (kept, renewed)]
    assert after[0] == before[0]
    assert after[1] != before[1]
    assert after[1] == live.stack.exec(
        "realtime", "cat", "/var/lib/krake/realtime/certificates/live-1.pem"
    )


def test_fetched_pages_come_home_from_both(live: Live, pages: dict[str, Page | None]) -> None:
    """A stop of the service has both fetchers close their parts."""
    live.stack.compose(*PROFILE, "restart", "realtime")
    live.stack.wait("the service is back", lambda: live.stack.health("realtime") == "healthy", 120)
    collect = ("krake", "realtime", "collect", "--json", "--fetcher")
    said = [live.stack.exec("realtime", *collect, name) for name in FETCHERS.values()]
    counts = [json.loads(text[text.index("{") :])["pages"] for text in said]
    assert min(counts) > 0
    assert sum(counts) == len(URLS)
