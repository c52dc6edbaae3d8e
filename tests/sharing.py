"""How the processes of `make test` share the tests: which begin first, and which run at the same time (pytest-xdist).

Two cores have something to do as long as two of the processes compute, while tests of the others wait for delays,
retries and servers. So a process that is free gets tests that wait if enough others compute, else tests that compute.
"""

from __future__ import annotations

from xdist.scheduler import LoadFileScheduling

TOGETHER = ("tests/dags/", "tests/keys/")
"""Folders that one process has: their tests share what takes seconds to load or to start, Airflow and MariaDB."""
WAITING = (
    *(
        f"tests/{folder}/"
        for folder in ("cli", "curate", "dags", "e2e", "fetch", "keys", "node", "rounds")
    ),
    "tests/repair/test_keys.py",
    "tests/repair/test_stops.py",
    "tests/repair/test_two_machines.py",
)
"""Folders and files whose tests wait for most of their time."""
LONGEST_FIRST = (
    "tests/dags/",
    "tests/e2e/test_synthetic_web.py",
    "tests/keys/",
    "tests/node/test_retries.py",
    "tests/node/test_kill_at_every_step.py",
    "tests/curate/test_retry.py",
    "tests/e2e/test_shared_turns.py",
    "tests/e2e/test_rules_by_scope.py",
    "tests/repair/test_damages.py",
    "tests/torture/test_short.py",
    "tests/torture/test_planted.py",
    "tests/frontier/test_kill.py",
    "tests/repair/test_random_damage.py",
    "tests/crawldb/test_schedule.py",
    "tests/crawldb/test_orphans_and_seeds.py",
    "tests/crawldb/test_grouping.py",
    "tests/crawldb/test_generate.py",
    "tests/linkdb/test_large.py",
    "tests/worker/test_large_pages.py",
    "tests/text/test_stage.py",
    "tests/torture/test_operators.py",
    "tests/urls/test_links.py",
    "tests/worker/test_memory.py",
)
"""What takes longest: it would have the others wait at the end."""


def share_of(nodeid: str) -> str:
    """What a test is given to a process with: its file, or a folder of `TOGETHER`."""
    file = nodeid.partition("::")[0]
    return next((folder for folder in TOGETHER if file.startswith(folder)), file)


def place_of(nodeid: str) -> int:
    """Where a test is in the order of all."""
    share = share_of(nodeid)
    return LONGEST_FIRST.index(share) if share in LONGEST_FIRST else len(LONGEST_FIRST)


class Scheduling(LoadFileScheduling):  # type: ignore[misc]
    """Shares of tests, so that at most half of the processes have those that compute, until no others are left."""

    def _split_scope(self, nodeid: str) -> str:
        return share_of(nodeid)

    def _assign_work_unit(self, node: object) -> None:
        newest = [
            next(reversed(given))
            for other, given in self.assigned_work.items()
            if given and other is not node
        ]
        computing = sum(not share.startswith(WAITING) for share in newest)
        waits = computing >= len(self.assigned_work) // 2
        wanted = (share for share in self.workqueue if share.startswith(WAITING) is waits)
        if share := next(wanted, None):
            self.workqueue.move_to_end(share, last=False)
        super()._assign_work_unit(node)
