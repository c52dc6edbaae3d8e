"""What a node remembers of hosts: times, robots answers, and whether the last stop was clean."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from crawl_lib.errors import StorageError
from crawl_lib.fetch import HostRow, HostStore, RobotsRow


class Wall:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def test_rows_come_back_in_another_process_of_the_node(tmp_path):
    with HostStore(tmp_path) as one, HostStore(tmp_path) as other:
        one.save_hosts([HostRow("a.test", 5.0, 1.0), HostRow("b.test", 6.0, 9.0)])
        assert other.host("b.test") == HostRow("b.test", 6.0, 9.0)
        assert other.host("c.test") is None
        row = RobotsRow("http://a.test", "rules", b"\xff\x00", "", 1.0, 2.0)
        other.save_robots(row, HostRow("a.test", 7.0, 3.0))
        assert one.robots("http://a.test") == row
        assert one.robots("https://a.test") is None
        assert one.host("a.test") == HostRow("a.test", 7.0, 3.0)


def test_a_host_time_never_goes_back(tmp_path):
    with HostStore(tmp_path) as store:
        store.save_hosts([HostRow("a.test", 5.0, 1.0)])
        store.save_hosts([HostRow("a.test", 4.0, 2.0)])
        assert store.host("a.test") == HostRow("a.test", 5.0, 2.0)


def test_a_clean_stop_holds_nobody(tmp_path):
    with HostStore(tmp_path, wall=Wall()) as store:
        assert store.begin() is False
        store.finish()
        assert store.begin() is False
        assert store.hold_from() == 0.0


def test_an_unclean_stop_holds_every_host_from_now(tmp_path):
    wall = Wall()
    with HostStore(tmp_path, wall=wall) as store:
        store.begin()
    wall.now += 50
    with HostStore(tmp_path, wall=wall) as store:
        assert store.begin() is True
        assert store.hold_from() == wall.now


def test_a_killed_process_leaves_the_mark_and_its_robots_answers(tmp_path):
    code = (
        "import os, sys; from pathlib import Path; from crawl_lib.fetch import *\n"
        "store = HostStore(Path(sys.argv[1])); store.begin()\n"
        "store.save_robots(RobotsRow('http://a.test', 'rules', b'x', '', 1.0, 2e9), HostRow('a.test', 4e9, 7.0))\n"
    )
    root = Path(__file__).resolve().parents[2]
    killed = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=root, env={**os.environ, "KRAKE_KILL_AT": "hosts.robots"}
    )
    assert killed.returncode == -9
    with HostStore(tmp_path) as store:
        assert store.begin() is True
        assert store.robots("http://a.test").body == b"x"
        assert store.host("a.test").delay_s == 7.0


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / "hosts.sqlite").write_bytes(b"this is no database" * 100)
    with pytest.raises(StorageError, match=r"hosts\.sqlite"):
        HostStore(tmp_path)
