"""The services of `docker-compose.yml`, started as the file is, and a small web for the nodes to crawl."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import yaml
from krake_airflow import compose_env

from tests.compose import docker
from tests.dags.api import Api
from tests.ports import free_port

PROJECT = "krake-test"
UP_S = 900.0
HOSTS = [f"site-{number}.example" for number in range(12)]
PAGES = 160
SEEDED = 100
"""Pages of each host that are seeds; at five a second they take a node's hosts half a minute."""
SECTIONS = {
    "fetch": {
        "contact": "https://example.org/bot",
        "allow_networks": ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"],
        "processes": 2,
        "host_delay_s": 0.2,
        "ip_delay_s": 0.0,  # all hosts have one address
    },
}
"""Options of config/compose.yml that a user sets, or could."""
LIVE_SECTIONS = {
    "fetch": {
        "contact": "https://example.org/bot",
        "allow_networks": SECTIONS["fetch"]["allow_networks"],
        "max_crawl_delay_s": 1.0,  # a fetcher that takes a part over waits so long before the first request to a host
    },
}
"""The same of config/compose-realtime.yml."""
REACH = """
for place in "$@"; do
    (timeout 3 bash -c "exec 3<>/dev/tcp/${place%:*}/${place#*:}" 2> /dev/null && echo "$place") &
done
wait
"""
"""Prints which of its arguments, HOST:PORT, take a connection."""


