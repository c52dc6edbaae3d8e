"""Walls round child processes that read strangers' bytes: environment, files, system calls, limits.

How data flows: `fork_server` starts a process without secrets (`forkserver`). The server loads the modules and forks
the children. A child loads only needed packages (`process`). Before the child reads a byte, `set_limits`
limits its memory, `shut_in` closes the file system (`sandbox`), and `refuse_calls` refuses system calls (`calls`).

A child dies with its parent. No step can be undone, so a child that a page has taken over stays behind the walls.
"""

from typing import TYPE_CHECKING

from crawl_lib.lazy import loads_later

if TYPE_CHECKING:
    from crawl_lib.walls.calls import NO_FILTER_TEXT, can_filter, refuse_calls
    from crawl_lib.walls.forkserver import (
        WORKER,
        Forked,
        die_with_parent,
        ended,
        fork_child,
        fork_server,
        serve,
    )
    from crawl_lib.walls.process import allow_descriptors, bar_packages, keep_memory
    from crawl_lib.walls.sandbox import (
        NONE_TEXT,
        clean_environment,
        data_bytes,
        landlock_abi,
        set_limits,
        shut_in,
    )
else:
    # `process` bars packages before anything else is loaded.
    __getattr__ = loads_later(
        __name__,
        {
            "calls": ("NO_FILTER_TEXT", "can_filter", "refuse_calls"),
            "forkserver": (
                "WORKER",
                "Forked",
                "die_with_parent",
                "ended",
                "fork_child",
                "fork_server",
                "serve",
            ),
            "process": ("allow_descriptors", "bar_packages", "keep_memory"),
            "sandbox": (
                "NONE_TEXT",
                "clean_environment",
                "data_bytes",
                "landlock_abi",
                "set_limits",
                "shut_in",
            ),
        },
    )
