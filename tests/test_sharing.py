"""How processes share the tests: half of them compute, and what takes longest begins first."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.sharing import LONGEST_FIRST, TOGETHER, WAITING, Scheduling, place_of

ROOT = Path(__file__).parents[1]
FILES = [f"tests/{folder}/test_{number}.py" for folder in ("node", "urls") for number in range(4)]


class Process:
    """As much of a process as a scheduler asks for. `given`: numbers of tests."""

    shutting_down = False

    def __init__(self) -> None:
        self.gateway = SimpleNamespace(id=f"process {id(self)}", spec="")
        self.given: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.given += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def test_what_is_named_exists() -> None:
    assert [
        path for path in (*TOGETHER, *WAITING, *LONGEST_FIRST) if not (ROOT / path).exists()
    ] == []


def test_half_of_the_processes_compute() -> None:
    tests = [f"{file}::test_{number}" for file in FILES for number in range(3)]
    config: Any = SimpleNamespace(
        getvalue=lambda _: ["4*popen"], option=SimpleNamespace(loadscopereorder=False)
    )
    scheduling = Scheduling(config)
    processes = [Process() for _ in range(4)]
    for process in processes:
        scheduling.add_node(process)
        scheduling.add_node_collection(process, tests)
    scheduling.schedule()

    def computing() -> list[bool]:
        return [tests[process.given[-1]].startswith("tests/urls") for process in processes]

    assert sorted(computing()) == [False, False, True, True]
    before = computing()
    for process in processes:
        for index in list(process.given):
            scheduling.mark_test_complete(process, index)
    assert computing() == before
    assert sorted(number for process in processes for number in process.given) == list(
        range(len(tests))
    )


def test_a_folder_that_one_process_has_begins_first() -> None:
    first = place_of("tests/dags/test_alone.py::test_it")
    assert (
        first
        == place_of("tests/dags/test_recrawl.py::test_it")
        < place_of("tests/urls/test_links.py::test_it")
    )
    assert place_of("tests/urls/test_links.py::test_it") < place_of(
        "tests/urls/test_other.py::test_it"
    )
