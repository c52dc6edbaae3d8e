"""`docker-compose.yml`, as far as it can be checked without an engine.

It says what the code says (commands, options, paths, names), and keeps what it promises (no password in it, one port).
"""

from __future__ import annotations

import configparser
import errno
import importlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from krake_airflow import compose_env, settings, worker_logging

from crawl_lib.cli.parser import build_parser
from crawl_lib.config import load_config
from crawl_lib.realtime.service import require_realtime

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "docker-compose.yml").read_text()
FILE = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = FILE["services"]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
GATE = (ROOT / "config" / "gate.cfg").read_text()
HOME = "/opt/krake"
GATE_CONFIG = "/usr/local/etc/haproxy/haproxy.cfg"
NODES = [name for name in SERVICES if name.startswith("node-")]
KEY_SERVERS = [name for name in SERVICES if name.startswith("mariadb-")]
ONE_SHOT = {"set-up", "certificates"}
CLEANER = "log-cleaner"
"""Has the image, and neither config nor network."""
WORKERS = [*NODES, "batch"]
PAGE = "search"
"""Writes its log to the container's."""
SEARCH_PORT = "8090"
LIVE = "realtime"
FETCHERS = ["fetcher-1", "fetcher-2"]
"""Of a profile of its own. Like the page, the service has no files of Airflow."""
LIVE_PORT = "8095"
OURS = [
    name
    for name, service in SERVICES.items()
    if service["image"] == "krake:local" and name != CLEANER
]
VARIABLE = re.compile(r"(?<!\$)\$\{(\w+)([^}]*)\}")


def config():
    return load_config(ROOT / "config" / "compose.yml")


def argvs() -> Iterator[tuple[str, list[str]]]:
    """Every command line of a container of ours, health checks included, with its service."""
    for name in OURS:
        service = SERVICES[name]
        for words in (service["command"], service.get("healthcheck", {}).get("test", ["CMD"])[1:]):
            script = words[2] if words[:2] == ["bash", "-c"] else shlex.join(words)
            for part in script.split("&&"):
                argv = shlex.split(part)
                yield name, argv[1:] if argv[:1] == ["exec"] else argv


COMMANDS = [(name, argv) for name, argv in argvs() if argv]


def of_program(program: str) -> list[tuple[str, list[str]]]:
    return [(name, argv[1:]) for name, argv in COMMANDS if argv[0] == program]


def image_environment() -> dict[str, str]:
    """What the Dockerfile's ENV sets."""
    found = re.search(r"^ENV (.*?[^\\])$", DOCKERFILE, re.MULTILINE | re.DOTALL)
    assert found
    return dict(word.split("=", 1) for word in shlex.split(found[1].replace("\\\n", " ")))


# -- the file itself


def test_the_image_has_all_code_compiled() -> None:
    """Containers cannot write bytecode: a process would compile its modules at each start."""
    assert all(
        service.get("read_only")
        for name, service in SERVICES.items()
        if name.startswith(("node", "batch"))
    )
    copied = re.findall(r"^COPY --chown=\S+ (\S+) \1$", DOCKERFILE, re.MULTILINE)
    code = {folder for folder in copied if any((ROOT / folder).rglob("*.py"))}
    [compiled] = re.findall(r"python -m compileall -q (.*)$", DOCKERFILE, re.MULTILINE)
    assert code == set(compiled.split())
    syncs = re.findall(r"uv pip sync .*", DOCKERFILE)
    assert syncs
    assert all("--compile-bytecode" in sync for sync in syncs)


def test_compose_accepts_the_file(tmp_path: Path) -> None:
    if shutil.which("docker-compose") is None:
        pytest.skip(
            "docker-compose is not installed (Debian package docker-compose); the file was not checked by it"
        )
    compose_env.write(tmp_path / ".env")
    command = [
        "docker-compose",
        "--file",
        str(ROOT / "docker-compose.yml"),
        "--env-file",
        str(tmp_path / ".env"),
    ]
    command += ["--profile", LIVE]
    clean = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    done = subprocess.run(
        [*command, "config"], capture_output=True, text=True, env=clean, timeout=240
    )
    assert done.returncode == 0, done.stderr
    assert set(yaml.safe_load(done.stdout)["services"]) == set(SERVICES)
    # Without the file nothing starts with an empty password.
    (tmp_path / "empty").touch()
    command[command.index("--env-file") + 1] = str(tmp_path / "empty")
    done = subprocess.run(
        [*command, "config"], capture_output=True, text=True, env=clean, timeout=240
    )
    assert done.returncode != 0
    assert "make compose-env" in done.stderr


def test_the_topology_is_what_the_readme_says() -> None:
    assert {"scheduler", "api-server", "dag-processor", "postgres", "namenode", "set-up"} <= set(
        SERVICES
    )
    assert len(NODES) == len(KEY_SERVERS) == 3
    assert len([name for name in SERVICES if name.startswith("datanode-")]) == 2


