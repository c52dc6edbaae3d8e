"""One HTML page with plots of a date's statistics: by hour, by outcome, and the domains with most fetches."""

import datetime
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from crawl_lib.errors import InputError, os_errors
from crawl_lib.plots import bars, lines, page_of, stacked
from crawl_lib.statistics.files import StatisticsFile, StatisticsFiles
from crawl_lib.statistics.reading import Domain, domains_of
from crawl_lib.stores import Stores

SHOWN_DOMAINS = 40
QUANTILES = {"median": 0.5, "p99": 0.99}
_KINDS = ("urls", "images", "shares", "hits", "bytes")


def write_statistics(stores: Stores, *, date: datetime.date | None, target: Path) -> str:
    """Write the page of a date to a local file.

    The file is replaced. Returns the date. `date`: None for the newest. Raises InputError without statistics of the
    date, DamagedFileError, StorageError, StoppedError.
    """
    files = StatisticsFiles(stores)
    shown = str(date) if date else next(reversed(files.dates()), "")
    hours = files.newest_of(shown) if shown else []
    if not hours:
        raise InputError(
            f"there are no statistics of {shown or 'any date'}; `krake realtime statistics` makes them"
        )
    totals, fetches = dict[str, Domain](), Counter[str]()
    for hour in hours:
        total = totals[hour.period.name] = Domain("")
        for one in domains_of(files, hour):
            total.merge(one)
            fetches[one.domain] += one.urls + one.images
    domains = _of(files, hours, [name for name, _ in fetches.most_common(SHOWN_DOMAINS)])
    numbers = {kind: sum(getattr(one, kind) for one in totals.values()) for kind in _KINDS}
    title = f"Krake: {stores.config.crawl.name} in real time on {shown} (UTC)"
    page = page_of(title, numbers, [*_plots_of_hours(totals), *_plots_of_domains(domains)])
    with os_errors(target, "cannot be written"):
        target.write_text(page, encoding="utf-8")
    return shown


def _of(files: StatisticsFiles, hours: list[StatisticsFile], names: list[str]) -> dict[str, Domain]:
    """Return the sums of some domains, in the given order."""
    found = {name: Domain(name) for name in names}
    for hour in hours:
        for one in domains_of(files, hour):
            if one.domain in found:
                found[one.domain].merge(one)
    return found


def _plots_of_hours(totals: Mapping[str, Domain]) -> list[str]:
    latencies = {
        name: [
            (float(hour), ms)
            for hour, one in totals.items()
            if (ms := one.quantile_ms(share)) is not None
        ]
        for name, share in QUANTILES.items()
    }
    outcomes = {hour: one.outcomes for hour, one in totals.items()}
    decisions = {hour: one.decisions for hour, one in totals.items()}
    end = "From the request to the end of the answer."
    sizes = {hour: one.bytes for hour, one in totals.items()}
    return [
        stacked("Fetches by outcome, by hour", "Of pages and pictures.", outcomes),
        stacked("Submissions by decision, by hour", "Each submitted URL counts once.", decisions),
        lines("Latency of answered fetches, in ms", end, latencies, unit="hour"),
        bars("Bytes by hour", "Of contents, with codings undone.", sizes, unit="bytes"),
    ]


def _plots_of_domains(domains: Mapping[str, Domain]) -> list[str]:
    most = f"At most the {SHOWN_DOMAINS} domains with most fetches are shown."
    named = {name or "malformed URLs": one for name, one in domains.items()}
    medians = {name: ms for name, one in named.items() if (ms := one.quantile_ms(0.5)) is not None}
    return [
        stacked(
            "Fetches by outcome, by domain",
            most,
            {name: one.outcomes for name, one in named.items()},
        ),
        bars(
            "Shares by domain",
            most,
            {name: one.shares for name, one in named.items()},
            unit="shares",
        ),
        bars("Median latency by domain, in ms", most, medians, unit="ms"),
    ]
