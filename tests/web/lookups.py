"""Names that take long, or for ever: a name server, and a Python whose look-ups go to it.

A fetching process is a program of its own, begun by `sys.executable`. `python_of` makes a small environment of Python
whose c-ares asks a server of ours, and whose program a test puts there. The server goes by the names themselves:

    h-127-90-0-7.quick.test   that address at once        h-127-90-0-7.slow.test   after `SLOW_S`
    h-127-90-0-7.none.test    there is no such name       h-127-90-0-7.stuck.test  never
"""

from pathlib import Path
from typing import Any

import pycares

from tests import pythons
from tests.web.names import Said

SLOW_S = 0.3
"""More than c-ares waits at first, 0.25 s. Each further try waits for twice as long, and of a name that takes 0.5 s two
of them may miss the answer on a busy machine; then 2 s are over."""


def name_of(address: str, kind: str) -> str:
    """The name of that kind whose address that is."""
    return f"h-{address.replace('.', '-')}.{kind}.test"


def says(name: str) -> Said:
    """What a `NameServer` says of such a name."""
    label, kind, _ = name.split(".")
    if kind == "none":
        return Said(code=3)
    address = label.removeprefix("h-").replace("-", ".")
    return Said([address], {"slow": SLOW_S, "stuck": None}.get(kind, 0.0))


def install(server: str) -> None:
    """Have this process ask a name server, whatever the system's files say."""
    real = pycares.Channel

    def channel(**options: Any) -> Any:
        return real(**{**options, "servers": [server]})

    pycares.Channel = channel


def python_of(directory: Path, server: str) -> str:
    """The program of an environment in `directory` that asks this name server; all else is that of this Python."""
    return pythons.python_of(
        directory, f"import tests.web.lookups as lookups; lookups.install({server!r})"
    )