class Stack:
    """The containers that are started in the `with` block; none of them is left after the block.

    `directory`: gets docker-compose.yml as it is, and config, seeds and passwords of its own. `api`: Airflow's.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port, self.search_port, self.live_port = free_port(), free_port(), free_port()
        self.api = Api(f"http://127.0.0.1:{self.port}")
        self.environment: dict[str, str] = {}
        self._configure()

    def _configure(self) -> None:
        shutil.copy(docker.ROOT / "docker-compose.yml", self.directory)
        shutil.copytree(docker.ROOT / "config", self.directory / "config")
        (self.directory / "seeds").mkdir()
        seeds = [f"http://{host}:8000/{page}\n" for host in HOSTS for page in range(1, SEEDED)]
        (self.directory / "seeds" / "pages.txt").write_text("".join(seeds))
        self._set("compose.yml", SECTIONS)
        self._set("compose-realtime.yml", LIVE_SECTIONS)
        env = self.directory / ".env"
        compose_env.write(env)
        lines = [line for line in env.read_text().splitlines() if "_PORT=" not in line]
        named = {"WEB": self.port, "SEARCH": self.search_port, "REALTIME": self.live_port}
        ports = [f"KRAKE_{name}_PORT={port}" for name, port in named.items()]
        env.write_text("\n".join([*lines, *ports, ""]))
        self.environment = dict(line.split("=", 1) for line in env.read_text().splitlines())

    def _set(self, name: str, sections: dict[str, dict[str, Any]]) -> None:
        path = self.directory / "config" / name
        config = yaml.safe_load(path.read_text())
        for section, options in sections.items():
            config[section] = config[section] | options
        path.write_text(yaml.safe_dump(config))

    def __enter__(self) -> Self:
        self.stop()  # the containers of an earlier run that was killed
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def up(self) -> None:
        """`docker compose up -d`, and sign in."""
        self.compose("up", "--detach", "--no-build", timeout_s=UP_S)
        self.api.sign_in("admin", self.environment["KRAKE_WEB_PASSWORD"])

    def stop(self) -> None:
        """Remove all containers, networks and volumes."""
        self.down("--volumes", "--remove-orphans", "--timeout", "5")

    def down(self, *options: str) -> None:
        """`docker compose down` after the webs, which are on networks of the file."""
        docker.run("docker", "rm", "--force", *map(self._web, ("outside", "web")), check=False)
        self.compose("down", *options)

    def _web(self, network: str) -> str:
        return f"{PROJECT}-web-of-{network}"

    def serve_web(self, network: str = "outside") -> None:
        """Start a web on a network, anew where there is one."""
        docker.run("docker", "rm", "--force", self._web(network), check=False)
        script = str(Path(__file__).with_name("web.py"))
        names = [word for host in HOSTS for word in ("--network-alias", host)]
        base = docker.images()["haproxy"]
        options = [
            "--detach",
            "--name",
            self._web(network),
            "--network",
            f"{PROJECT}_{network}",
            *names,
        ]
        mount = ["--volume", f"{script}:/web.py:ro", "--log-driver", "json-file"]
        command = ["python3", "-u", "/web.py", "0.01", str(PAGES), *HOSTS]
        docker.run("docker", "run", *options, *mount, base, *command)

    def compose(self, *arguments: str, check: bool = True, timeout_s: float = 300.0) -> str:
        """Run a command of Compose for this project."""
        words = ("docker", "compose", "--project-name", PROJECT, *arguments)
        return docker.run(*words, check=check, timeout_s=timeout_s, cwd=self.directory)

    def exec(self, service: str, *command: str, check: bool = True, stdin: str = "") -> str:
        """Run a command in a container, with a program's text as its input."""
        words = ("docker", "exec", "--interactive", self.container(service), *command)
        return docker.run(*words, check=check, timeout_s=UP_S, stdin=stdin)

    def container(self, service: str) -> str:
        """Return the name of a service's container."""
        return f"{PROJECT}-{service}-1"

    def inspect(self, service: str) -> dict[str, Any]:
        """Return what Docker knows of a service's container."""
        found: dict[str, Any] = json.loads(
            docker.run("docker", "inspect", self.container(service))
        )[0]
        return found

    def health(self, service: str) -> str:
        """Return "healthy", "unhealthy" or "starting"."""
        return str(self.inspect(service)["State"]["Health"]["Status"])

    def address(self, service: str, network: str) -> str:
        """Return a service's address on a network."""
        return str(
            self.inspect(service)["NetworkSettings"]["Networks"][f"{PROJECT}_{network}"][
                "IPAddress"
            ]
        )

    def check_rights(self, service: str, *, is_hardened: bool) -> None:
        """Fail if a container has more rights or fewer limits than the file promises."""
        lines = self.exec(service, "cat", "/proc/1/status").splitlines()
        status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        assert status["Uid"].split()[1] != "0"
        assert int(status["CapEff"], 16) == 0
        host = self.inspect(service)["HostConfig"]
        assert host["Memory"] == host["MemorySwap"] > 0
        assert host["PidsLimit"] > 0
        assert host["LogConfig"] == {
            "Type": "local",
            "Config": {"max-size": "10m", "max-file": "5"},
        }
        if is_hardened:
            assert status["NoNewPrivs"] == "1"
            assert "Read-only file system" in self.exec(service, "touch", "/opt/made", check=False)

    def kill_first_process(self, service: str) -> None:
        """Send SIGKILL to a container's first process, as the kernel does where memory is short."""
        os.kill(self.inspect(service)["State"]["Pid"], 9)

    def signal(self, action: str, *services: str) -> None:
        """Do `docker kill`, `docker stop` or `docker start` to some containers."""
        docker.run("docker", action, *[self.container(service) for service in services])

    def reached(self, source: str, places: list[str]) -> set[str]:
        """Return which places, HOST:PORT, take a connection of a service's container."""
        return set(self.exec(source, "bash", "-c", REACH, "reach", *places).split())

    def requests(self) -> int:
        """Return how many requests of nodes the web has answered."""
        return len(self.clients())

    def clients(self, network: str = "outside") -> list[str]:
        """Return the address of the client of each request that a web has answered."""
        lines = docker.run("docker", "logs", self._web(network)).splitlines()
        return [line.split()[0] for line in lines if '"GET ' in line]

    def wait(self, what: str, true: Callable[[], bool], limit_s: float = UP_S) -> None:
        """Ask until the answer is yes."""
        end = time.monotonic() + limit_s
        while not true():
            assert time.monotonic() < end, (
                f"not within {limit_s:g} s: {what}\n{self.compose('ps', '--all')}"
            )
            time.sleep(0.5)

    @property
    def web_address(self) -> str:
        """The address of the web that nodes crawl."""
        template = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
        return docker.run("docker", "inspect", "--format", template, self._web("outside")).strip()

    def gateway(self, network: str) -> str:
        """Return this machine's address on a network."""
        template = "{{(index .IPAM.Config 0).Gateway}}"
        return docker.run(
            "docker", "network", "inspect", "--format", template, f"{PROJECT}_{network}"
        ).strip()