def test_three_ports_are_published_and_on_loopback() -> None:
    ports = {name: service["ports"] for name, service in SERVICES.items() if service.get("ports")}
    of_airflow = SERVICES["api-server"]["environment"]["AIRFLOW__API__PORT"]
    asked = {"api-server": of_airflow, PAGE: SEARCH_PORT, LIVE: LIVE_PORT}
    assert set(ports) == set(asked)
    for name, [port] in ports.items():
        assert port.startswith("127.0.0.1:")
        assert port.endswith(f":{asked[name]}")
    assert {name for name in SERVICES if "network_mode" in SERVICES[name]} == {
        CLEANER,
        "certificates",
    }
    assert SERVICES[CLEANER]["network_mode"] == SERVICES["certificates"]["network_mode"] == "none"
    assert not any(service.get("privileged") for service in SERVICES.values())


def test_the_search_page_has_no_secret_and_writes_to_its_directory_alone() -> None:
    service = SERVICES["search"]
    assert not VARIABLE.findall(str(service["environment"]))
    assert service["read_only"] is True
    assert [mount for mount in service["volumes"] if not mount.endswith(":ro")] == [
        f"search:{config().search.directory}"
    ]
    assert set(service["networks"]) == {"storage", "page"}
    assert [name for name in SERVICES if "page" in SERVICES[name].get("networks", [])] == ["search"]
    assert config().search.listen == f"0.0.0.0:{SEARCH_PORT}"
    assert service["healthcheck"]["test"][-1] == f"http://localhost:{SEARCH_PORT}/help"


def test_the_real_time_service_is_a_profile_with_its_data_on_one_volume() -> None:
    """Without the profile nothing of the service starts; a stop leaves room for the last answers."""
    service, found = SERVICES[LIVE], load_config(ROOT / "config" / "compose-realtime.yml")
    of_profile = {name for name, one in SERVICES.items() if "profiles" in one}
    assert of_profile == {LIVE, "certificates", *FETCHERS}
    assert all(SERVICES[name]["profiles"] == [LIVE] for name in of_profile)
    assert service["environment"]["KRAKE_CONFIG_PATH"] == f"{HOME}/config/compose-realtime.yml"
    assert not VARIABLE.findall(str(service["environment"]))
    options = found.require_realtime()
    require_realtime(found)
    [volume] = [mount for mount in service["volumes"] if not mount.endswith(":ro")]
    directory = volume.partition(":")[2]
    written = [
        options.tokens,
        found.queue.local_dir,
        found.scratch.directory,
        *found.key_storage.servers,
    ]
    assert all(path.startswith(f"{directory}/") for path in written)
    assert directory in DOCKERFILE
    assert service["networks"]["service"]["aliases"] == ["realtime-api"]
    assert options.listen == f"realtime-api:{LIVE_PORT}"
    assert service["healthcheck"]["test"][-1] == f"http://realtime-api:{LIVE_PORT}/healthz"
    assert service["stop_grace_period"] == "10s"
    used = {config().crawl.directory, config().export.directory, config().text.directory}
    assert not used & {found.crawl.directory, found.export.directory, found.text.directory}


def test_fetchers_have_no_route_to_the_storage_and_no_secret_but_their_certificates() -> None:
    found = load_config(ROOT / "config" / "compose-realtime.yml")
    options = found.require_realtime()
    assert [fetcher.address for fetcher in options.fetchers] == ["live-1:8096", "live-2:8096"]
    for service, fetcher in zip(map(SERVICES.get, FETCHERS), options.fetchers, strict=True):
        assert service is not None
        assert service["networks"] == {"web": None, "dmz": {"aliases": [fetcher.name]}}
        assert f"--listen {fetcher.address} --name {fetcher.name} " in service["command"][2]
        assert f":{int(fetcher.address.split(':')[1]):X} " in service["healthcheck"]["test"][3]
        assert [mount.split(":")[1:] for mount in service["volumes"]] == [
            ["/var/lib/krake/fetcher"],
            [f"/var/lib/krake/certificates/{fetcher.name}", "ro"],
        ]
        assert not VARIABLE.findall(str(service["environment"]))
    on = {name: set(one.get("networks", ())) for name, one in SERVICES.items()}
    assert {name for name, networks in on.items() if "dmz" in networks} == {LIVE, *FETCHERS}
    assert {name for name, networks in on.items() if "web" in networks} == set(FETCHERS)
    made = SERVICES["certificates"]["command"][2]
    assert all(made.count(f"{fetcher.name}.pem") == 1 for fetcher in options.fetchers)
    assert "ca.key" not in made


def test_the_unit_of_systemd_runs_the_service() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(ROOT / "config" / "krake-realtime.service")
    service = unit["Service"]
    program, *argv = shlex.split(service["ExecStart"])
    assert Path(program).name == "krake"
    assert build_parser().parse_args(argv).run.__name__
    assert (service["KillMode"], service["KillSignal"], service["TimeoutStopSec"]) == (
        "mixed",
        "SIGTERM",
        "10",
    )
    assert (service["Restart"], service["SuccessExitStatus"], service["NoNewPrivileges"]) == (
        "always",
        "143",
        "yes",
    )


