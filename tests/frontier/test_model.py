"""Random intakes, takes and advances, against a plain list; and the order of steps of a move under any break."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

from hypothesis import assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from crawl_lib.frontier import Queue, Shares, State, Take, TakeHeader
from crawl_lib.frontier.fairness import positions_of
from crawl_lib.frontier.queue import count_lines
from crawl_lib.repair.queue.queue import repair_queue
from tests.frontier.helpers import Keys, hand_made, held, run_in_child, source, take_in

WAITS_S = (0, 1, 50)
MOVES = ("written", "step", "step:2", "step:4", "state", "record", "done")
KILLS = (None, None, "take.put_back", *(f"queue.move.{step}" for step in MOVES))


class QueueMachine(RuleBasedStateMachine):
    """The queue is a list; a take is a part of its head; what is left over, then what was passed over, then what is
    tried again joins its end. `tries`: in how many takes each URL failed; `dues`: when it may be taken again."""

    @initialize()
    def begin(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="krake-model-"))
        self.queue = Queue(self.root / "n")
        self.queue.directory.mkdir()
        held(self.queue).queue.create()
        self.model: list[str] = []
        self.tries: Counter[str] = Counter()
        self.dues: dict[str, int] = {}
        self.now = 0
        self.takes = self.folders = self.urls = 0
        self.keys = Keys()

    def teardown(self) -> None:
        if hasattr(self, "root"):
            shutil.rmtree(self.root)

    def _fresh(self, count: int) -> list[str]:
        self.urls += count
        return [f"http://h{n % 3}.test/{n}" for n in range(self.urls - count, self.urls)]

    def _opened(self) -> Take | None:
        return Take.open(self.queue.directory)

    @precondition(lambda self: self._opened() is None)
    @rule(counts=st.lists(st.integers(0, 5), max_size=3), again=st.booleans(), local=st.booleans())
    def take_in(self, counts: list[int], again: bool, local: bool) -> None:
        batches = [self._fresh(count) for count in counts]
        known = (
            [f"http://h{n % 3}.test/{n}" for n in range(min(self.urls - sum(counts), 3))]
            if again
            else []
        )
        self.folders += 1
        sources = [
            source(str(self.folders), str(n), urls) for n, urls in enumerate([known, *batches])
        ]
        take_in(
            self.queue, self.keys, *sources, routing="local" if local else "host", chunk_lines=4
        )
        self.model += [url for urls in batches for url in urls]

    # A task takes in before it takes, and an intake adopts what people wrote.
    @precondition(lambda self: self._opened() is None and self.queue.is_ours())
    @rule(size=st.integers(0, 12), share=st.integers(1, 12), look_ahead=st.integers(12, 20))
    def take(self, size: int, share: int, look_ahead: int) -> None:
        self.takes += 1
        shares = Shares(size, lambda host: share, None, look_ahead, self.now, WAITS_S[-1])
        taken = held(self.queue).takes.make(shares, TakeHeader(str(self.takes), "r", 1, "1", 1))
        urls, passed = self._taken(taken)
        assert [item.queued.url for item in taken.urls()] == urls
        assert all(self.dues.get(url, 0) <= self.now for url in urls)
        assert len(urls) == size or all(self.dues.get(url, 0) > self.now for url in passed)
        assert len(urls) == size or taken.header.looked_at >= min(look_ahead, len(self.model))

    @rule(seconds=st.sampled_from(WAITS_S))
    def wait(self, seconds: int) -> None:
        self.now += seconds

    def _taken(self, taken: Take) -> tuple[list[str], list[str]]:
        """What a take has of the queue's head, and what it passed over."""
        chosen = {*positions_of(taken.header.runs)}
        looked_at = list(enumerate(self.model[: taken.header.looked_at]))
        return [url for at, url in looked_at if at in chosen], [
            url for at, url in looked_at if at not in chosen
        ]

    @precondition(lambda self: self._opened() is not None)
    @rule(
        data=st.data(),
        again=st.booleans(),
        wait_s=st.sampled_from(WAITS_S),
        kill_at=st.sampled_from(KILLS),
    )
    def advance(self, data: st.DataObject, again: bool, wait_s: int, kill_at: str | None) -> None:
        taken = self._opened()
        assert taken
        ends = data.draw(
            st.lists(st.sampled_from("lfd"), min_size=taken.count, max_size=taken.count)
        )
        left, failed = ([at for at, end in enumerate(ends) if end == wanted] for wanted in "lf")

        def work() -> None:
            tried = (
                replace(one, retries=one.retries + 1, due=self.now + wait_s)
                for one in taken.select(failed)
            )
            held(self.queue).takes.advance(taken, taken.select(left), tried)

        if kill_at is not None:
            run_in_child(work, kill_at)
        for _ in range(1 + again):
            work()
        held(self.queue.directory).takes.close()
        batch, passed = self._taken(taken)
        self.tries.update(batch[at] for at in failed)
        self.dues.update((batch[at], self.now + wait_s) for at in failed)
        self.model = self.model[taken.header.looked_at :] + [batch[at] for at in left] + passed
        self.model += [batch[at] for at in failed]

    @rule()
    def repair(self) -> None:
        repair_queue(held(self.queue))

    @precondition(lambda self: self._opened() is None and bool(self.model) and self.queue.is_ours())
    @rule(data=st.data())
    def replace_by_hand(self, data: st.DataObject) -> None:
        """The old meta stays there. It counts for a file with the same bytes as the old one, and for no other.

        Where `state` and the size of a file are as before, nobody can tell that the file is another one.
        """
        cut = data.draw(st.integers(0, len(self.model)))
        model = [*self._fresh(1), *self.model]
        # With `state.krake` one that does not begin with 0 is damage.
        gone = [] if self.queue.files.record.exists() else ["http://gone.test/"]
        made = hand_made(
            self.root / "made", [*gone, *model[: cut + 1]], model[cut + 1 :], processed=len(gone)
        ).directory
        old = {
            path.name: path.read_bytes()
            for path in self.queue.directory.iterdir()
            if path.name.isdecimal()
        }
        new = {path.name: path.read_bytes() for path in made.iterdir()}
        changed = {name for name, content in old.items() if new.get(name, content) != content}
        if (self.queue.directory / "state").read_bytes() == new["state"]:
            assume(all(len(old[name]) != len(new[name]) for name in changed))
        for name in old:
            (self.queue.directory / name).unlink()
        shutil.copytree(made, self.queue.directory, dirs_exist_ok=True)
        shutil.rmtree(made)
        self.model = model
        equal = {
            url for name in old.keys() & new.keys() - changed for url in old[name].decode().split()
        }
        self.tries = Counter({url: tries for url, tries in self.tries.items() if url in equal})
        self.dues = {url: due for url, due in self.dues.items() if url in equal}

    @invariant()
    def files_are_as_the_format_says(self) -> None:
        if not hasattr(self, "queue"):
            return
        state = State.parse((self.queue.directory / "state").read_bytes())
        assert (self.queue.directory / "state").read_bytes() == state.to_bytes()
        assert self.queue.files.data_files() == list(range(len(state.totals)))
        for number, total in enumerate(state.totals):
            assert self.queue.files.data(number).read_bytes().count(b"\n") == total
            meta = self.queue.directory / f"{number}.meta"
            if meta.exists() and number in self.queue.own_files(self.queue.record()):
                assert count_lines(meta) == total
        waiting = [*self.queue]
        wanted = [(url, self.tries[url], self.dues.get(url, 0)) for url in self.model]
        assert [(one.url, one.retries, one.due) for one in waiting] == wanted
        assert self.queue.length() == len(self.model)
        assert not (self.queue.directory / "move").exists()


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=20, stateful_step_count=15, deadline=None)
