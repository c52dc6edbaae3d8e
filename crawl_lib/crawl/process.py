"""How a fetching process begins: without what it does not need, since a small take is paid for by its start.

Arrow imports numpy when it is loaded and pandas at its first array, where they are installed, and works without them.
They would cost each process 0.1 and 1.7 s of CPU; a worker uses neither. So they are barred before anything else.
"""

from __future__ import annotations

import gc
import sys
from importlib.abc import MetaPathFinder

BARRED = frozenset({"numpy", "pandas"})


class _Bar(MetaPathFinder):
    """An import hook to which the barred packages are not installed."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname in BARRED:
            raise ModuleNotFoundError(f"{fullname} is not for fetching processes", name=fullname)


def main() -> int:
    """Bar the packages, then run the worker."""
    sys.meta_path.insert(0, _Bar())
    gc.disable()  # modules leave nothing to collect, and looking for it is a tenth of their cost
    from crawl_lib.crawl import worker  # noqa: PLC0415 - it imports Arrow

    gc.enable()
    return worker.main()


if __name__ == "__main__":
    sys.exit(main())
