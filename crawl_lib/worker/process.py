"""The program from which fetching processes are forked (`walls.forkserver`). The process loads only modules that
workers need."""

import gc
import sys
from importlib import import_module

from crawl_lib.walls import allow_descriptors, bar_packages, keep_memory


def main() -> int:
    """Prepare the process, load the worker, then fork workers on request.

    Packages are barred, and allocator and memory limit are set, first. Arguments of the program: the task's process,
    the descriptor of the socket to it, and the module whose `main` a forked process runs, unless that is the worker's.
    """
    bar_packages()
    keep_memory()
    allow_descriptors()
    gc.disable()  # modules leave no garbage, and a collection is a tenth of their cost
    from crawl_lib.walls import WORKER, serve  # noqa: PLC0415

    run = import_module(sys.argv[3] if len(sys.argv) > 3 else WORKER).main

    gc.freeze()  # and no collection in a worker writes to what they share
    gc.enable()
    serve(int(sys.argv[1]), int(sys.argv[2]), run)
    return 0


if __name__ == "__main__":
    sys.exit(main())