def test_the_index_is_made_where_there_is_room_for_it() -> None:
    assert config().search.directory in [
        mount.split(":")[1] for mount in SERVICES["batch"]["volumes"]
    ]


def test_every_variable_is_made_and_every_one_that_is_made_is_used() -> None:
    assert {name for name, _ in VARIABLE.findall(TEXT)} == set(compose_env.values())
    # Neither a default, nor silently nothing.
    assert {rest for _, rest in VARIABLE.findall(TEXT)} == {":?run make compose-env"}


def test_no_password_stands_in_the_file() -> None:
    secret = re.compile(r"PASSWORD$|SECRET|_KEY$|_CONN$")
    found = [
        (name, key, str(value))
        for name, service in SERVICES.items()
        for key, value in service.get("environment", {}).items()
        if secret.search(key) and key != "MARIADB_RANDOM_ROOT_PASSWORD"
    ]
    assert len(found) > 20
    for name, key, value in found:
        bare = VARIABLE.sub("", value)
        assert bare in ("", "postgresql+psycopg2://airflow:@postgres/airflow"), (name, key)


@pytest.mark.parametrize("name", sorted(set(SERVICES) - ONE_SHOT))
def test_what_runs_on_is_watched_and_comes_back(name: str) -> None:
    check = SERVICES[name]["healthcheck"]
    assert check["test"][0] == "CMD"
    assert {"interval", "timeout", "start_period", "retries"} <= set(check)
    assert SERVICES[name]["restart"] == "unless-stopped"


def test_nothing_waits_for_a_check_that_is_not_there() -> None:
    for name, service in SERVICES.items():
        for other, how in service.get("depends_on", {}).items():
            expected = "service_completed_successfully" if other in ONE_SHOT else "service_healthy"
            assert how == {"condition": expected}, (name, other)
            assert other in SERVICES


def test_mounts_are_volumes_of_one_service_or_paths_of_the_project() -> None:
    users: dict[str, list[str]] = {}
    for name, service in SERVICES.items():
        for mount in service.get("volumes", []):
            source, target, *options = mount.split(":")
            if source.startswith("."):
                assert (ROOT / source).exists(), mount
                assert options == ["ro"], mount
                assert target in {f"{HOME}/{source.removeprefix('./')}", GATE_CONFIG}, mount
            elif name != CLEANER:
                users.setdefault(source, []).append(name)
    assert set(users) == set(FILE["volumes"])
    shared = {volume: names for volume, names in users.items() if len(names) > 1}
    assert shared == {
        LIVE: ["certificates", LIVE],
        **{f"certificates-{n}": ["certificates", f"fetcher-{n}"] for n in (1, 2)},
    }


HDFS = {"namenode", "datanode-1", "datanode-2"}
SMALL = {"gate", CLEANER, "certificates"}
GB = 1 << 30


def limit_bytes(name: str) -> int:
    text = SERVICES[name]["mem_limit"]
    return int(text[:-1]) * {"m": 1 << 20, "g": GB}[text[-1]]


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_container_has_no_capability_and_no_way_to_one_and_a_limit_of_memory(name: str) -> None:
    service = SERVICES[name]
    assert service["cap_drop"] == ["ALL"]
    assert limit_bytes(name) >= GB or name in SMALL
    assert service["memswap_limit"] == service["mem_limit"], "else it swaps as much again"
    assert service["pids_limit"] >= 512
    assert "devices" not in service
    assert not any("docker.sock" in mount for mount in service.get("volumes", []))
    if name in HDFS:
        # Its start calls sudo; what it may keep is less than it had before.
        assert set(service["cap_add"]) <= {
            "AUDIT_WRITE",
            "DAC_OVERRIDE",
            "FOWNER",
            "SETGID",
            "SETUID",
        }
        return
    assert "cap_add" not in service
    assert service["read_only"] is True
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["image"] == "krake:local" or service["user"] in {
        "haproxy",
        "mysql",
        "postgres",
    }, "as root it would need more"


@pytest.mark.parametrize("name", sorted(set(SERVICES) - HDFS - SMALL))
def test_what_a_read_only_container_writes_lies_on_a_volume_or_in_memory(name: str) -> None:
    service = SERVICES[name]
    written = {mount.split(":")[0] for mount in service["tmpfs"]} | {
        mount.split(":")[1] for mount in service.get("volumes", []) if not mount.endswith(":ro")
    }
    assert "/tmp" in written
    if service["image"] == "krake:local":
        # Airflow's home, where it writes its config; what grows for months is not kept in memory.
        assert "/opt/airflow" in written
        assert "/opt/airflow/logs" in written or name in {*ONE_SHOT, PAGE, LIVE, *FETCHERS}
    else:
        assert written & {"/run/mysqld", "/run/postgresql"}


def test_memory_is_enough_for_what_the_config_lets_each_use() -> None:
    found = config()
    for name in NODES:
        assert found.fetch.processes is not None
        assert limit_bytes(name) >= found.fetch.processes * 400 * 10**6 + GB
    tasks = int(SERVICES["batch"]["command"][SERVICES["batch"]["command"].index("-c") + 1])
    assert limit_bytes("batch") >= tasks * (found.scratch.memory_bytes + 200 * 10**6) + GB


