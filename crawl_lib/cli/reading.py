"""`krake segment list|get|dump`: content of committed segments."""

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Any

from crawl_lib.ask import (
    ListedSegment,
    captures_of,
    dump_rows,
    list_segments,
    require_segments,
    segment_files,
)
from crawl_lib.cli.common import ResultTable, print_counts, print_result, say, tool_stores
from crawl_lib.errors import InputError, os_errors
from crawl_lib.parquet import plain_row


def list_all(arguments: argparse.Namespace) -> int:
    """Print all segments, or the paths of their files."""
    with tool_stores(arguments) as stores:
        if arguments.files:
            paths = segment_files(stores, arguments.files)
            print_result(arguments, paths, partial(_show_paths, paths))
            return 0
        found = list_segments(stores)
    print_result(arguments, found, partial(_show_list, found))
    return 0


def _show_paths(paths: list[str]) -> None:
    for path in paths:
        say(path)


def _show_list(found: list[ListedSegment]) -> None:
    table = ResultTable({"segment": 18, "finished": 17, "pages": 7, "links": 7})
    for one in found:
        counts = {name: value for name, value in vars(one).items() if name != "segment"}
        finished = f"{one.finished[:16]}Z"  # to the minute: a terminal is narrow
        table.add(one.segment, counts, segment=one.segment, finished=finished)
    if not found:
        say("there is no segment yet; `krake crawl` makes some")


def get(arguments: argparse.Namespace) -> int:
    """Write all fetches of a URL; 1 if there are none.

    Raises InputError if the output exists.
    """
    path = Path(arguments.output) if arguments.output else None
    if path is not None and path.exists():
        raise InputError(f"{path}: is there already; choose another name, or delete the file")
    found, members = [], bytearray()
    with tool_stores(arguments) as stores:
        for capture in captures_of(
            stores, arguments.url, require_segments(stores, arguments.segment)
        ):
            members += b"".join(one.raw for one in capture.records)
            heads = [one.record.headers for one in capture.records]
            found.append(
                {"segment": capture.segment, "row": plain_row(capture.row), "records": heads}
            )
    if path is not None and found:
        with os_errors(path, "cannot be written"):
            path.write_bytes(members)
    print_result(arguments, found, partial(_show_captures, found))
    return 0 if found else 1


def _show_captures(found: list[dict[str, Any]]) -> None:
    for one in found:
        facts = {name: str(value) for name, value in one["row"].items() if value is not None}
        kinds = [f"{head['warc-type']} {head.get('warc-record-id', '')}" for head in one["records"]]
        print_counts(f"{one['segment']} {one['row']['url']}", {**facts, "record": kinds})
    if not found:
        say("the URL was never fetched; `krake why` explains")


def dump(arguments: argparse.Namespace) -> int:
    """Print rows of a table."""
    with tool_stores(arguments) as stores:
        segments = require_segments(stores, arguments.segment)
        dump_rows(stores, segments, arguments.table, sys.stdout, as_csv=arguments.format == "csv")
    return 0
