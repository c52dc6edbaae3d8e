"""`krake export`, `krake graph link`, `krake graph finalize`."""

import argparse
from typing import Any

from crawl_lib import stages
from crawl_lib.cli.common import ProgressLine, config_of, print_counts, stores_of
from crawl_lib.export import newest_export
from crawl_lib.stores import open_stores


def export(arguments: argparse.Namespace) -> int:
    """Write mapping, content and offsets."""
    progress = ProgressLine()
    result = stages.export_pages(
        open_stores(config_of(arguments), stop=arguments.stop, on_progress=progress),
        label=arguments.label,
        folders=arguments.folders,
    )
    return _done("export", result, progress)


def link(arguments: argparse.Namespace) -> int:
    """Turn links into arcs."""
    progress = ProgressLine()
    result = stages.link_export(
        open_stores(config_of(arguments), stop=arguments.stop, on_progress=progress),
        export=_name(arguments),
    )
    return _done("linker", result, progress)


def finalize(arguments: argparse.Namespace) -> int:
    """Write the web graph."""
    progress = ProgressLine()
    result = stages.finalize_export(
        open_stores(config_of(arguments), stop=arguments.stop, on_progress=progress),
        export=_name(arguments),
    )
    return _done("finalizer", result, progress)


def _name(arguments: argparse.Namespace) -> str:
    return arguments.export or newest_export(stores_of(arguments))


def _done(stage: str, result: dict[str, Any], progress: ProgressLine) -> int:
    progress.close()
    print_counts(stage, result)
    return 0
