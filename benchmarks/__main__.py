"""`make bench`: figures of one run on this machine. Prints, never fails on a figure.

Each part runs in processes of its own, and CPU means theirs, start-up included; servers are not counted.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from benchmarks import airflow, batch, crawl, hdfs, keys, parsing
from benchmarks.report import Row, print_rows


def main() -> int:
    """Run all parts, or those named on the command line."""
    parts = {
        "crawl": crawl.run,
        "keys": keys.run,
        "batch": batch.run,
        "hdfs": hdfs.run,
        "airflow": airflow.run,
        "parsing": parsing.run,
    }
    wanted = sys.argv[1:] or list(parts)
    unknown = [name for name in wanted if name not in parts]
    if unknown:
        print(f"no such part: {', '.join(unknown)}; there are {', '.join(parts)}", file=sys.stderr)
        return 2
    rows: list[Row] = []
    for name in wanted:
        print(f"{name} ...", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="krake-bench-") as directory:
            rows += parts[name](Path(directory))
    print_rows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
