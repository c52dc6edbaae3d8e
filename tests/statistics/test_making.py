"""Statistics of 24 hours equal a count of the server's log; the same inputs give the same bytes in any order."""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Iterable
from datetime import date, timedelta
from pathlib import Path

import pytest

from crawl_lib.durable import KILL_VARIABLE
from crawl_lib.errors import InputError
from crawl_lib.findings import Finding
from crawl_lib.repair import sweep
from crawl_lib.statistics import (
    STATISTICS_OUTPUT,
    Domain,
    Period,
    StatisticsFiles,
    domains_of,
    update_statistics,
    write_statistics,
)
from tests.forked import run_forked
from tests.repair.crawled import stores_of
from tests.statistics.served import (
    BEGIN,
    Served,
    Shared,
    collect,
    counted,
    leave,
    plain,
    service_config,
    some_requests,
    some_shares,
)
from tests.statistics.test_latency import exact

HOUR = timedelta(hours=1)


def update(config, hour: int, *, later: float = 1.05) -> list[str]:
    """Make the statistics of an hour, `later` hours after its beginning; return the ends of new versions' paths."""
    moment = BEGIN + hour * HOUR
    report = update_statistics(stores_of(config), hour=moment, now=moment + later * HOUR)
    return ["/".join(path.split("/")[-2:]) for path in report.made]


def newest(config, period: Period) -> list[Domain]:
    files = StatisticsFiles(stores_of(config))
    file = files.newest(period)
    assert file is not None
    return list(domains_of(files, file))


def contents(config) -> dict[str, bytes]:
    """The bytes of the newest version of each period."""
    stores = stores_of(config)
    files = StatisticsFiles(stores)
    found = [*files.newest_of("2026-11-28"), *files.newest_of("2026-11-28", days=True)]
    return {str(file.period): stores.storage.read_bytes(file.path) for file in found}


def require_equal(found: list[Domain], requests: list[Served], shares: list[Shared]) -> None:
    truth = counted(requests, shares)
    assert plain(found) == plain([*truth.domains.values()])
    for domain in found:
        took_ms = truth.took_ms[domain.domain]
        assert sum(bucket.latencies for bucket in domain.latency.values()) == len(took_ms)
        if len(took_ms) > 1000:
            for share in (0.5, 0.99):
                assert domain.quantile_ms(share) == pytest.approx(exact(took_ms, share), rel=0.05)


def flat(lists: Iterable[list]) -> list:
    return [one for some in lists for one in some]


def test_a_day_equals_a_count_of_the_servers_log(tmp_path: Path) -> None:
    config, rng = service_config(tmp_path), random.Random(43)
    requests = [some_requests(240, rng, hour=hour) for hour in range(24)]
    shares = [some_shares(60, rng, hour=hour) for hour in range(24)]
    late = requests[3][100:]  # the fetcher's line was cut for hours
    for begin in range(0, 24, 6):
        hours = range(begin, begin + 6)
        served = flat(requests[hour][:100] if hour == 3 else requests[hour] for hour in hours)
        leave(
            config,
            served + (late if begin == 12 else []),
            flat(shares[hour] for hour in hours),
            number=begin,
        )
        collect(config, hour=begin + 6.01)
        made = [f"2026-11-28/{hour:02}-1.parquet" for hour in hours]
        more = {12: ["2026-11-28/03-2.parquet"], 18: ["2026-11-28/day-1.parquet"]}
        assert sorted(update(config, begin + 5)) == sorted(made + more.get(begin, []))
    for hour in range(24):
        require_equal(
            newest(config, Period.hour(BEGIN + hour * HOUR)), requests[hour], shares[hour]
        )
    require_equal(newest(config, Period.day(BEGIN)), flat(requests), flat(shares))


def test_odd_orders_and_repetitions_give_the_same_bytes(tmp_path: Path) -> None:
    rng = random.Random(7)
    log = [
        (some_requests(20, rng, hour=hour), some_shares(5, rng, hour=hour)) for hour in (0, 1, 2)
    ]
    (tmp_path / "straight").mkdir()
    straight = service_config(tmp_path / "straight")
    for number, (requests, shares) in enumerate(log):
        leave(straight, requests, shares, number=number)
        collect(straight, hour=number + 1.2)
    shutil.copytree(tmp_path / "straight", tmp_path / "odd")
    odd = service_config(tmp_path / "odd")
    for hour in (0, 1, 2, 23):
        update(straight, hour, later=2)
    for hour in (2, 23, 0, 0, 1, 2):
        update(odd, hour, later=30)
    assert contents(odd) == contents(straight)
    assert update(odd, 1, later=30) == []


