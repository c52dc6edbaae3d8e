"""Names that take long, or for ever: a Python whose look-ups are these, for the fetching processes of a test.

A fetching process is a program of its own, begun by `sys.executable`. `python_of` makes a small environment of Python
in which `socket.getaddrinfo` answers for the names of `.test` as the names themselves say, and whose program a test
puts there:

    h-127-90-0-7.quick.test   that address at once        h-127-90-0-7.slow.test   after half a second
    h-127-90-0-7.none.test    there is no such name       h-127-90-0-7.stuck.test  never
"""

import socket
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SLOW_S = 0.5
NEVER_S = 3600.0


def name_of(address: str, kind: str) -> str:
    """The name of that kind whose address that is."""
    return f"h-{address.replace('.', '-')}.{kind}.test"


def answer(host: str) -> str:
    """The address that a name of ours says. Raises socket.gaierror."""
    label, kind, _ = host.split(".")
    if kind == "none":
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    time.sleep({"slow": SLOW_S, "stuck": NEVER_S}.get(kind, 0.0))
    return label.removeprefix("h-").replace("-", ".")


def install() -> None:
    """Have this process look names up so."""
    real = socket.getaddrinfo

    def getaddrinfo(host: Any, *more: Any, **named: Any) -> Any:
        if isinstance(host, str) and host.endswith(".test"):
            host = answer(host)
        return real(host, *more, **named)

    socket.getaddrinfo = getaddrinfo


def python_of(directory: Path) -> str:
    """The program of an environment in `directory` whose look-ups are ours; all else is that of this Python."""
    site = directory / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    site.mkdir(parents=True)
    (directory / "bin").mkdir()
    program = directory / "bin" / "python"
    program.symlink_to(Path(sys.executable).resolve())
    base = Path(sys.base_prefix) / "bin"
    (directory / "pyvenv.cfg").write_text(f"home = {base}\ninclude-system-site-packages = false\n")
    packages = sysconfig.get_paths()["purelib"]
    lines = [f"import site; site.addsitedir({packages!r})", str(ROOT), "import tests.web.lookups as l; l.install()"]
    (site / "lookups.pth").write_text("\n".join(lines) + "\n")
    return str(program)
