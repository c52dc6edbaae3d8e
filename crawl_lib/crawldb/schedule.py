"""The schedule as tables that the query of `update` joins: rates and limits, and the rules of URLs."""

import fnmatch
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from crawl_lib.config import Config, ScheduleRuleConfig
from crawl_lib.crawldb.inputs import SeedFacts
from crawl_lib.crawldb.table import Status
from crawl_lib.records import json_object
from crawl_lib.versions import columns

GONE_PART = 0.9
"""Longest interval of a gone URL, as a share of `schedule.always_s`."""
NEVER_S = 1 << 40
KINDS_SCHEMA = columns("host text, mime text, metadata text, sort int32")
LIMITS_SCHEMA = columns("sort int32, status text, fixed_s int64, least_s int64, most_s int64")
FACTS_SCHEMA = columns("metadata text, max_depth int32, score score")
Kind = tuple[tuple[int, ...], int | None]
"""The rules that match a URL in all but the status, and the interval fixed by the seed."""


def schedule_table(config: Config, *, ranked: bool = False) -> pa.Table:
    """Return the settings of the schedule, a table of one row.

    A fixed schedule is an adaptive schedule that never changes an interval.

    `ranked`: the scores are a rank, which links do not change.
    """
    schedule, orphans = config.schedule, config.crawldb.orphans
    adapts = schedule.kind == "adaptive"
    row: dict[str, Any] = {
        "interval_s": schedule.interval_s,
        "always_s": schedule.always_s,
        "gone_s": int(schedule.always_s * GONE_PART),
        "min_s": schedule.min_s if adapts else 0,
        "max_s": schedule.max_s if adapts else NEVER_S,
        "faster": schedule.faster if adapts else 0.0,
        "slower": schedule.slower if adapts else 0.0,
        "hints": schedule.sitemaps,
        "hint_s": schedule.min_s,
        "ranked": ranked,
        "orphans": "orphan" if orphans == "keep" else orphans,
    }
    return pa.Table.from_pylist([row])


def facts_table(texts: Iterable[str]) -> pa.Table:
    """Return the facts in each text of metadata."""
    found = [(text, SeedFacts.of(text)) for text in texts]
    rows = [
        {"metadata": text, "max_depth": facts.max_depth, "score": facts.score}
        for text, facts in found
    ]
    return pa.Table.from_pylist(rows, FACTS_SCHEMA)


class Kinds:
    """Sorts hosts, types and metadata by matching rules: a class for each set of rules."""

    def __init__(self, rules: Iterable[ScheduleRuleConfig]) -> None:
        self._rules = [(rule, _matcher(rule)) for rule in rules]
        self._classes: dict[Kind, int] = {}

    def is_needed(self, texts: Iterable[str]) -> bool:
        """Return whether intervals may differ from the schedule's own.

        `texts`: all metadata.
        """
        return bool(self._rules) or any(SeedFacts.of(text).interval_fixed_s for text in texts)

    def rows(self, answer: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yield rows of `kinds`. `answer`: of `crawldb/kinds`."""
        for row in answer:
            matching = tuple(
                place for place, (_, matches) in enumerate(self._rules) if matches(row)
            )
            kind = matching, SeedFacts.of(row["metadata"]).interval_fixed_s
            if kind != ((), None):
                yield {**row, "sort": self._classes.setdefault(kind, len(self._classes))}

    def limits(self) -> pa.Table:
        """Return the intervals for each class and status.

        The seed's interval counts first, then the first matching rule.
        """
        rows = []
        for (matching, fixed_s), number in self._classes.items():
            for status in Status:
                rules = [self._rules[place][0] for place in matching]
                rule = next(
                    (one for one in rules if one.status in (None, status)), ScheduleRuleConfig()
                )
                limits = {
                    "fixed_s": fixed_s or rule.fixed_s,
                    "least_s": rule.min_s,
                    "most_s": rule.max_s,
                }
                rows.append({"sort": number, "status": str(status), **limits})
        return pa.Table.from_pylist(rows, LIMITS_SCHEMA)


def _matcher(rule: ScheduleRuleConfig) -> Callable[[dict[str, str]], bool]:
    name, _, value = (rule.metadata or "").partition("=")
    pattern = re.compile(rule.value) if rule.kind == "regex" else None

    def matches(row: dict[str, str]) -> bool:
        host = row["host"]
        if pattern is not None and not pattern.search(host):
            return False
        if rule.kind == "domain" and host != rule.value and not host.endswith(f".{rule.value}"):
            return False
        if rule.mime_type is not None and not fnmatch.fnmatchcase(
            row["mime"], rule.mime_type.lower()
        ):
            return False
        return not name or json_object(row["metadata"]).get(name) == value

    return matches