def networks(name: str) -> set[str]:
    return set() if "network_mode" in SERVICES[name] else set(SERVICES[name]["networks"])


def neighbours(name: str) -> set[str]:
    """The services that share a network with one."""
    own = networks(name)
    return {other for other in SERVICES if other != name and own & networks(other)}


def test_the_crawl_does_not_reach_the_database_of_airflow() -> None:
    assert neighbours("postgres") == {"set-up", "api-server", "scheduler", "dag-processor"}
    for name in [*WORKERS, *KEY_SERVERS, *HDFS, "gate"]:
        assert "database" not in networks(name)


def test_only_nodes_and_the_published_port_reach_the_outside() -> None:
    open_networks = {
        name for name, options in FILE["networks"].items() if not (options or {}).get("internal")
    }
    assert open_networks == {"outside", "published", "page", "service", "web"}
    assert [name for name in SERVICES if "service" in networks(name)] == [LIVE]
    of_all = [
        name
        for name, service in SERVICES.items()
        if not {"networks", "network_mode"} & set(service)
    ]
    assert of_all == [], "else it would be on a network of all"
    assert sorted(name for name in SERVICES if "outside" in networks(name)) == sorted(NODES)
    assert [name for name in SERVICES if "published" in networks(name)] == ["api-server"]


def test_commands_of_the_docs_reach_the_image() -> None:
    """The entrypoint of Airflow's image takes any other first word for a command of Airflow."""
    texts = [TEXT, *(path.read_text() for path in (ROOT / "docs").glob("*.md"))]
    found = [
        words
        for text in texts
        for words in re.findall(r"docker compose [^`\n]*\brun --rm ([\w-]+) (\w+)", text)
    ]
    assert len(found) > 1
    assert {word for _, word in found} <= {"airflow", "bash", "python"}


def test_each_reaches_what_it_speaks_to() -> None:
    for name in WORKERS:
        assert {*HDFS, *KEY_SERVERS, "gate"} <= neighbours(name)
    assert {"postgres", "namenode", *KEY_SERVERS} <= neighbours("set-up")
    assert "api-server" in neighbours("gate")
    assert not {"api-server", "scheduler", "dag-processor"} & neighbours("namenode")


def test_workers_reach_the_api_server_through_the_gate_alone() -> None:
    """Their secret signs a token of any user: `docs/security.md` says what it opens."""
    assert neighbours("api-server") == {"set-up", "postgres", "scheduler", "dag-processor", "gate"}
    for name in WORKERS:
        addresses = [
            value for value in SERVICES[name]["environment"].values() if value.startswith("http")
        ]
        assert len(addresses) == 2
        assert {urlsplit(address).netloc for address in addresses} == {"gate:8080"}
        assert re.search(r"^    bind :8080$", GATE, re.MULTILINE)
        paths = re.findall(r"path_beg (.*) }", GATE)[0].split()
        assert all(
            any(urlsplit(address).path.startswith(path) for path in paths) for address in addresses
        )
        assert sorted(paths) == ["/edge_worker/v1/", "/execution/"]


def test_a_run_may_name_the_seeds_that_are_mounted() -> None:
    mounts = {mount.split(":")[1]: mount for mount in SERVICES["batch"]["volumes"]}
    inside = load_config(ROOT / "config" / "compose.yml").inject.directory
    assert mounts[f"{HOME}/{Path(inside).relative_to(ROOT)}"].endswith(":ro")
    assert not [
        name for name in NODES if any("seeds" in mount for mount in SERVICES[name]["volumes"])
    ]


def test_one_service_builds_the_image_and_the_others_use_it() -> None:
    assert [name for name in SERVICES if "build" in SERVICES[name]] == ["set-up"]
    assert SERVICES["set-up"]["pull_policy"] == "build"
    for name in [*OURS, CLEANER]:
        assert name == "set-up" or SERVICES[name]["pull_policy"] == "never"


def test_the_tables_are_made_when_all_servers_answer() -> None:
    """`krake keys create` asks HDFS for pages: without it the whole `up` failed."""
    assert set(SERVICES["set-up"]["depends_on"]) == {"postgres", *KEY_SERVERS, *HDFS}
    for name in set(OURS) - {"set-up"}:
        assert "set-up" in SERVICES[name]["depends_on"]


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_the_output_of_a_container_has_a_limit(name: str) -> None:
    """The API server alone wrote 119 MB a day, and the namenode of a busy crawl 220 MB."""
    assert SERVICES[name]["logging"] == {
        "driver": "local",
        "options": {"max-size": "10m", "max-file": "5"},
    }


