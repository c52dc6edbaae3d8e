"""`krake check URL`: the verdict of the config on a URL, and one test fetch without a trace in the crawl.

robots.txt is fetched as well. The memory of hosts and turns is in a temporary folder. From the node on this machine
that owns the host, only the time of the last request is taken over, so that the host's delay is kept.
"""

import asyncio
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from crawl_lib.ask.why import Facts, full_here, robots_says, verdict
from crawl_lib.dataclass import dataclass
from crawl_lib.export import url_named
from crawl_lib.fetch import RETRIES, HostStore, Turns, fetch_all, read_hosts
from crawl_lib.parse import parse_head
from crawl_lib.records import Fetched, QueuedUrl, TakenUrl
from crawl_lib.seeds import require_contact_for
from crawl_lib.stores import Stores
from crawl_lib.urls import Owners, authority_of, host_of, key_of

_ONE_TRY = {
    failure: replace(row, max_tries=1) if row.wait_s else row for failure, row in RETRIES.items()
}


@dataclass(frozen=True)
class _TestFetch:
    """The result of a test fetch, as `krake check` shows it."""

    outcome: str
    status: int | None
    error: str | None
    ip: str | None
    duration_ms: int | None
    mime_declared: str | None
    body_bytes: int
    truncated: str | None
    location: str | None


def check_url(stores: Stores, text: str) -> Facts:
    """Return the output of `krake check`, for JSON.

    `url`, `key`, `host`, `owner` (the node of the host; None with local routing); `as_seed`, `as_link`: the verdicts of
    rules and scope; `full`: rules for traps and budgets that would now keep the URL out of its node's queue, `notes`:
    questions without an answer; `robots`: see `explain`; `fetch`: the result of the test fetch.

    Raises InputError for a text that is no URL; ConfigError for a site of other people without a contact in the config;
    StoppedError.
    """
    return fetch_once(stores, text)[0]


def fetch_once(stores: Stores, text: str) -> tuple[Facts, Fetched]:
    """Return `check_url`'s result, and the answer to its fetch.

    Raises the same errors.
    """
    url, config = url_named(stores, text), stores.config
    host = host_of(url)
    require_contact_for(host, url, config.fetch)
    owner = Owners(config.servers).owner(host) if config.frontier.routing == "host" else None
    with TemporaryDirectory(prefix="krake-check-") as folder, HostStore(Path(folder)) as store:
        _keep_delay(stores, owner, host, store)
        fetched = asyncio.run(_fetched(stores, Path(folder), store, url))
        row = store.robots(authority_of(url))
    found: Facts = {"url": url, "key": key_of(url).hex(), "host": host, "owner": owner}
    found |= {"as_seed": verdict(stores, url, 0, as_seed=True), "as_link": verdict(stores, url, 1)}
    notes: list[str] = []
    found |= {"full": full_here(stores, owner, url, notes), "notes": notes}
    found["robots"] = None if row is None else robots_says(row, config.fetch.user_agent, url)
    return {**found, "fetch": asdict(_test_fetch(fetched))}, fetched


def _keep_delay(stores: Stores, owner: str | None, host: str, store: HostStore) -> None:
    """Make the host wait as long as its node would."""
    if owner is None:
        return
    with read_hosts(stores.node_dir(owner)) as known:
        row = known.host(host) if known is not None else None
    if row is not None:
        store.save_hosts([row])


class _Caller:
    """The caller of the one fetch. `fetched`: the result."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self.fetched: Fetched | None = None

    def on_fetched(self, taken: TakenUrl, fetched: Fetched) -> None:
        self.fetched = fetched

    def on_robots(self, fetched: Fetched) -> None:
        self._stores.report(robots=fetched.outcome.value)

    def objection(self, taken: TakenUrl) -> str:
        return ""

    def stop(self) -> bool:
        return self._stores.stop.is_set()

    def close(self) -> bool:
        return False


async def _fetched(stores: Stores, folder: Path, store: HostStore, url: str) -> Fetched:
    fetch, caller = stores.config.fetch, _Caller(stores)
    items, retry = [TakenUrl(0, key_of(url), QueuedUrl(url))], stores.config.retry
    with Turns.of(folder, fetch) as turns:
        await fetch_all(
            items,
            config=fetch,
            retry=retry,
            store=store,
            turns=turns,
            caller=caller,
            retries=_ONE_TRY,
        )
    stores.go_on()
    assert caller.fetched is not None
    return caller.fetched


def _test_fetch(fetched: Fetched) -> _TestFetch:
    headers = parse_head(fetched.head)
    return _TestFetch(
        outcome=fetched.outcome.value,
        status=fetched.status,
        error=fetched.error or None,
        ip=fetched.ip,
        duration_ms=fetched.duration_ms,
        mime_declared=headers.content_type[0],
        body_bytes=len(fetched.body),
        truncated=fetched.truncated,
        location=headers.location,
    )