def test_a_late_part_makes_a_new_version_of_its_hour(tmp_path: Path) -> None:
    config, rng = service_config(tmp_path), random.Random(8)
    requests = some_requests(20, rng, hour=0)
    leave(config, requests[:15], [])
    first = collect(config, hour=1.02)
    update(config, 0)
    before = contents(config)["2026-11-28/00"]
    leave(config, requests[15:], [], number=1)
    second = collect(config, hour=5.5)
    assert update(config, 5) == ["2026-11-28/00-2.parquet", "2026-11-28/05-1.parquet"]
    require_equal(newest(config, Period.hour(BEGIN)), requests, [])
    files = StatisticsFiles(stores_of(config))
    one, two = files.versions(Period.hour(BEGIN))
    assert [*files.inputs(one)] == [first]
    assert [*files.inputs(two)] == [first, second]
    assert stores_of(config).storage.read_bytes(one.path) == before
    assert newest(config, Period.hour(BEGIN + 5 * HOUR)) == []


def test_an_hour_that_is_not_over_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="2026-11-28/04: the hour ends at 05:00 UTC"):
        update(service_config(tmp_path), 4, later=0.9)


def test_the_page_shows_a_date(tmp_path: Path) -> None:
    config, rng = service_config(tmp_path), random.Random(9)
    target = tmp_path / "page.html"
    with pytest.raises(InputError, match="no statistics of any date"):
        write_statistics(stores_of(config), date=None, target=target)
    requests = some_requests(30, rng, hour=2)
    leave(config, requests, [Shared(BEGIN.timestamp() + 7300, "www.a.example", "known")])
    collect(config, hour=3.1)
    update(config, 2)
    assert write_statistics(stores_of(config), date=None, target=target) == "2026-11-28"
    text = target.read_text()
    assert "<script" not in text
    for shown in ("a.example", "redirect", "known", "Latency", "2026-11-28 (UTC)"):
        assert shown in text
    with pytest.raises(InputError, match="no statistics of 2026-11-27"):
        write_statistics(stores_of(config), date=date(2026, 11, 27), target=target)


def make_until(directory: Path, step: str) -> None:
    """Make statistics in this process, which is killed at a step."""
    os.environ[KILL_VARIABLE] = step
    update(service_config(directory), 0)


@pytest.mark.parametrize("step", ["statistics.written", "statistics.renamed"])
def test_a_kill_at_each_durable_step_changes_no_byte(tmp_path: Path, step: str) -> None:
    config, rng = service_config(tmp_path), random.Random(10)
    leave(config, some_requests(9, rng, hour=0), [])
    collect(config, hour=1.02)
    assert run_forked(make_until, tmp_path, step) == -9
    update(config, 0)
    killed = contents(config)
    stores = stores_of(config)
    STATISTICS_OUTPUT.delete(stores)
    update(config, 0)
    assert contents(config) == killed
    assert sweep(stores).deleted == []


def test_a_killed_attempt_s_file_is_swept(tmp_path: Path) -> None:
    config = service_config(tmp_path)
    assert run_forked(make_until, tmp_path, "statistics.written") == -9
    update(config, 0)
    [deleted] = sweep(stores_of(config)).deleted
    assert re.fullmatch(r"crawl/statistics/2026-11-28/\.00-1\.parquet\.[0-9a-f]{32}", deleted)


def test_a_damaged_version_is_set_aside_and_made_again(tmp_path: Path) -> None:
    config, rng = service_config(tmp_path), random.Random(11)
    leave(config, some_requests(30, rng, hour=0), [])
    collect(config, hour=1.02)
    update(config, 0)
    stores, before = stores_of(config), contents(config)
    where, finding = damaged(config, 4)
    assert "krake realtime statistics --hour 2026-11-28T00" in finding.repair
    assert STATISTICS_OUTPUT.set_aside(stores, finding, dry_run=False)
    assert not where.exists()
    assert update(config, 0) == ["2026-11-28/00-2.parquet"]
    assert contents(config) == before
    assert [path.split("/")[-1][:12] for path in STATISTICS_OUTPUT.aside(stores).paths] == [
        ".damaged-00-"
    ]


def damaged(config, place: int) -> tuple[Path, Finding | None]:
    """Change eight bytes of the only version; return what the check says."""
    stores = stores_of(config)
    [file] = StatisticsFiles(stores).newest_of("2026-11-28")
    where = stores.storage.local_path(file.path)
    assert where is not None
    data = bytearray(where.read_bytes())
    data[place : place + 8] = bytes(byte ^ 255 for byte in data[place : place + 8])
    where.write_bytes(data)
    return where, next(iter(STATISTICS_OUTPUT.check(stores, full=True)), None)


def test_no_damage_leaves_a_wrong_number(tmp_path: Path) -> None:
    config, rng = service_config(tmp_path), random.Random(12)
    leave(config, some_requests(30, rng, hour=0), [])
    name = collect(config, hour=1.02)
    update(config, 0)
    hour, whole = Period.hour(BEGIN), contents(config)["2026-11-28/00"]
    found = newest(config, hour)
    files, unnoticed = StatisticsFiles(stores_of(config)), 0
    for place in range(0, len(whole), 8):
        where, finding = damaged(config, place)
        if finding is None:
            unnoticed += 1
            [file] = files.versions(hour)
            assert newest(config, hour) == found
            assert [*files.inputs(file)] == [name]
        where.write_bytes(whole)
    assert unnoticed < len(whole) / 8 / 5