def test_old_logs_of_tasks_are_deleted() -> None:
    written = {
        mount.split(":")[0]: mount
        for name in OURS
        for mount in SERVICES[name].get("volumes", [])
        if mount.endswith(":/opt/airflow/logs")
    }
    assert len(written) == len(set(OURS) - {*ONE_SHOT, PAGE, LIVE, *FETCHERS})
    assert {mount.split(":")[0] for mount in SERVICES[CLEANER]["volumes"]} == set(written)
    script = SERVICES[CLEANER]["command"][2]
    assert "find /logs -type f -mtime +30 -delete" in script
    assert all(mount.split(":")[1].startswith("/logs/") for mount in SERVICES[CLEANER]["volumes"])


def test_workers_do_not_write_a_line_each_second() -> None:
    [named] = {
        SERVICES[name]["environment"]["AIRFLOW__LOGGING__LOGGING_CONFIG_CLASS"] for name in WORKERS
    }
    module, _, name = named.rpartition(".")
    loggers = getattr(importlib.import_module(module), name)["loggers"]
    assert loggers[worker_logging.QUIET] == {"level": "WARNING"}
    assert importlib.util.find_spec(worker_logging.QUIET) is not None


def test_a_dead_datanode_is_asked_last_and_its_name_is_not_waited_for() -> None:
    for name in HDFS:
        environment = SERVICES[name]["environment"]
        for kind in ("read", "write"):
            assert environment[f"HDFS-SITE.XML_dfs.namenode.avoid.{kind}.stale.datanode"] == "true"
        # Three heartbeats of 3 s are the least that HDFS takes.
        assert (
            9_000 <= int(environment["HDFS-SITE.XML_dfs.namenode.stale.datanode.interval"]) < 30_000
        )
    for name in [*WORKERS, *HDFS]:
        assert SERVICES[name]["dns_opt"] == ["timeout:1", "attempts:2"]


def test_tasks_outlive_a_restart_of_the_api_server() -> None:
    """It was away for 42 s, on a busy machine."""
    environment = SERVICES["node-a"]["environment"]
    dead_s = int(environment["AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT"])
    assert 2 * 42 < dead_s < 300
    # A heartbeat fails every 5 s at most: the task is not ended by its own supervisor before that.
    assert 5 * int(environment["AIRFLOW__WORKERS__MAX_FAILED_HEARTBEATS"]) >= dead_s
    assert dead_s <= 2 * int(environment["AIRFLOW__API_AUTH__JWT_LEEWAY"])
    for name in (
        "AIRFLOW__WORKERS__EXECUTION_API_RETRY_WAIT_MAX",
        "AIRFLOW__EDGE__API_RETRY_WAIT_MAX",
    ):
        assert int(environment[name]) <= 10


def test_images_are_pinned() -> None:
    images = {service["image"] for service in SERVICES.values()} - {"krake:local"}
    base = re.search(r"^FROM (\S+)$", DOCKERFILE, re.MULTILINE)
    assert base
    for image in [*images, base[1]]:
        assert re.search(r":\d+(\.\d+)*(-\w|$)", image), image
    lock = (ROOT / "requirements.lock").read_text()
    version = base[1].split(":")[1].split("-")[0]
    assert f"\napache-airflow=={version} " in lock
    assert base[1].endswith("-python3.11")


# -- the file and the code


def fetcher_argv(name: str) -> list[str]:
    """The command of a fetcher."""
    place = [
        "--directory",
        "/var/lib/krake/fetcher",
        "--certificates",
        f"/var/lib/krake/certificates/{name}",
    ]
    return ["realtime", "fetcher", "--listen", f"{name}:8096", "--name", name, *place]


def test_commands_of_krake_parse() -> None:
    assert of_program("krake") == [
        ("set-up", ["keys", "create"]),
        (PAGE, ["serve", "search"]),
        ("certificates", ["realtime", "certificates"]),
        (LIVE, ["serve", "realtime"]),
        *((name, fetcher_argv(f"live-{number}")) for number, name in enumerate(FETCHERS, 1)),
    ]
    for _, argv in of_program("krake"):
        assert callable(build_parser().parse_args(argv).run)


AIRFLOW_CHECK = """
import importlib, json, sys
from airflow.cli import cli_parser
from airflow.configuration import conf
commands, options = json.load(sys.stdin)
parser = cli_parser.get_parser()
parsed = [vars(parser.parse_args(argv)) for argv in commands]
known = conf.configuration_description
unknown = [option for option in options if option[1] not in known.get(option[0], {}).get("options", {})]
module, name = sys.argv[1].rsplit(".", 1)
getattr(importlib.import_module(module), name)
print("RESULT" + json.dumps({"queues": [p.get("queues") for p in parsed], "unknown": unknown}))
"""


NOT_OPTIONS = {"AIRFLOW__EDGE__API_RETRIES", "AIRFLOW__EDGE__API_RETRY_WAIT_MAX"}
"""The edge worker reads these from its environment alone."""


