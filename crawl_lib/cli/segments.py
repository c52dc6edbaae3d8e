"""`krake forget`, `krake retry`, `krake segment drop|compact`, `krake import` and `krake index cdxj`."""

import argparse
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

from crawl_lib import curate
from crawl_lib.cli.common import (
    ResultTable,
    looked_first,
    print_counted,
    print_result,
    say,
    tool_stores,
    waiting,
)
from crawl_lib.curate import (
    CompactReport,
    DropReport,
    Failures,
    FileReport,
    ForgetReport,
    ForgottenPages,
    ImportReport,
    RetryNowReport,
    RetryReport,
)
from crawl_lib.errors import ConfigError, InputError, UrlError
from crawl_lib.export import page_key
from crawl_lib.frontier import NodeLock
from crawl_lib.realtime import drop_rows, forget_rows
from crawl_lib.repair import finish_all_swaps, repairs_locked
from crawl_lib.rounds import at_once, waits_until
from crawl_lib.stores import Stores
from crawl_lib.urls import canonicalize, host_of

DAY_S = 86400.0
_SHOWN = 5


def forget(arguments: argparse.Namespace) -> int:
    """Make URLs new again: given ones, a host's, or old ones.

    Old ones: pages with an old newest capture. Raises ConfigError for an age next to a URL, InputError for what is
    neither a URL nor a host.
    """
    older_than_s = None if arguments.older_than is None else arguments.older_than * DAY_S
    with tool_stores(arguments) as stores:
        pages = _pages(arguments.what, older_than_s, stores.config.urls.max_length_chars)
        if pages.urls and older_than_s is not None:
            raise ConfigError(
                "--older-than is for all pages, or for a host; a URL is forgotten at any age"
            )
        named = (
            ", ".join(arguments.what[:3]) + (", ..." if len(arguments.what) > 3 else "")
            or "all hosts"
        )
        lost = f"pages of {named} become new: each is fetched again once found or injected"

        def act(dry_run: bool) -> ForgetReport:
            rows = forget_rows(stores, pages.urls, pages.hosts, pages.older_than_s, dry_run=dry_run)
            if rows is not None:
                known = rows.deleted + rows.waiting
                return ForgetReport(
                    dry_run,
                    known + rows.unknown,
                    rows.deleted,
                    waiting=rows.waiting,
                    rows=rows.deleted,
                )
            with stores.key_servers() as store:
                store.require_ring(write=not dry_run)
                return curate.forget(stores, store, pages, dry_run=dry_run)

        if pages.urls or pages.hosts or older_than_s is not None:
            report = looked_first(arguments, act, lambda report: lost if report.forgotten else "")
        else:
            report = act(arguments.dry_run)
        waiting = waits_until(stores.config, pages.urls, pages.hosts) if report.waiting else {}
    urls = stores.config.urls
    limits = (urls.max_pages_per_host, urls.max_pages_per_domain, urls.max_hosts_per_domain)
    limited = any(limit is not None for limit in limits)
    asked = bool(report.asked or older_than_s is not None)
    print_result(
        arguments, report, partial(_show_forgotten, report, waiting, asked=asked, limited=limited)
    )
    return 0


def _pages(what: list[str], older_than_s: float | None, longest: int) -> ForgottenPages:
    urls, hosts = [], []
    for text in what:
        try:
            if "://" in text:
                urls.append(canonicalize(text, max_length_chars=longest))
            else:
                hosts.append(host_of(canonicalize(f"http://{text}/", max_length_chars=longest)))
        except UrlError as error:
            if "://" in text:
                raise UrlError(error.reason, f"{text} (not a URL that Krake crawls)") from error
            message = f"{text}: is neither a URL (with http:// or https://) nor a host"
            raise InputError(message) from error
    return ForgottenPages(urls, hosts, older_than_s)


def _show_forgotten(
    report: ForgetReport, waiting: Mapping[str, float], *, asked: bool, limited: bool
) -> None:
    if asked:
        unknown = report.asked - report.forgotten - report.waiting
        would = "would forget" if report.dry_run else "forgot"
        say(f"{would} {report.forgotten} of {report.asked} URLs; {unknown} were not known")
    elif not report.finished:
        say("nothing to do: name URLs, hosts, or --older-than DAYS")
    _show_rows(report)
    if report.waiting:
        say(f"{report.waiting} pages wait to be fetched, and stay unchanged")
    for name, until in islice(sorted(waiting.items()), _SHOWN):
        say(f"{name}: {at_once(until, name if '://' in name else f'--host {name}')}")
    if report.finished:
        say(f"finished {report.finished} killed earlier commands")
    for node, count in report.not_lowered.items() if limited else ():
        where = (
            f"of node {node} on another machine" if node else "(local routing) of the pages' nodes"
        )
        say(
            f"the counts {where} still have {count} of these URLs: limits of hosts and domains (urls) may reject them"
        )


def _show_rows(report: ForgetReport | DropReport) -> None:
    if report.rows:
        rows = "1 row" if report.rows == 1 else f"{report.rows:,} rows"
        say(
            f"{'would delete' if report.dry_run else 'deleted'} {rows} of krakepages, the real-time service's table"
        )


