"""Progress of a task in Airflow's task state store: the newest facts, and a curve of all before them.

A worker writes this value by outgoing HTTP alone, and Airflow's REST API shows the value while the task runs, after its
end, and between two tries. docs/airflow.md describes the fields.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Mapping
from typing import Any

log = logging.getLogger("krake")

STATE_KEY = "progress"
KEEP_INTERVAL_S = 5.0
CURVE_POINTS = 60
_FACTS_BYTES, _TEXT_BYTES = 2_500, 600
"""The most JSON for all facts, and for one text: with sixty points the whole value stays below 8 KB."""
_OF_A_POINT = ("fetched", "bytes", "errors", "queue")
OWN_FIELDS = frozenset({"curve", "counts", "left_out", "seconds", "time", "try"})
"""Fields of the value in addition to the report of a stage."""


class Curve:
    """A course of numbers: at most `CURVE_POINTS` points, about evenly spaced, always with the newest point.

    Once the curve is full, every second point goes, and new points come half as often.
    """

    def __init__(self) -> None:
        self.points: list[list[int]] = []
        self._every_s = KEEP_INTERVAL_S

    def add(self, seconds: float, progress: Mapping[str, Any]) -> None:
        """Add a moment of a task. `seconds`: since the task began; `progress`: a stage's report."""
        newest = [round(seconds), *(_whole(progress.get(name)) for name in _OF_A_POINT)]
        if len(self.points) > 1 and self.points[-1][0] - self.points[-2][0] < self._every_s:
            self.points[-1] = newest
            return
        self.points.append(newest)
        if len(self.points) > CURVE_POINTS:
            del self.points[1::2]
            self._every_s *= 2


class KeptProgress:
    """The value of one try of a task in the task state store: sent at the first report, every few seconds, at the end.

    `state_store`: Airflow's `context["task_state_store"]`, or None. A server may refuse a value: a cleared attempt gets
    a 404. The stage still has to bring its work to the disk, so a refusal is a warning in the log.
    """

    def __init__(self, state_store: Any, try_number: int) -> None:
        self._state_store, self._try_number = state_store, try_number
        self._began_s, self._sent_s = time.monotonic(), float("-inf")
        self._curve = Curve()
        self._newest: dict[str, Any] = {}

    def report(self, progress: Mapping[str, Any]) -> None:
        """Note the report of a stage; send the first report, and then one every `KEEP_INTERVAL_S`."""
        self._newest = dict(progress)
        if time.monotonic() - self._sent_s >= KEEP_INTERVAL_S:
            self._send(self._newest)

    def end(self, phase: str, *, counts: Mapping[str, Any] | None = None, error: str = "") -> None:
        """Send the last report. `phase`: done, failed, stopped or skipped; `counts`: the result of the stage."""
        last: dict[str, Any] = {"phase": phase, **({"error": error} if error else {})}
        if counts:
            last["counts"] = counts
        self._send(
            {**last, **{name: value for name, value in self._newest.items() if name not in last}}
        )

    def _send(self, facts: Mapping[str, Any]) -> None:
        if self._state_store is None:
            return
        self._sent_s = time.monotonic()
        seconds = self._sent_s - self._began_s
        self._curve.add(seconds, self._newest)
        value = {
            **fitting(facts, _FACTS_BYTES),
            "try": self._try_number,
            "seconds": round(seconds, 1),
            "time": round(time.time(), 1),
            "curve": self._curve.points,
        }
        try:
            self._state_store.set(STATE_KEY, value)
        except Exception as error:  # whatever the server answers, the crawl goes on
            log.warning("progress was not kept: %s", type(error).__name__)


def fitting(facts: Mapping[str, Any], room: int) -> dict[str, Any]:
    """Return the facts whose JSON fits into `room` bytes, the first facts first.

    Numbers, texts (long ones are cut) and mappings of these are facts. `left_out` counts lists, and facts without room.
    """
    kept: dict[str, Any] = {}
    left_out = 0
    for name, value in facts.items():
        shown = _fact(value, room)
        size = len(json.dumps({str(name): shown})) if shown is not None else room + 1
        if size > room:
            left_out += 1
            continue
        kept[str(name)] = shown
        room -= size
    return {**kept, "left_out": left_out} if left_out else kept


def _fact(value: Any, room: int) -> Any:
    """Return a value in the form of the store; None for a value that is no fact."""
    if isinstance(value, Mapping):
        return fitting(value, room // 2)
    if isinstance(value, str):
        return _cut(value)
    is_number = isinstance(value, int | float) and math.isfinite(value)
    return value if is_number else None


def _cut(text: str) -> str:
    """Cut a text to `_TEXT_BYTES` of JSON, which has up to twelve bytes for a character."""
    cut = text[:_TEXT_BYTES]
    while len(json.dumps(cut)) > _TEXT_BYTES:
        cut = cut[: len(cut) * 3 // 4]
    return cut if cut == text else f"{cut}..."


def _whole(value: Any) -> int:
    """Return a whole number for a point; 0 if the stage reports no number."""
    return int(value) if isinstance(value, int | float) and math.isfinite(value) else 0