def test_commands_and_options_of_airflow_are_there(tmp_path: Path) -> None:
    """One process, with the environment that the lock makes: the parsers and options of edge workers among them."""
    commands = [argv for _, argv in of_program("airflow")]
    # Migration, three parts of the centre and the check of one, and each worker with its check.
    assert len(commands) == 1 + 4 + 2 * (len(NODES) + 1)
    names = {key for service in SERVICES.values() for key in service.get("environment", {})} | set(
        image_environment()
    )
    client = importlib.util.find_spec("airflow.providers.edge3.cli")
    assert client is not None
    assert client.submodule_search_locations is not None
    source = (Path(client.submodule_search_locations[0]) / "api_client.py").read_text()
    assert all(f'"{name}"' in source for name in NOT_OPTIONS)
    options = [
        name.lower().split("__")[1:] for name in names - NOT_OPTIONS if name.startswith("AIRFLOW__")
    ]
    assert len(options) > 12
    executor = SERVICES["scheduler"]["environment"]["AIRFLOW__CORE__EXECUTOR"]
    clean = {"PATH": os.environ["PATH"], "AIRFLOW_HOME": str(tmp_path), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, "-c", AIRFLOW_CHECK, executor],
        input=json.dumps([commands, options]),
        capture_output=True,
        text=True,
        env=clean,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout.split("RESULT")[1])
    assert result["unknown"] == []
    # The nodes' queues, and the one of the tasks that belong to no node.
    assert sorted(filter(None, result["queues"])) == sorted([*config().servers, "default"])


def test_settings_that_one_machine_has_too_are_the_same() -> None:
    ours = settings.environment(Path("home"), Path("config"))
    theirs = SERVICES["scheduler"]["environment"] | image_environment()
    both = {
        name
        for name in set(ours) & set(theirs)
        if name.startswith("AIRFLOW__") and "FOLDER" not in name
    }
    assert len(both) >= 3
    # Tasks run on the workers, the database is a server, and the executor does not wait; nothing else differs.
    different = {
        "AIRFLOW__CORE__EXECUTOR",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN",
        "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME",
    }
    assert {name for name in both if ours[name] != theirs[name]} <= different
    for name in ("DAGS", "PLUGINS"):
        key = f"AIRFLOW__CORE__{name}_FOLDER"
        assert Path(theirs[key]).relative_to(HOME) == Path(ours[key]).relative_to(ROOT)


def test_what_lets_a_run_go_on_after_a_loss_is_the_same_as_in_make_cluster() -> None:
    assert settings.RECOVERY.items() <= SERVICES["scheduler"]["environment"].items()
    for name in [*NODES, "batch"]:
        worker = SERVICES[name]["environment"]
        assert set(settings.RECOVERY.items()) - set(worker.items()) == {
            ("AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL", "20")  # the scheduler's own
        }


def test_each_node_s_worker_has_its_name_and_its_queue() -> None:
    for name in [*NODES, "batch"]:
        argv = SERVICES[name]["command"]
        queue = argv[argv.index("-q") + 1]
        assert SERVICES[name]["environment"][settings.NODE_VARIABLE] == queue
        assert argv[argv.index("-H") + 1] == name


def test_everything_is_started_by_a_program_of_the_image() -> None:
    assert {argv[0] for _, argv in COMMANDS} == {
        "airflow",
        "krake",
        "curl",
        "umask",
        "printf",
        "install",
        "grep",
    }


def test_the_config_fits_the_services() -> None:
    found = config()
    assert sorted(found.servers) == sorted(NODES)
    assert list(found.key_storage.servers) == KEY_SERVERS
    assert found.key_storage.replication == 2
    namenode = urlsplit(found.dfs_primary)
    assert namenode.hostname == SERVICES["namenode"]["hostname"] == "namenode"
    assert f":{namenode.port}/" in SERVICES["namenode"]["healthcheck"]["test"][-1]
    for name in ("namenode", "datanode-1", "datanode-2"):
        assert SERVICES[name]["environment"]["HADOOP_USER_NAME"] == found.dfs.user
        assert SERVICES[name]["hostname"] == name
    for name in KEY_SERVERS:
        environment = SERVICES[name]["environment"]
        assert environment["MARIADB_DATABASE"] == found.key_storage.database
        assert environment["MARIADB_USER"] == found.key_storage.user


def test_each_container_of_ours_reads_this_config() -> None:
    for name in set(OURS) - set(FETCHERS):
        path = SERVICES[name]["environment"]["KRAKE_CONFIG_PATH"]
        assert (ROOT / Path(path).relative_to(HOME)).is_file(), name
        assert f"./config:{HOME}/config:ro" in SERVICES[name]["volumes"]


@pytest.mark.parametrize("name", NODES)
def test_a_node_serves_its_queue_and_keeps_its_own_disk(name: str) -> None:
    words = SERVICES[name]["command"]
    assert words[words.index("-q") + 1] == words[words.index("-H") + 1] == name
    targets = [mount.split(":")[1] for mount in SERVICES[name]["volumes"]]
    assert config().queue.local_dir in targets
    assert Path(words[words.index("--pid") + 1]).parent.as_posix() in [
        mount.split(":")[0] for mount in SERVICES[name]["tmpfs"]
    ]
    assert SERVICES[name]["healthcheck"]["test"][-1] == words[words.index("--pid") + 1]


