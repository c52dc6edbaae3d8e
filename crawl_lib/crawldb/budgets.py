"""Traps and budgets where the CrawlDb lists URLs: a list leaves out new URLs beyond the limits.

A node with `fifo` counts URLs joining its queue. The table has every URL, so queries count here: visited and
listed URLs come first, then seeds, then URLs of more worth. Visited URLs are visited again, whatever the limits.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from crawl_lib.config import UrlsConfig
from crawl_lib.engine import Engine
from crawl_lib.frontier import host_of_line
from crawl_lib.urls import Budgets, Rejection, Traps, budget_domain_of
from crawl_lib.versions import VersionWork, columns, table_of

_GROUPED = columns("key bytes, host text, rule text, name text, most int64")
_LIMITS = columns("domain text, max_pages int64, max_hosts int64")
JOINT = columns("host text, domain text")
"""Hosts whose domain differs from the table's."""
_KEYS = columns("key bytes")
_OVER = columns("key bytes, reason text")
_RULES = {"host_pages": Rejection.HOST_LIMIT}
"""Reasons whose option has a rejection of another name."""


def budget_settings(config: UrlsConfig) -> dict[str, tuple[int | None, pa.DataType]]:
    """Return the limits of hosts and domains for the table `settings`.

    For domains that is the smallest limit; null: no limit.
    """
    pages = (config.max_pages_per_domain, *(entry.max_pages for entry in config.domains))
    hosts = (config.max_hosts_per_domain, *(entry.max_hosts for entry in config.domains))
    values = {
        "pages_per_host": config.max_pages_per_host,
        "least_pages": min(filter(None, pages), default=None),
        "least_hosts": min(filter(None, hosts), default=None),
    }
    return {name: (value, pa.int64()) for name, value in values.items()}


def refuse(work: VersionWork) -> None:
    """Make the view `candidates`, with the reasons of traps and budgets.

    `weighed.sql` reads the view.
    """
    engine = work.engine
    hosts = (row["host"] for row in engine.rows("crawldb/own_domains"))
    found = (
        {"host": host, "domain": domain}
        for host in hosts
        if (domain := budget_domain_of(host)) != host
    )
    work.keep_rows("joint", JOINT, found)
    engine.view("weighed", "crawldb/weighed")
    if _group(work):
        engine.keep("trapped", "crawldb/trapped", "generate")
    else:
        engine.values("trapped", table_of([], _KEYS))
    engine.view("tried", "crawldb/tried")
    config = work.stores.config.urls
    if _limit(work, Budgets(config)) or config.max_pages_per_host is not None:
        engine.keep("over_budget", "crawldb/over_budget", "generate")
    else:
        engine.values("over_budget", table_of([], _OVER))
    engine.view("candidates", "crawldb/candidates")


def spent(engine: Engine) -> dict[str, int]:
    """Count URLs refused by budgets, by `Budgets.key`.

    Only the 20 hosts and domains with the most URLs are listed.
    """
    rows = engine.rows("crawldb/spent")
    return {
        Budgets.key(_RULES.get(row["reason"], row["reason"]), row["name"]): row["urls"]
        for row in rows
    }


def _group(work: VersionWork) -> bool:
    """Make the table `grouped`, with the trap groups of URLs.

    Returns whether a new URL is in a group.
    """
    engine, traps = work.engine, Traps(work.stores.config.traps)

    def rows(query: str) -> Iterator[dict[str, Any]]:
        for row in engine.rows(query):
            for rule, most, names in traps.groups(row["url"].encode(), host_of_line):
                same = {"key": row["key"], "host": row["host"], "rule": str(rule), "most": most}
                yield from ({**same, "name": name.decode()} for name in names)

    if work.keep_rows("grouped_new", _GROUPED, rows("crawldb/new_urls")) is None:
        return False
    work.keep_rows("grouped_begun", _GROUPED, rows("crawldb/begun_urls"))
    engine.define("grouped", "select * from grouped_new union all select * from grouped_begun")
    return True


def _limit(work: VersionWork, budgets: Budgets) -> bool:
    """Make the table `limits` of domains with limits of their own.

    Returns whether there are any.
    """

    def rows() -> Iterator[dict[str, Any]]:
        for row in work.engine.rows("crawldb/crowded"):
            pages, hosts = budgets.of_domain(row["domain"])
            if (pages and row["urls"] > pages) or (hosts and row["hosts"] > hosts):
                yield {"domain": row["domain"], "max_pages": pages, "max_hosts": hosts}

    return work.keep_rows("limits", _LIMITS, rows()) is not None
