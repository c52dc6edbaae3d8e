"""Scores of pages in each round of an update with many rounds, computed in one pass.

A page hands on its score from the begin of the round, so each round needs the scores left by earlier rounds. A query
gives all changes of scores, in the order of the rounds (`sql/crawldb/steps.sql`). `Marks` keeps the current scores in
arrays. A score is an integer here, in billionths, which is exactly what the table has.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from crawl_lib.versions import GROUP_ROWS, columns

Ints: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]
Rows: TypeAlias = dict[str, Ints]

MISSING = -(1 << 62)
"""The score of a URL without a score yet: less than any other."""
MARKS_SCHEMA = columns("key bytes, mark int64")
STOOD_SCHEMA = columns("mark int64, segment int32, score int64")
LEFT_SCHEMA = columns("mark int64, score int64")
_SEEDS, _VISITS = 0, 1
"""The first steps of a round. In the last one links hand on scores."""
_ONE = 10**9


def _ints(count: int = 0) -> Ints:
    return np.full(count, MISSING, np.int64)


def _flags(count: int = 0) -> Flags:
    return np.zeros(count, np.bool_)


@dataclass
class Marks:
    """The URLs whose scores may change from round to round, by number. Each takes 20 bytes of memory."""

    scores: Ints = field(default_factory=_ints)
    """As the rounds so far have left them."""
    is_fixed: Flags = field(default_factory=_flags)
    """Whether links leave the score as it is, as for seeds."""
    _gained: Ints = field(default_factory=_ints)
    _is_open: Flags = field(default_factory=_flags)
    _is_fixing: Flags = field(default_factory=_flags)
    """The effects of links of the current round: the highest score, whether some link may add a row, and whether a
    seed's redirect leads there.
    """
    _visits: list[Rows] = field(default_factory=list)
    _targets: list[Ints] = field(default_factory=list)

    def numbered(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
        """Number the URLs, and keep their first scores.

        `batches`: answer of `crawldb/marks`.
        """
        scores, fixed, count = [_ints()], [_flags()], 0
        for batch in batches:
            scores.append(batch.column("score").to_numpy())
            fixed.append(batch.column("is_fixed").to_numpy() == 1)
            numbers = pa.array(range(count, count + len(batch)), pa.int64())
            yield pa.table({"key": batch.column("key"), "mark": numbers})
            count += len(batch)
        self.scores, self.is_fixed = np.concatenate(scores), np.concatenate(fixed)
        self._gained, self._is_open, self._is_fixing = _ints(count), _flags(count), _flags(count)

    def stood(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
        """Run all rounds, and yield visited pages' scores.

        The scores are as of the time when the links were found.

        `batches`: answer of `crawldb/steps`.
        """
        current = 0
        for turn, step, rows in _pieces(batches):
            if turn != current:
                self._end_round()
                current = turn
            if step == _SEEDS:
                self._seed(rows)
            elif step == _VISITS:
                self._visits.append({name: rows[name] for name in ("mark", "depth")})
                yield self._standing(rows)
            else:
                self._gain(rows)
        self._end_round()

    def left(self) -> Iterator[pa.Table]:
        """Give the scores that URLs have in the end."""
        marks = np.flatnonzero(self.scores != MISSING)
        for first in range(0, len(marks), GROUP_ROWS):
            some = marks[first : first + GROUP_ROWS]
            yield pa.table({"mark": some, "score": self.scores[some]})

    def _standing(self, rows: Rows) -> pa.Table:
        scores = self.scores[rows["mark"]]
        known = scores != MISSING
        return pa.table(
            {"mark": rows["mark"][known], "segment": rows["segment"][known], "score": scores[known]}
        )

    def _seed(self, rows: Rows) -> None:
        """Add the seeds that came before the round, as `after.sql` does."""
        marks, given = rows["mark"], rows["score"]
        known = self.scores[marks]
        default = np.where(known == MISSING, rows["otherwise"], known)
        self.scores[marks] = np.where(given == MISSING, default, given)
        self.is_fixed[marks[rows["depth"] == 0]] = True

    def _gain(self, rows: Rows) -> None:
        """Collect the scores passed on by links.

        Links of a round pass on scores from before the round.
        """
        marks, sources = rows["mark"], rows["source"]
        known = np.where(sources < 0, MISSING, self.scores[sources])
        np.maximum.at(
            self._gained,
            marks,
            _times(np.where(known == MISSING, rows["otherwise"], known), rows["factor"]),
        )
        self._is_open[marks[rows["is_open"] == 1]] = True
        self._is_fixing[marks[rows["depth"] == 0]] = True
        self._targets.append(_distinct(marks))

    def _end_round(self) -> None:
        """Set the new scores of visited and linked URLs, like `rows.sql`."""
        for rows in self._visits:
            marks = rows["mark"]
            self.scores[marks] = np.where(self.scores[marks] == MISSING, 0, self.scores[marks])
            self.is_fixed[marks[rows["depth"] == 0]] = True
        for marks in self._targets:
            self._take_gains(marks)
        self._visits.clear()
        self._targets.clear()

    def _take_gains(self, marks: Ints) -> None:
        """Apply the gains of some URLs.

        A second call changes nothing, since no gain is left.
        """
        known = self.scores[marks]
        stays = self.is_fixed[marks] | ~self._is_open[marks]
        self.scores[marks] = np.where(stays, known, np.maximum(known, self._gained[marks]))
        self.is_fixed[marks] |= self._is_fixing[marks]
        self._gained[marks] = MISSING
        self._is_open[marks] = self._is_fixing[marks] = False


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, int, Rows]]:
    """Split batches into pieces of one turn and one step.

    Yields turn, step and rows.
    """
    for batch in batches:
        rows = {name: batch.column(name).to_numpy() for name in batch.schema.names}
        changes = (np.diff(rows["turn"]) != 0) | (np.diff(rows["step"]) != 0)
        ends = [0, *(np.flatnonzero(changes) + 1).tolist(), len(batch)]
        for first, end in pairwise(ends):
            piece = {name: values[first:end] for name, values in rows.items()}
            yield int(piece["turn"][0]), int(piece["step"][0]), piece


def _distinct(ordered: Ints) -> Ints:
    """Ordered numbers, each once."""
    is_new: Flags = np.append(True, np.diff(ordered) != 0)
    return ordered[is_new]


def _times(scores: Ints, factors: Ints) -> Ints:
    """Multiply, and round half away from zero, as SQL does.

    Factors are at most 1, so no product overflows.
    """
    whole, rest = np.divmod(np.abs(scores), _ONE)
    product: Ints = whole * factors + (rest * factors + _ONE // 2) // _ONE
    signed: Ints = np.sign(scores) * product
    return signed