def test_workers_know_no_secret_of_the_centre() -> None:
    for name in [*NODES, "batch"]:
        environment = SERVICES[name]["environment"]
        used = {
            variable
            for value in environment.values()
            for variable, _ in VARIABLE.findall(str(value))
        }
        assert used == {"KRAKE_KEY_STORAGE_PASSWORD", "AIRFLOW_JWT_SECRET"}, name


@pytest.mark.parametrize("name", WORKERS)
def test_a_worker_has_scratch_room(name: str) -> None:
    """`krake fsck` on a node copies files of exports there."""
    assert config().scratch.directory in [
        mount.split(":")[1] for mount in SERVICES[name]["volumes"]
    ]


def test_hdfs_keeps_what_it_has_closed() -> None:
    for name in ("datanode-1", "datanode-2"):
        environment = SERVICES[name]["environment"]
        assert environment["HDFS-SITE.XML_dfs.datanode.synconclose"] == "true"
        assert environment["HDFS-SITE.XML_dfs.datanode.hostname"] == name
    # The image opens /data for its user; what is elsewhere would be lost with the container.
    for name, key in (("namenode", "namenode.name"), ("datanode-1", "datanode.data")):
        assert SERVICES[name]["environment"][f"HDFS-SITE.XML_dfs.{key}.dir"].startswith(
            "file:///data/"
        )
        assert SERVICES[name]["volumes"][0].endswith(":/data")


# -- the image


