"""What programs of tests are forked with (`tests.forked`): the library, and what Arrow loads at its first array."""

import gc
from contextlib import suppress
from importlib import import_module
from pkgutil import walk_packages

import pyarrow

import crawl_lib

gc.disable()  # modules leave nothing to collect
for module in walk_packages(crawl_lib.__path__, "crawl_lib."):
    with suppress(ModuleNotFoundError):  # PySpark need not be installed
        if not module.name.endswith("__main__"):
            import_module(module.name)
import_module("tests.e2e.crawl")
pyarrow.array([1])
gc.enable()
gc.freeze()  # else a collection in a forked program would copy all of it
