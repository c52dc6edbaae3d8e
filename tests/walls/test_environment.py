"""What fetching processes inherit: a short list of variables. No secret of the task is in their reach, or ever was."""

from __future__ import annotations

import os
import random
import re
import secrets
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl_lib import stages
from crawl_lib.rounds import start_iteration
from crawl_lib.stores import open_stores
from crawl_lib.walls import clean_environment, fork_server
from crawl_lib.walls.sandbox import LET_THROUGH
from demo import Serving, SynthWeb
from tests.e2e.crawl import make_config, run_iteration
from tests.torture.children import children_of

WEB = SynthWeb(seed=5, sites=1, pages_per_site=8, specials=False)
KNOWN = (
    *(
        "KRAKE_KEY_STORAGE_PASSWORD",
        "AIRFLOW__API_AUTH__JWT_SECRET",
        "AIRFLOW__CORE__FERNET_KEY",
        "AIRFLOW_CONN_KEYS",
    ),
    *(
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN",
        "AWS_SECRET_ACCESS_KEY",
        "KRB5_CLIENT_KTNAME",
        "HADOOP_TOKEN",
    ),
    *(
        "http_proxy",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "NO_PROXY",
        "SSLKEYLOGFILE",
        "LD_PRELOAD",
        "PYTHONSTARTUP",
    ),
)
PARTS = (
    "KRAKE",
    "AIRFLOW__",
    "PYTHON",
    "LC_",
    "SSL_",
    "SECRET",
    "TOKEN",
    "PWD",
    "_",
    "KEY",
    "PROXY",
    "x",
    "1",
)
SUSPICIOUS = re.compile(r"AIRFLOW|CONN|CRED|KEY|PASS|PRELOAD|PROXY|PWD|SECRET|TOKEN")


def drawn_names(seed: int, count: int) -> list[str]:
    """Names that somebody may give a secret tomorrow."""
    draw = random.Random(seed)
    names = {"A" + "".join(draw.choices(PARTS, k=draw.randint(1, 4))) for _ in range(count)}
    return sorted(names - LET_THROUGH)


def memory(pid: int) -> Iterator[bytes]:
    """What a process has in its memory, but for files that it only reads."""
    with (
        Path(f"/proc/{pid}/maps").open() as maps,
        Path(f"/proc/{pid}/mem").open("rb", buffering=0) as mem,
    ):
        for line in maps:
            place, rights = line.split()[:2]
            start, end = (int(word, 16) for word in place.split("-"))
            if rights.startswith("rw") and "[v" not in line:
                mem.seek(start)
                yield mem.read(end - start)


def holds(pid: int, text: str) -> list[str]:
    """Where a process holds a text."""
    found = [
        name
        for name in ("environ", "cmdline")
        if text.encode() in Path(f"/proc/{pid}/{name}").read_bytes()
    ]
    return found + ["memory" for block in memory(pid) if text.encode() in block]


def open_files(pid: int, directory: Path) -> list[str]:
    """Files below a directory that a process has open, by their names in the node's."""
    targets = {str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()}
    node = f"{directory}/queue/node-0/"
    return sorted(
        target.removeprefix(node) for target in targets if target.startswith(str(directory))
    )


def test_no_secret_of_the_task_is_in_its_fetching_processes_or_their_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its variable is called. What is let through is found by the same search."""
    mark, harmless = secrets.token_hex(16), f"ndots:{secrets.randbelow(1 << 60)}"
    for name in (*KNOWN, *drawn_names(1, 200)):
        if name not in ("LD_PRELOAD", "NO_PROXY"):  # these would change what the test itself does
            monkeypatch.setenv(name, f"{mark}{secrets.token_hex(8)}")
    monkeypatch.setenv("RES_OPTIONS", harmless)
    config = make_config(tmp_path, nodes=1, fetch={"host_delay_s": 0.7})
    found: dict[str, list[str]] = {}

    def on_progress(progress: Mapping[str, Any]) -> None:
        if progress["phase"] == "fetch" and progress["fetched"] and not found:
            server = fork_server().process.pid
            [worker] = children_of(server)
            os.kill(worker, signal.SIGSTOP)  # it has time while it is looked at
            found.update({"server": holds(server, mark), "worker": holds(worker, mark)})
            found["harmless"] = sorted({*holds(server, harmless), *holds(worker, harmless)})
            found["files of the server"] = open_files(server, tmp_path)
            found["files"] = [
                name
                for name in open_files(worker, tmp_path)
                if not name.startswith(("hosts/", "spool/"))
            ]
            os.kill(worker, signal.SIGCONT)

    with Serving(WEB) as serving:
        stages.inject(open_stores(config), run_id="run", seeds=serving.seeds[0])
        run_iteration(config, "run", 1)
        start_iteration(open_stores(config), run_id="run", iteration=2)
        stages.crawl_node(
            open_stores(config, on_progress=on_progress), run_id="run", iteration=2, node="node-0"
        )
    assert found == {
        "server": [],
        "worker": [],
        "harmless": ["environ", "memory"],
        "files of the server": [],
        "files": ["lock", "worker-0.log"],
    }


@given(st.dictionaries(st.text(min_size=1) | st.sampled_from([*KNOWN, *LET_THROUGH]), st.text()))
def test_only_what_is_listed_is_let_through_as_it_is(environ: dict[str, str]) -> None:
    expected = {name: value for name, value in environ.items() if name in LET_THROUGH}
    assert clean_environment(environ) == expected


def test_nothing_that_is_let_through_is_named_like_a_secret_or_a_proxy() -> None:
    assert [name for name in LET_THROUGH if SUSPICIOUS.search(name.upper())] == []
    assert not LET_THROUGH & {*KNOWN}
