"""Which death an attempt gets: all steps and all instants of every kind of task get their share."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from tests.torture.children import Kill

MOST_KILLS_OF_A_TASK = 6
KILL_AGAIN = {"crawl": 0.92, "settle": 0.85, "export": 0.9, "linker": 0.85}
"""The chance that an attempt at a task is killed, by kind, until it was killed so often; the longer, the greater."""
KILL_AGAIN_ELSE = 0.7
ONLY_AFTER_A_KILL = {"crawl": ("segment.part.recovered",)}
"""Steps that an unbroken run never reaches."""


@dataclass
class Unbroken:
    """What an unbroken run showed of each kind of task: how long it takes, and how often it reaches which step."""

    seconds: dict[str, float] = field(default_factory=dict)
    steps: dict[str, Counter[str]] = field(default_factory=dict)

    def note(self, kind: str, seconds: float, steps: tuple[str, ...]) -> None:
        """One attempt that was not killed."""
        self.seconds[kind] = max(self.seconds.get(kind, 0.0), seconds)
        known = self.steps.setdefault(kind, Counter(dict.fromkeys(ONLY_AFTER_A_KILL.get(kind, ()), 1)))
        known |= Counter(steps)

    def choose(self, kind: str, rng: random.Random, power: bool) -> Kill:
        """How the next attempt at a task of this kind dies. `power`: all processes at the same instant."""
        steps = sorted(self.steps[kind].items())
        if steps and rng.random() < 0.45:
            step, times = rng.choice(steps)
            return Kill(step=f"{step}:{rng.randint(1, times)}", at_once=power)
        whom = "group"
        if kind == "crawl" and not power:
            whom = rng.choices(("group", "parent", "worker"), (8, 1, 1))[0]
        return Kill(after_s=rng.uniform(0.0, 1.0) * self.seconds[kind] * 1.05, whom=whom)
