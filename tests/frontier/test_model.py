"""Random intakes, takes and advances, against a plain list; and the order of steps of a move under any break."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from crawl_lib.frontier import Queue, Take, TakeHeader, advance, close_take, make_take, open_take
from crawl_lib.frontier.queue import count_lines, parse_state
from crawl_lib.repair.queue.queue import repair_queue
from tests.frontier.helpers import Keys, hand_made, source, take_in, to_be_adopted, urls_of


class QueueMachine(RuleBasedStateMachine):
    """The queue is a list; a take is a slice of it; what is left over joins its end."""

    @initialize()
    def begin(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="krake-model-"))
        self.queue = Queue(self.root / "n")
        self.queue.directory.mkdir()
        self.queue.create()
        self.model: list[str] = []
        self.takes = self.folders = self.urls = 0
        self.keys = Keys()

    def teardown(self) -> None:
        if hasattr(self, "root"):
            shutil.rmtree(self.root)

    def _fresh(self, count: int) -> list[str]:
        self.urls += count
        return [f"http://h{n % 3}.test/{n}" for n in range(self.urls - count, self.urls)]

    def _opened(self) -> Take | None:
        return open_take(self.queue.directory)

    @precondition(lambda self: self._opened() is None)
    @rule(counts=st.lists(st.integers(0, 5), max_size=3), again=st.booleans(), local=st.booleans())
    def take_in(self, counts: list[int], again: bool, local: bool) -> None:
        batches = [self._fresh(count) for count in counts]
        known = [f"http://h{n % 3}.test/{n}" for n in range(min(self.urls - sum(counts), 3))] if again else []
        self.folders += 1
        sources = [source(str(self.folders), str(n), urls) for n, urls in enumerate([known, *batches])]
        take_in(self.queue, self.keys, *sources, routing="local" if local else "host", chunk_lines=4)
        self.model += [url for urls in batches for url in urls]

    @precondition(lambda self: self._opened() is None)
    @rule(size=st.integers(0, 12))
    def take(self, size: int) -> None:
        self.takes += 1
        taken = make_take(self.queue, size, TakeHeader(str(self.takes), "r", 1, "1", 1))
        assert [item.queued.url for item in taken.urls()] == self.model[:size]

    @precondition(lambda self: self._opened() is not None)
    @rule(data=st.data(), again=st.booleans())
    def advance(self, data: st.DataObject, again: bool) -> None:
        taken = self._opened()
        assert taken
        left = data.draw(st.sets(st.integers(0, max(taken.count - 1, 0)), max_size=taken.count))
        for _ in range(1 + again):
            advance(self.queue, taken, taken.select(left))
        close_take(self.queue.directory)
        batch, rest = self.model[: taken.count], self.model[taken.count :]
        self.model = rest + [url for place, url in enumerate(batch) if place in left]

    @rule()
    def repair(self) -> None:
        repair_queue(self.queue)

    @precondition(lambda self: self._opened() is None and bool(self.model))
    @rule(data=st.data())
    def replace_by_hand(self, data: st.DataObject) -> None:
        cut = data.draw(st.integers(0, len(self.model)))
        for path in self.queue.directory.iterdir():
            if path.name.isdecimal():
                path.unlink()
        hand_made(self.queue.directory, ["http://gone.test/", *self.model[:cut]], self.model[cut:], processed=1)
        if (self.queue.directory / "state.krake").exists():
            to_be_adopted(self.queue.directory)

    @invariant()
    def files_are_as_the_format_says(self) -> None:
        if not hasattr(self, "queue"):
            return
        state = parse_state((self.queue.directory / "state").read_bytes())
        assert (self.queue.directory / "state").read_bytes() == state.to_bytes()
        assert self.queue.files.data_files() == list(range(len(state.totals)))
        for number, total in enumerate(state.totals):
            assert self.queue.files.data(number).read_bytes().count(b"\n") == total
            meta = self.queue.directory / f"{number}.meta"
            if meta.exists() and number in self.queue.own_files(self.queue.record()):
                assert count_lines(meta) == total
        assert urls_of(self.queue) == self.model
        assert self.queue.length() == len(self.model)
        assert not (self.queue.directory / "move").exists()


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=20, stateful_step_count=15, deadline=None)
