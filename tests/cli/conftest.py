"""`krake` as a function: run a command in this process, and get its exit code and what it printed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from crawl_lib import cli
from demo import Serving, SynthWeb


@dataclass(frozen=True)
class Done:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def error(self) -> str:
        """The one line of an error; lines of progress, or of waiting for somebody, may come before it."""
        assert self.code == 1, (self.code, self.out, self.err)
        *before, line = self.err.splitlines()
        assert all(
            one.startswith(("config: ", "node ", "stage ", "waiting for ")) for one in before
        ), self.err
        assert line.startswith("krake: ")
        return line.removeprefix("krake: ")


class Krake:
    """A crawl directory with its config; calling it runs `krake --config FILE ...`."""

    def __init__(self, directory: Path, run: Callable[[list[str]], Done]) -> None:
        self.directory = directory
        self.file = directory / "krake.yml"
        self._run = run

    def configure(self, **sections: Any) -> None:
        """Write the config: two nodes, loopback allowed, no delays; `sections` replace what is given."""
        mapping: dict[str, Any] = {
            "servers": ["node-a", "node-b"],
            "dfs_primary": "dfs",
            "key_storage": {"servers": ["keys/0.sqlite"]},
            "queue": {"local_dir": "queue", "lock_timeout_s": 0.2},
            "scratch": {"directory": "scratch"},
            "urls": {"scope": "hosts"},
            "crawl": {"max_iterations": 8},
            "fetch": {
                "contact": "tests@localhost",
                "host_delay_s": 0.0,
                "ip_delay_s": 0.0,
                "processes": 1,
                "allow_networks": ["127.0.0.0/8"],
            },
        }
        self.file.write_text(yaml.safe_dump({**mapping, **sections}))

    def change(self, **sections: Any) -> None:
        """Replace sections of the config."""
        given = yaml.safe_load(self.file.read_text())
        self.file.write_text(yaml.safe_dump({**given, **sections}))

    def __call__(self, *words: str) -> Done:
        return self._run(["--config", str(self.file), *words])

    def ok(self, *words: str) -> Done:
        done = self(*words)
        assert done.code == 0, (words, done.out, done.err)
        return done

    def status(self) -> dict[str, Any]:
        found = self.ok("status", "--json").json
        assert isinstance(found, dict)
        return found


def run_in_process(capsys: pytest.CaptureFixture[str], words: list[str]) -> Done:
    capsys.readouterr()
    code = cli.main(words)
    out, err = capsys.readouterr()
    return Done(code, out, err)


@pytest.fixture
def krake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Krake:
    found = Krake(tmp_path, lambda words: run_in_process(capsys, words))
    found.configure()
    return found


@pytest.fixture(scope="session")
def serving() -> Iterator[Serving]:
    with Serving(SynthWeb(seed=5, sites=2, pages_per_site=6, specials=False)) as found:
        yield found
