"""Set up a process that reads many pages: no packages without use, memory that stays, enough descriptors.

Arrow imports installed numpy at the start and pandas at the first array, and works without both.
Both would cost 0.1 and 1.7 s of CPU; a worker uses neither. These packages are barred before anything else.

The allocator keeps freed memory. The tree of a page takes some hundred KB, and page follows page. With glibc's own
settings the memory goes back to the kernel each time, and 30 page faults a page bring the memory again. Arrow uses the
same allocator: a second allocator costs 2 % of the CPU.

The process gets all the descriptors it may need. Systems begin with 1,024, and some hundred slow requests use all.
"""

import ctypes
import os
import resource
import sys
from contextlib import suppress

BARRED = frozenset({"numpy", "pandas"})
KEPT_BYTES = 64 << 20
"""The number of freed bytes at the end of the heap that stay with the process."""
MAPPED_BYTES = 8 << 20
"""Larger pieces come from the kernel singly, and go back to the kernel singly."""
DESCRIPTORS = 1 << 16
"""Enough for any config. The limit may be a billion, and closing all descriptors before a new program starts would
count to the limit."""
# https://man7.org/linux/man-pages/man3/mallopt.3.html
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def bar_packages() -> None:
    """Make unneeded packages look as if they were not installed."""
    sys.modules.update(dict.fromkeys(BARRED))  # type: ignore[arg-type]


def keep_memory() -> None:
    """Set the allocator before Arrow is loaded.

    The module's text gives the reason. Other C libraries than glibc keep their settings.
    """
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"
    with suppress(AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES)


def allow_descriptors() -> None:
    """Raise the limit on descriptors as far as possible."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(now, min(most, DESCRIPTORS)), most))
