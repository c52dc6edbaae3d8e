"""Set up a process that reads many pages: no packages without use, memory that stays, enough descriptors.

Arrow imports installed numpy at the start and pandas at the first array, and works without both.
Both would cost 0.1 and 1.7 s of CPU; a worker uses neither. These packages are barred before anything else.

And with an allocator that keeps freed memory: the tree of a page is some hundred KB, and a page comes after the next.
glibc's own settings give such memory back to the kernel each time, and 30 page faults a page bring it again. Arrow uses
this allocator too: an allocator of its own costs 2 % of the CPU.

And with as many descriptors as it may need: systems begin with 1,024, which some hundred slow requests use up.
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
"""The kernel gives and takes back larger pieces, piece by piece."""
DESCRIPTORS = 1 << 16
"""No config asks for more. A function that closes all descriptors has to count to the limit, which may be a billion."""
# https://man7.org/linux/man-pages/man3/mallopt.3.html
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def bar_packages() -> None:
    """Make unneeded packages look as if they were not installed."""
    sys.modules.update(dict.fromkeys(BARRED))  # type: ignore[arg-type]


def keep_memory() -> None:
    """Set the allocator before Arrow is loaded.

    See the module's text. Glibc's allocator is set only where glibc is the C library.
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
