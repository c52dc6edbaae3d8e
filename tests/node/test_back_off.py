"""A host in back-off is passed over by take after take, until it is over, and `krake status` shows it."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from http.server import HTTPServer
from pathlib import Path
from typing import Any

import pytest

from crawl_lib import stages
from crawl_lib.cli import main
from crawl_lib.config import Config
from crawl_lib.fetch import HostStore
from crawl_lib.fetch.hoststore import NO_BACK_OFF, BackOff
from crawl_lib.frontier import Queue
from crawl_lib.node import shares
from crawl_lib.repair import fsck
from crawl_lib.stores import open_stores
from tests.e2e.crawl import Result, make_config, run_iteration, write_config
from tests.frontier.helpers import held
from tests.serving import Answering, running

NODE, BUSY, FINE = "node-0", "127.0.0.1", "127.0.0.2"
ASKED_S = 7200
BATCH = 4


class Server(HTTPServer):
    is_busy = False
    asked = 0


class _Answers(Answering):
    server: Server

    def do_GET(self) -> None:
        self.server.asked += 1
        is_busy = self.server.is_busy
        self.answer(
            503 if is_busy else 200, headers={"Retry-After": str(ASKED_S) if is_busy else None}
        )


def serving(address: str) -> AbstractContextManager[Server]:
    return running(Server((address, 0), _Answers))


def inject(config: Config, server: Server, count: int) -> None:
    urls = [
        f"http://{server.server_address[0]}:{server.server_address[1]}/{page}"
        for page in range(count)
    ]
    stages.inject(open_stores(config), run_id="r", seeds="\n".join(urls))


def back_off_shown(config: Config) -> dict[str, Any] | None:
    shown: dict[str, Any] | None = stages.status_of(config)["queues"][NODE].get("back_off")
    return shown


def rows(config: Config) -> list[tuple[str, int]]:
    """Outcome and tries of all that was fetched, in order."""
    return [
        (row["outcome"], row["attempts"])
        for row in Result(config).rows("pages", ["outcome", "attempts"])
    ]


def test_a_busy_host_is_passed_over_until_its_back_off_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also those of its URLs that were in no batch yet, and where the batch is not full."""
    config = make_config(
        tmp_path,
        nodes=1,
        fetch={"host_delay_s": 0.0, "robots": "ignore"},
        batch={"size": BATCH},
        retry={"max": 4},
    )
    queue = Queue(Path(config.queue.local_dir) / NODE, NODE)
    with serving(BUSY) as busy, serving(FINE) as fine:
        busy.is_busy = True
        inject(config, busy, 2 * BATCH)
        assert sum(run_iteration(config, "r", 1)["retried"].values()) == BATCH
        assert rows(config) == [("server_error", 1), *[("host_gave_up", 0)] * (BATCH - 1)]
        waiting = list(queue)
        assert [url.retries for url in waiting] == [0] * (2 * BATCH - 1) + [1]
        pages = [url.url.rpartition("/")[2] for url in waiting]
        assert pages[BATCH:] == ["1", "2", "3", "0"], "what was not tried is before what was"
        assert all(url.due >= time.time() + ASKED_S - 60 for url in waiting[BATCH:])

        inject(config, fine, 1)
        counts = run_iteration(config, "r", 2)
        assert (counts["taken"], counts["passed_over"], busy.asked) == (1, 2 * BATCH, 1)
        with HostStore(queue.files.hosts) as hosts:
            until = hosts.back_off(BUSY).until
        day = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(until))
        assert back_off_shown(config) == {"hosts": 1, "until": {BUSY: day}}
        main(["--config", str(write_config(config, tmp_path)), "status"])
        assert f"hosts in back-off: 1 ({BUSY} until {day})" in " ".join(
            capsys.readouterr().out.split()
        )
        assert fsck(open_stores(config)).findings == []

        busy.is_busy = False
        monkeypatch.setattr(shares, "time", lambda: until - 1.0)
        assert run_iteration(config, "r", 3)["taken"] == 0
        monkeypatch.setattr(shares, "time", lambda: until + 1.0)
        with HostStore(
            queue.files.hosts
        ) as hosts:  # for the processes, which have a clock of their own
            hosts.save_back_off(BUSY, BackOff(time.time() - 1.0, 1))
        assert run_iteration(config, "r", 4)["outcomes"] == {"ok": BATCH}
        assert run_iteration(config, "r", 5)["outcomes"] == {"ok": BATCH}
    with HostStore(queue.files.hosts) as hosts:
        assert hosts.back_off(BUSY) == NO_BACK_OFF
    assert back_off_shown(config) is None
    assert queue.length() == 0


def test_the_first_hosts_are_shown_and_all_are_counted(tmp_path: Path) -> None:
    """What cannot be read is said; the node's task, and `krake fsck`, name the file, too."""
    config = make_config(tmp_path, nodes=1)
    queue = Queue(Path(config.queue.local_dir) / NODE, NODE)
    assert back_off_shown(config) is None
    queue.files.hosts.mkdir(parents=True)
    held(queue).queue.create()
    now = time.time()
    with HostStore(queue.files.hosts) as hosts:
        for number in range(20):
            hosts.save_back_off(f"h{number:02}.test", BackOff(now + 1000.0 - number, 1))
    shown = back_off_shown(config)
    assert shown is not None
    assert (shown["hosts"], list(shown["until"])) == (
        20,
        [f"h{number}.test" for number in (19, 18, 17, 16, 15)],
    )
    (queue.files.hosts / "hosts.sqlite").write_bytes(b"no data base" * 100)
    assert "hosts.sqlite" in stages.status_of(config)["queues"][NODE]["error"]
