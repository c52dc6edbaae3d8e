"""`krake folder repair`."""

from __future__ import annotations

import argparse

from crawl_lib.cli.common import print_dry_run, print_json, stores_of


def repair(arguments: argparse.Namespace) -> int:
    """Make the small files of an iteration's folder, or of injected seeds, whole again."""
    from crawl_lib.repair import (  # noqa: PLC0415
        Told,
        repair_folder,
    )

    stores = stores_of(arguments, stop=arguments.stop)
    name = arguments.folder.rstrip("/").removeprefix(f"{stores.crawl.path}/")
    told = Told(arguments.run_id, arguments.iteration)
    report = repair_folder(stores, name, told=told, dry_run=arguments.dry_run)
    if arguments.json:
        print_json(report.to_mapping())
        return 0
    for line in report.done:
        print(line)
    if not report.done:
        print(f"{report.folder}: is whole")
    print_dry_run(arguments)
    return 0