def retry(arguments: argparse.Namespace) -> int:
    """List failed pages, or make waiting ones due at once.

    The next crawl fetches these pages. Raises InputError for an invalid host or URL, ConfigError for options that do
    not go together.
    """
    _require_right(arguments)
    with tool_stores(arguments) as stores:
        longest, host, url = stores.config.urls.max_length_chars, arguments.host, arguments.url
        found = _pages([text for text in (host, url) if text is not None], None, longest)
        if host is not None and not found.hosts:
            raise InputError(f"{host}: is a URL, and --host takes a host, such as example.org")
        if url is not None and not found.urls:
            raise InputError(f"{url}: is no URL (with http:// or https://); name a host by --host")
        named = {"host": next(iter(found.hosts), None), "url": next(iter(found.urls), None)}
        failures = Failures(arguments.outcome, **named, waits=arguments.now)
        if arguments.now:
            ignores = arguments.ignore_retry_after
            made_due = curate.retry_now(
                stores, failures, ignore_retry_after=ignores, dry_run=arguments.dry_run
            )
            print_result(arguments, made_due, partial(_show_due, made_due))
            return 0
        report = curate.retry(stores, failures, dry_run=arguments.dry_run)
        waits = RetryNowReport(dry_run=True)
        if not report.failed:
            waits = curate.retry_now(stores, replace(failures, waits=True), dry_run=True)
    print_result(arguments, report, partial(_show_retried, report, failures, waits))
    return 0


def _require_right(arguments: argparse.Namespace) -> None:
    if not arguments.now and (arguments.url is not None or arguments.ignore_retry_after):
        raise ConfigError("a URL and --ignore-retry-after need --now, to end the waiting")
    if not arguments.now and arguments.outcome is None:
        raise ConfigError("--outcome chooses the failures to list; --now makes waiting URLs due")
    if arguments.url is not None and (arguments.host is not None or arguments.outcome is not None):
        raise ConfigError("--now takes a URL, or --host and --outcome, not both")


def _show_due(report: RetryNowReport) -> None:
    """Show due URLs, requests of hosts to wait, and the next command."""
    is_due = "would be" if report.dry_run else "is"
    first = f" until {_utc(report.until)} or later" if report.until is not None else ""
    urls = "1 URL waits" if report.waiting == 1 else f"{report.waiting:,} URLs wait"
    hosts = "1 host is" if report.hosts == 1 else f"{report.hosts:,} hosts are"
    say(f"{urls} on this machine{first}, and {hosts} in back-off")
    if report.waiting or report.hosts:
        say(f"the waiting {is_due} over with the next take")
    if report.listed:
        say(
            f"{'would list' if report.dry_run else 'listed'} {report.listed:,} waiting pages of the CrawlDb"
        )
    if report.elsewhere:
        say(
            f"the queues of {', '.join(report.elsewhere)} are on other machines: this count leaves their URLs out"
        )
    for host, until in islice(sorted(report.asked.items()), _SHOWN):
        say(
            f"{host} asked to be left alone until {_utc(until)} (Retry-After): --ignore-retry-after fetches anyway"
        )
    if len(report.asked) > _SHOWN:
        say(f"and {len(report.asked) - _SHOWN:,} more hosts asked so")
    is_some = report.waiting or report.hosts or report.listed or report.elsewhere
    if is_some and report.note:
        say("next: krake crawl, or a run of the DAG, to fetch these pages")
    if not is_some:
        say("so there is nothing to do; `krake why URL` explains")


def _show_retried(report: RetryReport, failures: Failures, waits: RetryNowReport) -> None:
    would = "would list" if report.dry_run else "listed"
    of_host = f" of {failures.host}" if failures.host else ""
    if not report.failed:
        say(f"nothing to do: no page{of_host} ended as {failures.outcome}")
    else:
        say(
            f"{would} {report.listed:,} of {report.failed:,} pages{of_host} that ended as {failures.outcome}"
        )
    if waits.waiting and waits.until is not None:
        which = f"--outcome {failures.outcome}" + (
            f" --host {failures.host}" if failures.host else ""
        )
        say(f"{waits.waiting:,} URLs that ended so wait, {at_once(waits.until, which)}")
    if report.waiting:
        say(f"{report.waiting:,} wait in an earlier list")
    if report.listed:
        say(f"list {report.path}")
        say("next: krake crawl, which fetches them")
    for name in report.deleted:
        say(
            f"{'would delete' if report.dry_run else 'deleted'} list {name}: all pages were fetched"
        )


def _utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def drop(arguments: argparse.Namespace) -> int:
    """Drop pages from all segments; 1 if any is missing.

    Missing: in no segment.
    """

    def act(dry_run: bool) -> DropReport:
        with tool_stores(arguments) as stores, repairs_locked(stores, dry_run=arguments.dry_run):
            if not arguments.dry_run:
                finish_all_swaps(stores)  # else the look would miss segments that lie aside
            # First the rows: where a key server is away, nothing is done.
            rows = drop_rows(
                stores, [page_key(stores, page) for page in arguments.page], dry_run=dry_run
            )
            report = curate.drop_pages(stores, arguments.page, dry_run=dry_run)
            report.rows = rows
            return report

    report = looked_first(arguments, act, _would_lose)
    print_result(arguments, report, partial(_show_dropped, report))
    return 1 if report.unknown else 0


