"""`python -m tests.torture.live N`: kill a real-time service N times while URLs come in. Exit code 1 for findings.

Each kill is a SIGKILL of the scheduler, the fetcher or MariaDB. At the end: each URL with a 202 has a document, the
subscriber has seen each of these documents, no host was asked within its delay, and answers came within `BACK_S` after
each kill.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from crawl_lib.config import Config
from crawl_lib.errors import KrakeError
from crawl_lib.realtime import Client, TokenFile
from crawl_lib.realtime.tokens import RIGHTS
from demo import Serving, SynthWeb
from tests.contracts.mariadb import PASSWORD, MariaDb, start_mariadb
from tests.e2e.crawl import make_config, write_config
from tests.torture.children import adopt_orphans

BEGIN, END = "<!-- realtime:begin -->", "<!-- realtime:end -->"
RATE = 50.0
"""URLs a second."""
BATCH = 5
DELAY_S = 0.2
SITES = 80
BACK_S = 5.0
"""The most seconds from a process's return to answers."""
END_S = 180.0
"""The most seconds from the last kill to the last document."""
VICTIMS = ("scheduler", "fetcher", "MariaDB")


class Service:
    """`krake serve realtime`, started again after each death. `url`: of the API, by a free port."""

    def __init__(self, config: Config, folder: Path) -> None:
        self._config, self._folder = write_config(config, folder), folder
        self.process: subprocess.Popen[str] | None = None
        self.url = ""

    def start(self) -> None:
        """Start the service, and wait for its line."""
        command = [
            str(Path(sys.executable).with_name("krake")),
            "--config",
            str(self._config),
            "serve",
            "realtime",
        ]
        environment = {**os.environ, "KRAKE_KEY_STORAGE_PASSWORD": PASSWORD}
        with (self._folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
            )
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        assert said.startswith("real-time service: "), (self._folder / "log").read_text()[-3000:]
        self.url = said.split(": ")[1].strip()

    def kill(self) -> None:
        """Kill the scheduler; the fetcher dies with it."""
        assert self.process is not None
        self.process.kill()
        self._ended()

    def stop(self) -> None:
        """Stop the service in order."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self._ended()

    def _ended(self) -> None:
        assert self.process is not None
        self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def kill_fetcher(self) -> None:
        """Kill the process that writes a part of the spool, as soon as there is such a process."""
        while not (found := list(self._fetchers())):
            time.sleep(0.05)
        for number in found:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)

    def _fetchers(self) -> Iterator[int]:
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                with suppress(OSError):
                    names = [str(link.readlink()) for link in (folder / "fd").iterdir()]
                    if any(
                        name.startswith(str(self._folder)) and name.endswith(".warc.gz")
                        for name in names
                    ):
                        yield int(folder.name)


class Torture:
    """A service under a stream of URLs. `accepted`: URLs with a 202; `findings`: what must not be."""

    def __init__(self, folder: Path, seed: int, serving: Serving, server: MariaDb) -> None:
        database = server.new_database()
        server.run(f"CREATE DATABASE {database}")
        self.config = make_config(
            folder,
            nodes=1,
            urls={"scope": "any"},
            frontier={"order": "crawldb"},
            fetch={"host_delay_s": DELAY_S, "allow_networks": ["127.0.0.0/8"]},
            key_storage={"servers": [server.server], "database": database, "user": "krake"},
            realtime={"listen": "127.0.0.1:0", "tokens": str(folder / "tokens.json")},
        )
        self.rng, self.serving, self.server = random.Random(seed), serving, server
        self.service = Service(self.config, folder)
        self.token = TokenFile(self.config.realtime.tokens).add("torture", RIGHTS)
        self.pages = [url for url in serving.truth().visits if "robots" not in url]
        self.accepted: set[str] = set()
        self.seen: set[str] = set()
        self.findings: list[str] = []
        self.deaths: Counter[str] = Counter()
        self.back_s: list[float] = []
        self.submitted = 0
        self._last_id = "0"
        self._ends, self._is_over = threading.Event(), threading.Event()

    def run(self, kills: int) -> None:
        """Kill so often, then let all end."""
        self.service.start()
        threads = [
            threading.Thread(target=work, daemon=True) for work in (self._submit, self._follow)
        ]
        try:
            for thread in threads:
                thread.start()
            while self.deaths.total() < kills:
                time.sleep(self.rng.uniform(0.3, 2.0))
                self._kill(self.rng.choice(VICTIMS))
            self._ends.set()
            threads[0].join(60)
            self._wait_for_all()
        finally:
            self._is_over.set()
            self._ends.set()
            self.service.stop()
        for thread in threads:
            thread.join(60)
        self._check_delays()

    def _kill(self, victim: str) -> None:
        self.deaths[victim] += 1
        if victim == "fetcher":
            self.service.kill_fetcher()
        elif victim == "scheduler":
            self.service.kill()
            self.service.start()
        else:
            self.server.kill()
            time.sleep(self.rng.uniform(0.0, 1.0))
            self.server.start()
        began_s = time.monotonic()
        while not self._answers():
            time.sleep(0.02)
            if time.monotonic() - began_s > END_S:
                raise AssertionError(f"no answer {END_S:.0f} s after the death of {victim}")
        self.back_s.append(time.monotonic() - began_s)
        if self.back_s[-1] > BACK_S:
            self.findings.append(
                f"answers came {self.back_s[-1]:.1f} s after the return of {victim}"
            )

    def _answers(self) -> bool:
        """Say whether a URL is accepted, and a page read."""
        url = self._new_url(random.Random(time.monotonic_ns()))
        with suppress(KrakeError), Client(self.service.url, self.token, timeout_s=5) as client:
            (decision,) = client.submit([url])
            return decision.decision in {"new", "waiting"} and client.page(url) is not None
        return False

    def _new_url(self, rng: random.Random) -> str:
        site, number = rng.randrange(SITES), rng.getrandbits(48)
        return self.serving.url(site, f"/new?{number}")

    def _submit(self) -> None:
        """Submit `RATE` URLs a second, in an open loop: mostly new URLs, and pages again and again."""
        rng, began_s = random.Random(self.rng.random()), time.monotonic()
        while not self._ends.is_set():
            urls = [
                self._new_url(rng) if rng.random() < 0.8 else rng.choice(self.pages)
                for _ in range(BATCH)
            ]
            self.submitted += BATCH
            with suppress(KrakeError), Client(self.service.url, self.token, timeout_s=10) as client:
                found = client.submit(urls)
                self.accepted |= {
                    one.url for one in found if one.decision in {"new", "waiting", "known"}
                }
            self._ends.wait(max(0.0, began_s + self.submitted / RATE - time.monotonic()))

    def _follow(self) -> None:
        """Follow events over all lives of the service, by the last id."""
        while not self._is_over.is_set():
            with suppress(KrakeError), Client(self.service.url, self.token) as client:
                for event_id, page in client.events(self._last_id):
                    self.seen.add(page.url)
                    self._last_id = event_id
            self._is_over.wait(0.05)

    def _wait_for_all(self) -> None:
        """Wait until each accepted URL has a document and an event."""
        left, began_s = set(self.accepted), time.monotonic()
        while (left or self.accepted - self.seen) and time.monotonic() - began_s < END_S:
            with suppress(KrakeError), Client(self.service.url, self.token) as client:
                for part in _parts(sorted(left), 300):
                    left -= {page.url for page in client.pages(part) if page.document is not None}
            time.sleep(0.2)
        self.findings += [f"no document: {url}" for url in sorted(left)]
        self.findings += [f"no event: {url}" for url in sorted(self.accepted - self.seen - left)]

    def _check_delays(self) -> None:
        log = self.serving.log()
        for host in log.hosts():
            delay_s = max(DELAY_S, self.serving.web.delay_s(host.partition(":")[0]))
            if (gap_s := log.closest_gap_s(host)) < delay_s:
                self.findings.append(
                    f"{host}: asked again after {gap_s:.3f} s, with a delay of {delay_s} s"
                )

    def table(self) -> str:
        """Return the results in Markdown."""
        killed = ", ".join(f"{self.deaths[victim]} {victim}" for victim in VICTIMS)
        longest = max(self.back_s, default=0.0)
        rows = {
            f"accepted URLs without a document, of {len(self.accepted)}": self._found(
                "no document"
            ),
            "documents that the subscriber missed": self._found("no event"),
            "hosts asked within their delay": self._found("asked again"),
            f"returns of processes without answers for {BACK_S:.0f} s (longest {longest:.1f} s)": self._found(
                "answers"
            ),
        }
        head = [
            f"{self.deaths.total()} kills ({killed}), {RATE:.0f} URLs a second.",
            "",
            "| what must not be | found |",
        ]
        return "\n".join(
            [*head, "|---|---|", *(f"| {name} | {number} |" for name, number in rows.items())]
        )

    def _found(self, word: str) -> int:
        return sum(word in finding for finding in self.findings)


def _parts(urls: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(urls), size):
        yield urls[start : start + size]


@contextmanager
def torture(folder: Path, seed: int) -> Iterator[Torture]:
    """A service, a web, and MariaDB as operators have it: durable after each commit.

    The kernel may carry out asynchronous writes of a killed MariaDB while the next one recovers: that would damage the
    files, and is no matter of a crash of the machine.
    """
    options = ("--innodb-flush-log-at-trx-commit=1", "--innodb-use-native-aio=0")
    web = SynthWeb(seed=seed, sites=SITES, pages_per_site=4, specials=False)
    with Serving(web) as serving, start_mariadb(*options) as server:
        yield Torture(folder, seed, serving, server)


def write_report(path: Path, found: Torture, *, seed: int, seconds: float) -> None:
    """Put the table between the marks of a Markdown file."""
    before, _, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    command = f"make torture REALTIME={found.deaths.total()} SEED={seed}"
    made = f"Made by `{command}` in {seconds / 60:.0f} minutes. {found.table()}"
    path.write_text(f"{before}{BEGIN}\n{made}\n{END}{after}", encoding="utf-8")


def main() -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture.live", description=__doc__)
    parser.add_argument("kills", type=int, nargs="?", default=20, help="how many kills")
    parser.add_argument(
        "--seed", type=int, default=1, help="number that URLs, victims and pauses follow from"
    )
    parser.add_argument(
        "--report", type=Path, help="a Markdown file whose table of results is written again"
    )
    given = parser.parse_args()
    adopt_orphans()
    began_s, folder = time.monotonic(), Path(tempfile.mkdtemp(prefix="krake-torture-"))
    with torture(folder, given.seed) as found:
        found.run(given.kills)
    sys.stdout.write(
        "\n".join([found.table(), *(f"FINDING {finding}" for finding in found.findings), ""])
    )
    if found.findings:
        sys.stdout.write(f"files: {folder}\n")
        return 1
    shutil.rmtree(folder)
    if given.report:
        write_report(given.report, found, seed=given.seed, seconds=time.monotonic() - began_s)
    return 0


if __name__ == "__main__":
    sys.exit(main())