def test_the_image_takes_what_is_there_and_nothing_private() -> None:
    sources = [
        word
        for line in re.findall(r"^COPY (?:--\S+ )*(.*)$", DOCKERFILE, re.MULTILINE)
        for word in line.split()[:-1]
    ]
    allowed = {
        line[1:]
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    assert set(sources) == allowed
    assert all((ROOT / source).exists() for source in sources)
    assert {"crawl_lib", "sql", "plugins", "dags", "config", "requirements.image.lock"} <= allowed
    assert (ROOT / ".dockerignore").read_text().startswith("*\n")


IMAGE_LOCK = "requirements.image.lock"


def pins(lock: str) -> set[str]:
    return set(re.findall(r"^[a-z0-9.-]+==\S+", (ROOT / lock).read_text(), re.MULTILINE))


def test_the_image_has_what_runs_and_no_tool_of_development() -> None:
    """What runs is what the tests ran: the lock of the image is a part of the lock."""
    assert pins(IMAGE_LOCK) < pins("requirements.lock")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    tools = {re.split(r"[>=\[]", name)[0] for name in extras["dev"]}
    of_others = {"fastwarc"}  # resiliparse brings it
    assert tools & {pin.split("==")[0] for pin in pins(IMAGE_LOCK)} <= of_others
    assert "requirements.lock" not in DOCKERFILE


def test_downloads_of_the_image_trust_a_certificate_that_was_given() -> None:
    """Behind a proxy that opens TLS; neither pip nor uv reads the system's certificates."""
    arguments = dict(re.findall(r'^ARG (\w+)="?([^"\n]*)"?$', DOCKERFILE, re.MULTILINE))
    assert arguments.pop("CERTIFICATE") == ""
    assert set(arguments) == {"PIP_CERT", "SSL_CERT_FILE"}
    assert len(set(arguments.values())) == 1
    first_download = DOCKERFILE.index(" pip install")
    assert (
        DOCKERFILE.index("ARG SSL_CERT_FILE")
        < DOCKERFILE.index('"${CERTIFICATE}"')
        < first_download
    )
    assert SERVICES["set-up"]["build"]["args"] == ["CERTIFICATE"]
    assert not set(arguments) & set(image_environment())


def folders_of_image() -> dict[str, str]:
    """Every folder that the Dockerfile makes, and its mode."""
    flat = DOCKERFILE.replace("\\\n", " ")
    made = re.findall(r"^RUN install -d (?:-o airflow -g 0 )?-m (\d+) (.*)$", flat, re.MULTILINE)
    return {folder: mode for mode, folders in made for folder in folders.split()}


OF_OTHERS = {"/tmp": "1777", "/run/mysqld": "1777", "/run/postgresql": "3777"}
"""Folders that the images of MariaDB and PostgreSQL have, with their modes."""


@pytest.mark.parametrize("name", [name for name in SERVICES if "tmpfs" in SERVICES[name]])
def test_each_tmpfs_with_a_mode_is_in_the_image_with_that_mode(name: str) -> None:
    """A container that starts again gets the mode of the folder below, with runc 1.1: its user could not write."""
    for mount in SERVICES[name]["tmpfs"]:
        target, _, mode = mount.partition(":mode=")
        assert (folders_of_image() | OF_OTHERS)[target] == (mode or "1777"), mount


def test_the_image_is_made_as_make_setup_makes_the_environment() -> None:
    makefile = (ROOT / "Makefile").read_text()
    flat = " ".join(DOCKERFILE.replace("\\\n", " ").split())
    makefile = re.sub(
        r" \$\((?:foreach|if) .*\)$", "", makefile, flags=re.MULTILINE
    )  # extras that were asked for
    for line in re.findall(
        r"^\t(?:@(?:\$\(DOWNLOAD\) )?)?\$\(BIN\)/(?:uv|python -m) pip (?:sync|install) .*$",
        makefile,
        re.MULTILINE,
    )[:3]:
        needed = [
            word
            for word in line.split()
            if word.startswith("--") and word != "--disable-pip-version-check"
        ]
        what = line.split()[-1].replace("requirements.lock", IMAGE_LOCK)
        assert all(word in flat for word in [*needed, what]), line
    assert "--require-hashes" in flat
    names = {"apache-airflow-providers-edge3", "asyncpg", "psycopg2-binary", "pymysql"}
    assert names <= {pin.split("==")[0] for pin in pins(IMAGE_LOCK)}


def test_folders_of_volumes_belong_to_the_user_of_the_image() -> None:
    for name in [*OURS, CLEANER]:
        for mount in SERVICES[name]["volumes"]:
            assert mount.startswith("./") or folders_of_image()[mount.split(":")[1]] == "0775"


# -- make compose-env


def run_compose_env(path: Path) -> subprocess.CompletedProcess[str]:
    """As `make` does it, by a Python without packages."""
    program = ROOT / "plugins" / "krake_airflow" / "compose_env.py"
    return subprocess.run(
        [sys.executable, "-I", "-S", str(program), str(path)],
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_passwords_are_random_and_for_the_owner_alone(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    old = os.umask(0)
    try:
        assert run_compose_env(first).returncode == 0
    finally:
        os.umask(old)
    assert run_compose_env(second).returncode == 0
    assert stat.S_IMODE(first.stat().st_mode) == stat.S_IMODE(second.stat().st_mode) == 0o600
    one, two = (
        dict(line.split("=", 1) for line in path.read_text().splitlines())
        for path in (first, second)
    )
    assert set(one) == set(compose_env.values())
    assert {name for name in one if one[name] == two[name]} == {
        "KRAKE_WEB_PORT",
        "KRAKE_SEARCH_PORT",
        "KRAKE_REALTIME_PORT",
    }
    assert all(len(one[name]) >= 24 for name in one if not name.endswith("_PORT"))
    assert len(set(one.values())) == len(one)


def test_a_fernet_key_is_one() -> None:
    fernet = pytest.importorskip("cryptography.fernet")
    fernet.Fernet(compose_env.values()["AIRFLOW_FERNET_KEY"])


def test_passwords_that_stand_are_kept(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text("KRAKE_WEB_PORT=1\n")
    done = run_compose_env(path)
    assert done.returncode == 1
    assert "exists already" in done.stderr
    assert "it lacks KRAKE_SEARCH_PORT: add the line KRAKE_SEARCH_PORT=8090" in done.stderr
    assert path.read_text() == "KRAKE_WEB_PORT=1\n"
    assert "cannot be written" in run_compose_env(tmp_path / "no" / ".env").stderr


def test_half_a_file_of_passwords_is_not_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be kept as that of databases which were never made."""

    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fchmod", full)
    with pytest.raises(OSError, match="No space left"):
        compose_env.write(tmp_path / ".env")
    assert list(tmp_path.iterdir()) == []


def test_make_knows_the_target_and_git_ignores_the_file() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert "compose-env:\n\t@$(PYTHON) plugins/krake_airflow/compose_env.py .env\n" in makefile
    assert "/.env" in (ROOT / ".gitignore").read_text().splitlines()


# -- docker-compose.small.yml


class Tagged(yaml.SafeLoader):
    """Reads the tags by which Compose merges files: `!reset null`, `!override`."""


Tagged.add_constructor("!reset", lambda loader, node: "reset")
Tagged.add_constructor("!override", lambda loader, node: loader.construct_mapping(node, deep=True))
SMALL_FILE = yaml.load((ROOT / "docker-compose.small.yml").read_text(), Tagged)


def test_the_small_file_leaves_the_services_that_its_config_names() -> None:
    found = load_config(ROOT / "config" / "compose-small.yml")
    changed = SMALL_FILE["services"]
    left = {name for name in SERVICES if changed.get(name) != "reset"}
    assert sorted(found.servers) == sorted(left & set(NODES))
    assert sorted(found.key_storage.servers) == sorted(left & set(KEY_SERVERS))
    assert found.key_storage.replication == 1
    for name in left:
        waits_for = changed.get(name, {}).get("depends_on", SERVICES[name].get("depends_on", {}))
        assert set(waits_for) <= left, name
    assert set(changed["set-up"]["depends_on"]) == set(SERVICES["set-up"]["depends_on"]) & left
    for name in (left & set(OURS)) - {LIVE, "certificates", *FETCHERS}:  # of a config of its own
        assert changed[name]["environment"] == {
            "KRAKE_CONFIG_PATH": f"{HOME}/config/compose-small.yml"
        }


def test_the_small_config_differs_in_its_servers_alone() -> None:
    ours, small = (
        config().to_mapping(),
        load_config(ROOT / "config" / "compose-small.yml").to_mapping(),
    )
    different = {name for name in ours if ours[name] != small[name]}
    assert different == {"servers", "key_storage", "fetch"}