def _would_lose(report: DropReport) -> str:
    pages = {page for some in report.dropped.values() for page in some}
    number = "1 page is" if len(pages) == 1 else f"{len(pages):,} pages are"
    if report.rows and not pages:
        return f"{report.rows:,} rows of krakepages are deleted"
    return f"{number} taken out of all results for good" if pages else ""


def _show_dropped(report: DropReport) -> None:
    dropped = "would drop" if report.dry_run else "dropped"
    for title, pages in ((dropped, report.dropped), ("dropped before", report.already)):
        for segment, named in pages.items():
            say(f"{title}: {segment}: {', '.join(named)}")
    _show_rows(report)
    for page in report.unknown:
        say(f"not found: {page} is in no segment")
    if report.rows and report.unknown:
        say(
            "next: krake realtime collect, then the same command again: a fetch may not be in a segment yet"
        )
    for place in report.places:
        say(f"still in: {place.path}: {place.until}")
    if report.dropped:
        say("next: krake forget, if the pages may be crawled again")


def _node_locked(
    stores: Stores, node: str, arguments: argparse.Namespace, *, dry_run: bool
) -> AbstractContextManager[object]:
    """Hold the node's lock, if its directory is here.

    For a dry run without waiting, and without a trace.
    """
    directory = stores.node_dir(node)
    if node not in stores.config.servers or not directory.is_dir():
        return nullcontext()
    timeout_s, what = (
        0.0 if dry_run else stores.config.queue.lock_timeout_s,
        "krake segment compact",
    )
    return NodeLock(
        directory, node, timeout_s, what=what, on_wait=waiting(arguments), leaves_trace=not dry_run
    )


def compact(arguments: argparse.Namespace) -> int:
    """Rewrite segments without dropped pages.

    Named segments, else all that have some.
    """
    reports = looked_first(arguments, partial(_compacted, arguments), _has_dropped)
    print_result(arguments, reports, partial(_show_compacted, reports))
    return 0


def _compacted(arguments: argparse.Namespace, dry_run: bool) -> list[CompactReport]:
    reports = []
    with tool_stores(arguments) as stores:
        names = [stores.crawl.segment_named(text) for text in arguments.segment]
        with repairs_locked(stores, dry_run=arguments.dry_run):
            if not arguments.dry_run:
                finish_all_swaps(stores)  # else the look would miss segments that lie aside
            for name in names or stores.crawl.segments():
                with _node_locked(stores, name.node, arguments, dry_run=dry_run):
                    reports.append(curate.compact_segment(stores, name, dry_run=dry_run))
    return reports


def _has_dropped(reports: list[CompactReport]) -> str:
    return (
        "the records of dropped pages are deleted for good"
        if any(report.pages for report in reports)
        else ""
    )


def _show_compacted(reports: list[CompactReport]) -> None:
    table = ResultTable({"segment": 18, "state": 9, "pages": 7, "links": 7})
    for report in reports:
        if report.state != "nothing":
            table.add(f"{report.segment}: {report.state}", vars(report))
    if all(report.state == "nothing" for report in reports):
        say("nothing to do: no page is dropped")


def import_archives(arguments: argparse.Namespace) -> int:
    """Make a segment of archives; 1 if a file is no archive."""
    with tool_stores(arguments, make=not arguments.dry_run) as stores:
        report = curate.import_archives(stores, arguments.archive, dry_run=arguments.dry_run)
    shown = {**vars(report), "totals": report.totals}
    print_result(arguments, shown, partial(_show_import, report))
    return 1 if any(file.state == "refused" for file in report.files) else 0


def _show_import(report: ImportReport) -> None:
    """Print a line for each archive, and its first rejections.

    Each rejection has its place.
    """
    for file in report.files:
        say(f"{file.name}: {_import_text(file)}")
        for line in file.first:
            say(f"  {line.removeprefix(f'{file.name}: ')}")
    if report.folder:
        say(f"segment {report.folder}/import")
        say("next: krake settle, or the next crawl, to take in the pages' links")


def _import_text(file: FileReport) -> str:
    if file.state == "already_imported":
        return "already imported"
    if file.state == "refused":
        return f"refused: no readable record; {_counted(file.rejected)}"
    counts = {name: getattr(file, name) for name in ("robots", "waiting", "known", "repeated")}
    parts = [f"{file.pages:,} pages of {file.records:,} records", _counted(counts)]
    parts += [
        f"{word} {_counted(found)}"
        for word, found in (("skipped", file.skipped), ("rejected", file.rejected))
        if found
    ]
    return f"{file.state}: {'; '.join(part for part in parts if part)}"


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)


def index_cdxj(arguments: argparse.Namespace) -> int:
    """Merge the indexes of all segments into one."""
    with tool_stores(arguments) as stores:
        report = curate.merge_indexes(stores, Path(arguments.output) if arguments.output else None)
    return print_counted(arguments, f"index: {report.file}", report)
