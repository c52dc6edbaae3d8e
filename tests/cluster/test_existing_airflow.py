"""Krake added to an Airflow that is there already, by the commands of `docs/airflow.md`, in an environment of its own.

The constraints are Airflow's and its dependencies' versions in `requirements.lock`; `KRAKE_AIRFLOW_CONSTRAINTS` names
others, such as Airflow's own file.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from krake_airflow.settings import PROJECT

from crawl_lib.config import load_config
from crawl_lib.version import code_digest
from demo import Serving
from tests.dags.crawls import WEB, exported_bytes, exports
from tests.e2e.crawl import Result, make_config, run_crawl
from tests.test_readme import fences

pytestmark = pytest.mark.timeout(1200)
SECTION = (
    (PROJECT / "docs" / "airflow.md")
    .read_text()
    .partition("## Krake in an Airflow that you have\n")[2]
    .split("\n## ")[0]
)
AIRFLOW = "apache-airflow==3.3.2"
OWN = """
from airflow.sdk import dag, task

@task
def here():
    print("here")

@dag
def own():
    here()

own()
"""
ASK = """
from airflow.api_fastapi.app import create_app, get_auth_manager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from fastapi.testclient import TestClient

with TestClient(create_app()) as client:
    token = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username="reader", role="admin"))
    for headers in ({}, {"Authorization": f"Bearer {token}"}):
        answer = client.get("/krake/crawl/news", headers=headers)
        print("answer", answer.status_code, "rests after" in answer.text)
"""
"""Asks Airflow's own API server for the page, without a login and with one."""
UV = [str(Path(sys.executable).with_name("uv")), "pip"]


class Environment:
    """An environment of Python in a folder, without any variable that could help Krake."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        names = ("PATH", "LANG", "SSL_CERT_FILE", "PIP_CERT", "PIP_FIND_LINKS", "UV_CACHE_DIR")
        self.variables = {name: os.environ[name] for name in names if name in os.environ} | {
            "HOME": os.environ["HOME"],
            "AIRFLOW_HOME": str(folder / "airflow"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "PATH": f"{folder / 'venv' / 'bin'}:{os.environ['PATH']}",
            "VIRTUAL_ENV": str(folder / "venv"),
        }

    def run(self, *command: str, **more: str) -> str:
        """Run a command in the folder; returns what it printed."""
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.variables | more,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, f"{command}: {done.stdout[-3000:]} {done.stderr[-3000:]}"
        return done.stdout

    def versions(self) -> dict[str, str]:
        """What is installed."""
        return {
            one["name"]: one["version"]
            for one in json.loads(self.run(*UV, "list", "--format", "json"))
        }


@pytest.fixture(scope="module")
def constraints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Versions that the Airflow that is there was installed with."""
    if named := os.environ.get("KRAKE_AIRFLOW_CONSTRAINTS"):
        return Path(named)
    path = tmp_path_factory.mktemp("constraints") / "constraints-3.11.txt"
    path.write_text(
        "\n".join(
            re.findall(r"^[\w.-]+==\S+", (PROJECT / "requirements.lock").read_text(), re.MULTILINE)
        )
    )
    return path


