"""What a run of the harness found, as a table."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.torture.rounds import Round
from tests.torture.tasks import KINDS

BEGIN, END = "<!-- torture:begin -->", "<!-- torture:end -->"
BEFORE_ANY = "before the first"


@dataclass
class Tally:
    """Sums over rounds."""

    rounds: int = 0
    deaths: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By kind of task and the durable step reached last."""
    at_steps: Counter[str] = field(default_factory=Counter)
    flavours: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    refetched: int = 0
    urls: int = 0

    @property
    def killed(self) -> int:
        """Kills so far."""
        return self.deaths.total()

    def add(self, one: Round, flavour: str) -> None:
        """A round that is over."""
        self.rounds += 1
        self.deaths += one.deaths
        self.at_steps += one.at_steps
        self.flavours[flavour] += one.killed
        self.findings += [f"round {self.rounds}: {finding}" for finding in one.findings]
        self.refetched += one.refetched
        self.urls += len(one.ground.truth.visits)

    def _counted(self, word: str) -> int:
        return sum(word in finding for finding in self.findings)

    def table(self) -> str:
        """Return the sums as Markdown, with the kills of each task."""
        lines = [
            f"{self.killed} kills in {self.rounds} crawls of {self.urls} URLs in all.",
            "",
            "| what must not be | found |",
            "|---|---|",
            f"| URLs lost, or with another outcome (I1) | {self._counted('I1')} |",
            f"| pages crawled or asked for twice, other than the broken fetches (I2) | {self._counted('I2')} |",
            f"| segments torn, records doubled, sums that are wrong (I3, I5) | {self._counted('I3')} |",
            f"| tasks that failed when run again, output unlike the unbroken crawl's (I4) | {self._counted('I4')} |",
            f"| requests closer than the delay (I6) | {self._counted('I6')} |",
            f"| anything else (keys, queues, what is left behind) | {self._others()} |",
            "",
            f"Fetches that a kill broke, and that were repeated: {self.refetched}.",
            "",
            "| killed while running | kills | right after a durable step | of these steps, different ones |",
            "|---|---|---|---|",
        ]
        for kind in KINDS:
            of_kind = {step: count for (name, step), count in self.deaths.items() if name == kind}
            steps = {step for step in of_kind if step != BEFORE_ANY}
            lines.append(
                f"| {kind} | {sum(of_kind.values())} | {self.at_steps[kind]} | {len(steps)} |"
            )
        return "\n".join(lines)

    def steps(self) -> str:
        """Return the kills by task and durable step as Markdown."""
        rows = [
            f"| {kind} | {step if step == BEFORE_ANY else f'`{step}`'} | {count} |"
            for kind in KINDS
            for step, count in sorted(
                (step, count) for (name, step), count in self.deaths.items() if name == kind
            )
        ]
        return "\n".join(
            ["| task | last durable step before the kill | kills |", "|---|---|---|", *rows]
        )

    def _others(self) -> int:
        return sum(
            not any(f"I{number}" in finding for number in range(1, 7)) for finding in self.findings
        )


def write_report(path: Path, tally: Tally, *, seed: int, power: bool, seconds: float) -> None:
    """Put the table between the marks of a Markdown file."""
    text = path.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    command = f"make torture N={tally.killed} SEED={seed}{' POWER=1' if power else ''}"
    made = f"Made by `{command}` in {seconds / 60:.0f} minutes."
    path.write_text(f"{before}{BEGIN}\n{made} {tally.table()}\n{END}{after}", encoding="utf-8")
