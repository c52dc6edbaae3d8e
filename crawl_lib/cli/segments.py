"""`krake segment drop|compact`, `krake import` and `krake index`."""

import argparse
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from crawl_lib.cli.common import (
    Waiting,
    plain,
    print_counts,
    print_dry_run,
    print_json,
    require_yes,
    tool_stores,
)

if TYPE_CHECKING:
    from crawl_lib.curate import FileReport, ImportReport

# The tools need numpy and Arrow, which cost every other command a second; so they are imported where they are used.


def drop(arguments: argparse.Namespace) -> int:
    """Take pages out of all segments; 1 if one of them is in none."""
    from crawl_lib.curate import drop_pages  # noqa: PLC0415
    from crawl_lib.repair import repairs_locked  # noqa: PLC0415

    require_yes(arguments, f"{len(arguments.page)} pages are taken out of all results for good")
    with tool_stores(arguments) as stores, repairs_locked(stores, dry_run=arguments.dry_run):
        report = drop_pages(stores, arguments.page, dry_run=arguments.dry_run)
    if arguments.json:
        print_json(asdict(report))
    else:
        dropped = "would drop" if arguments.dry_run else "dropped"
        for title, pages in ((dropped, report.dropped), ("dropped before", report.already)):
            for segment, named in pages.items():
                print(f"{title}: {segment}: {', '.join(named)}")
        for page in report.unknown:
            print(f"not found: {page} is in no segment")
        if report.exports:
            print(f"next: these exports still hold them; make new ones and delete these: {', '.join(report.exports)}")
        if report.dropped:
            print(
                "next: krake segment compact takes them out of the files; krake forget would let them be crawled again"
            )
        print_dry_run(arguments)
    return 1 if report.unknown else 0


def compact(arguments: argparse.Namespace) -> int:
    """Write segments anew without dropped pages: those that are named, else all that have some."""
    from crawl_lib.curate import compact_segment  # noqa: PLC0415
    from crawl_lib.repair import (  # noqa: PLC0415
        finish_all_swaps,
        node_locked,
        repairs_locked,
    )

    reports = []
    dry_run, waiting = arguments.dry_run, Waiting(arguments)
    with tool_stores(arguments) as stores:
        names = [stores.crawl.segment_named(text) for text in arguments.segment]
        require_yes(arguments, "the records of dropped pages are deleted for good")
        with repairs_locked(stores, dry_run=dry_run):
            if not dry_run:
                finish_all_swaps(stores)
            for name in names or stores.crawl.segments():
                with node_locked(stores, name.node, "krake segment compact", waiting, dry_run=dry_run):
                    reports.append(compact_segment(stores, name, dry_run=dry_run))
    if arguments.json:
        print_json([asdict(report) for report in reports])
        return 0
    for report in reports:
        if report.state != "nothing":
            print_counts(f"{report.segment}: {report.state}", asdict(report))
    if all(report.state == "nothing" for report in reports):
        print("nothing to do: no page is dropped")
    print_dry_run(arguments)
    return 0


def import_archives(arguments: argparse.Namespace) -> int:
    """Make a segment of archives; 1 if one of them is none."""
    from crawl_lib.curate import import_archives as bring  # noqa: PLC0415

    with tool_stores(arguments, make=not arguments.dry_run) as stores:
        report = bring(stores, arguments.archive, dry_run=arguments.dry_run)
    if arguments.json:
        print_json(report.to_mapping())
    else:
        _show_import(report)
        print_dry_run(arguments)
    return 1 if report.refused else 0


def _show_import(report: "ImportReport") -> None:
    """A line an archive, and below it the first of what was rejected, each with its place."""
    for file in report.files:
        print(plain(f"{file.name}: {_import_text(file)}"))
        for line in file.first:
            print(plain(f"  {line.removeprefix(f'{file.name}: ')}"))
    if report.folder:
        print(f"segment {report.folder}/import")
        print("next: krake settle takes in what its pages link to; the next crawl does so too")


def _import_text(file: "FileReport") -> str:
    if file.state == "already_imported":
        return "already imported"
    if file.state == "refused":
        return f"refused: no record of it can be read; {_counted(file.rejected)}"
    counts = {name: getattr(file, name) for name in ("robots", "waiting", "known", "repeated")}
    parts = [f"{file.pages:,} pages of {file.records:,} records", _counted(counts)]
    parts += [
        f"{word} {_counted(found)}" for word, found in (("skipped", file.skipped), ("rejected", file.rejected)) if found
    ]
    return f"{file.state}: {'; '.join(part for part in parts if part)}"


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)


def index(arguments: argparse.Namespace) -> int:
    """Merge the indexes of all segments into one."""
    from crawl_lib.curate import merge_indexes  # noqa: PLC0415

    with tool_stores(arguments) as stores:
        report = merge_indexes(stores, Path(arguments.output) if arguments.output else None)
    if arguments.json:
        print_json(asdict(report))
    else:
        print_counts(f"index: {report.file}", asdict(report))
    return 0