@pytest.fixture(scope="module")
def existing(constraints: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An Airflow with a DAG of its own, and nothing of Krake."""
    environment = Environment(tmp_path_factory.mktemp("existing"))
    environment.run(UV[0], "venv", "--quiet", "--python", sys.executable, "venv")
    environment.run(*UV, "install", "--quiet", AIRFLOW, "--constraint", str(constraints))
    environment.run("airflow", "db", "migrate")
    dags = environment.folder / "airflow" / "dags"
    dags.mkdir()
    (dags / "own.py").write_text(OWN)
    return environment


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`make wheel`, of a copy of the checkout: another process may build there."""
    copy = tmp_path_factory.mktemp("checkout")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    built = Path("crawl_lib/parse/native/liblinks.so.1")
    for name in [*filter(None, listed.split("\0")), str(built)]:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes((PROJECT / name).read_bytes())
    [command] = re.findall(r"pip wheel .*", (PROJECT / "Makefile").read_text())
    subprocess.run([sys.executable, "-m", *command.split()], cwd=copy, check=True, timeout=600)
    [found] = (copy / "dist").glob("krake-*.whl")
    return found


@pytest.fixture(scope="module")
def added(existing: Environment, wheel: Path, constraints: Path) -> Environment:
    """The same, after the commands of the page."""
    before = existing.versions()
    assert "krake" not in before
    (existing.folder / wheel.name).symlink_to(wheel)
    [commands] = fences(SECTION, "sh")
    for line in commands.splitlines():
        command = re.sub(r"\s+#.*", "", line)
        command = re.sub(r"https://\S*/constraints-\S+\.txt", str(constraints), command)
        command = command.replace("pip install", " ".join([*UV, "install", "--quiet"]))
        existing.run("bash", "-c", command)
    after = existing.versions()
    assert "krake" in after
    assert {name: after[name] for name in before} == before, "what was there is as it was"
    return existing


@pytest.fixture
def web() -> Iterator[Serving]:
    with Serving(WEB) as serving:
        yield serving


def test_the_dags_of_both_are_there_and_only_the_config_was_named(added: Environment) -> None:
    config = added.folder / "crawls" / "news" / "news.yml"
    printed = added.run(
        "airflow", "dags", "list", "--local", "-o", "json", KRAKE_CONFIG_PATH=str(config)
    )
    found = json.loads(printed.strip().splitlines()[-1])  # a warning comes before
    assert {dag["dag_id"] for dag in found} == {"own", "news_crawl", "news_process"}
    assert not [name for name in added.variables if name.startswith(("PYTHON", "KRAKE"))]


def test_the_wheel_is_the_same_krake_as_the_checkout(added: Environment) -> None:
    """So machines of one crawl may have either."""
    printed = added.run(
        "python", "-c", "from crawl_lib.version import code_digest; print(code_digest())"
    )
    assert printed.strip() == code_digest()
    installed = added.run("python", "-c", "import crawl_lib; print(crawl_lib.__file__)")
    assert str(added.folder) in installed


def test_a_crawl_there_equals_one_of_the_checkout(
    added: Environment, web: Serving, tmp_path: Path
) -> None:
    file = added.folder / "crawls" / "news" / "news.yml"
    mapping: dict[str, Any] = yaml.safe_load(file.read_text())
    mapping["fetch"] |= {"allow_networks": ["127.0.0.0/8"], "host_delay_s": 0.0, "ip_delay_s": 0.0}
    file.write_text(yaml.safe_dump(mapping))
    given = json.dumps({"seeds": "\n".join(web.seeds), "iterations": 3})
    added.run("airflow", "dags", "test", "news_crawl", "--conf", given, KRAKE_CONFIG_PATH=str(file))
    config = load_config(file)
    assert set(Result(config).visited()) == set(web.truth().visits)
    expected = run_crawl(make_config(tmp_path, nodes=2, fetch={"host_delay_s": 0.0}), web.seeds)
    [export] = exports(config)
    assert exported_bytes(config, export) == exported_bytes(expected.config, expected.export)


def answers(added: Environment) -> list[str]:
    """Return what the API server of that Airflow answers for the page of the crawl."""
    file = added.folder / "crawls" / "news" / "news.yml"
    printed = added.run("python", "-W", "ignore", "-c", ASK, KRAKE_CONFIG_PATH=str(file))
    return [line for line in printed.splitlines() if line.startswith("answer")]


def test_the_page_comes_with_the_wheel(added: Environment) -> None:
    """Its templates, its script and its style too, which are no modules."""
    assert answers(added) == ["answer 401 False", "answer 200 True"]


def test_where_the_page_cannot_be_loaded_dags_still_run(added: Environment, web: Serving) -> None:
    """The last test here: the page is broken from now on."""
    [page] = added.folder.glob("venv/lib/python*/site-packages/krake_airflow/page/__init__.py")
    page.write_text("raise ImportError('the page is broken')")
    assert answers(added) == ["answer 200 False"] * 2, "Airflow's own page, as for any path"
    file = added.folder / "crawls" / "news" / "news.yml"
    before = set(exports(load_config(file)))
    given = json.dumps({"seeds": web.url(0, "/new"), "iterations": 1})
    added.run("airflow", "dags", "test", "news_crawl", "--conf", given, KRAKE_CONFIG_PATH=str(file))
    assert set(exports(load_config(file))) > before
