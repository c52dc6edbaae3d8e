"""Which death an attempt gets: all steps and all instants of every kind of task get their share."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Protocol

from tests.torture.children import Ended, Kill

KILL_AGAIN = {"crawl": 0.92, "settle": 0.85, "export": 0.9, "linker": 0.85}
"""The chance that an attempt at a task is killed, by kind; the longer it takes, the greater."""
KILL_AGAIN_ELSE = 0.7
MOST_KILLS_OF_A_TASK = 6
BY_STEP = 0.45
ONLY_AFTER_A_KILL = {"crawl": ("segment.part.recovered",)}
"""Steps that an unbroken run never reaches."""
RECOVERABLE = "segment.part.log_synced"
"""Killed there, a crawl has something to recover."""


class Killer(Protocol):
    """Who says which attempts die."""

    def next(self, kind: str, killed: int) -> Kill | None:
        """How the next attempt at a task of this kind dies, which was killed `killed` times; None: it lives."""

    def died(self, kind: str, ended: Ended, kill: Kill | None) -> None:
        """An attempt that was to be killed has ended, maybe before that."""


@dataclass
class Unbroken:
    """What an unbroken run showed of each kind of task: how long it takes, and how often it reaches which step."""

    seconds: dict[str, float] = field(default_factory=dict)
    steps: dict[str, Counter[str]] = field(default_factory=dict)

    def note(self, kind: str, ended: Ended) -> None:
        """One attempt that was not killed."""
        self.seconds[kind] = max(self.seconds.get(kind, 0.0), ended.end - ended.start)
        known = self.steps.setdefault(kind, Counter())
        known |= Counter(ended.steps)


class Chance:
    """Kills by chance, until there were `wanted`."""

    def __init__(
        self, known: Unbroken, rng: random.Random, wanted: int, *, power: bool = False
    ) -> None:
        self._known, self._rng, self._left, self._power = known, rng, wanted, power

    def next(self, kind: str, killed: int) -> Kill | None:
        """See Killer."""
        rng = self._rng
        if (
            self._left <= 0
            or killed >= MOST_KILLS_OF_A_TASK
            or rng.random() >= KILL_AGAIN.get(kind, KILL_AGAIN_ELSE)
        ):
            return None
        steps = [
            *self._known.steps[kind].items(),
            *((step, 1) for step in ONLY_AFTER_A_KILL.get(kind, ())),
        ]
        if steps and rng.random() < BY_STEP:
            step, times = rng.choice(steps)
            return Kill(step=f"{step}:{rng.randint(1, times)}", at_once=self._power)
        whom = "group"
        if kind == "crawl" and not self._power:
            whom = rng.choices(("group", "parent", "server", "worker"), (12, 2, 1, 1))[0]
        return Kill(after_s=rng.random() * self._known.seconds[kind] * 1.05, whom=whom)

    def died(self, kind: str, ended: Ended, kill: Kill | None) -> None:
        """See Killer."""
        self._left -= ended.killed


class EveryStep:
    """One kill at every durable step of every kind of task, in the order in which they come."""

    def __init__(self, known: Unbroken) -> None:
        self.left = {kind: list(steps) for kind, steps in known.steps.items()}
        crawl = self.left["crawl"]
        crawl[crawl.index(RECOVERABLE) + 1 : 0] = ONLY_AFTER_A_KILL["crawl"]

    def next(self, kind: str, killed: int) -> Kill | None:
        """See Killer."""
        left = self.left.get(kind)
        return Kill(step=left[0]) if left else None

    def died(self, kind: str, ended: Ended, kill: Kill | None) -> None:
        """See Killer. A step that an attempt did not reach comes last, and is tried again."""
        left = self.left[kind]
        if not ended.killed:
            left.append(left.pop(0))
        elif ended.last_step(kill) in left:
            left.remove(ended.last_step(kill))
