"""Walls around a process that reads strangers' bytes: what it is told, and which files it may still open.

A fetching process must have nothing worth stealing. The password of the key servers, Airflow's secrets and connections,
cloud credentials: secrets are in variables of the task, under names unknown here. Therefore `LET_THROUGH` lists the
allowed variables, not the forbidden ones. Started by exec with it (`forkserver`), neither the fork server nor what it
forks ever had anything else in its memory. A fetching process gets its task on standard input: the config, which
has no password but the one that a proxy may ask for (`fetch.proxy`), since it speaks to the proxy.

Which files: decided before and for good, by Linux's Landlock (kernel 5.13 and later, where it is switched on), without
rights of root. From `shut_in` on the process, its later threads and its children open what was named, and nothing else.
They execute nothing, gain no rights by doing so, send no signal to processes outside, and speak to no abstract socket
of others (both: kernel 6.12). Open files stay open, the log and the node's lock among them. Looking at names and sizes
(`stat`) is not prevented, nor are changes of mode and time of own files. `calls` refuses sockets and processes;
`set_limits` limits memory, sizes of files and descriptors.

Each version of Landlock (its ABI) knows more kinds of access; a kernel cannot refuse unknown rights.
"""

import ctypes
import os
import resource
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from crawl_lib.durable import KILL_VARIABLE

LET_THROUGH = frozenset(
    {
        # The places of Python and its libraries, and the encoding of file names.
        *(
            "HOME",
            "LD_LIBRARY_PATH",
            "PYTHONHOME",
            "PYTHONPATH",
            "PYTHONUSERBASE",
            "PYTHONNOUSERSITE",
        ),
        *("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX", "PYTHONUTF8"),
        *("LANG", "LC_ALL", "LC_CTYPE", "TZ"),
        # Trusted certificates, and settings of the system's resolver.
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "LOCALDOMAIN", "RES_OPTIONS"),
        KILL_VARIABLE,
    }
)
"""Variables that a fetching process gets from its task. Add none whose value may be a secret."""
NONE_TEXT = "fetching processes may open whatever their user may: this kernel has no Landlock, or it is refused"
# https://docs.kernel.org/userspace-api/landlock.html; numbers of linux/landlock.h, the same on all processors
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG, _PATH_BENEATH = 1, 1
_PR_SET_NO_NEW_PRIVS = 38
_WRITE_FILE, _READ_FILE, _READ_DIR, _REMOVE_FILE, _MAKE_FILE = (
    1 << 1,
    1 << 2,
    1 << 3,
    1 << 5,
    1 << 8,
)
_TRUNCATE = 1 << 14
_KINDS_OF_FILES = {1: 13, 2: 14, 3: 15, 5: 16}
"""By ABI: how many kinds of access to files it knows; the bits of all are asked for."""
_SCOPES_SINCE = 6
SCOPES = 1 << 0 | 1 << 1
"""Abstract UNIX sockets, signals."""

READ = _READ_FILE | _READ_DIR
WRITE = READ | _WRITE_FILE | _TRUNCATE | _REMOVE_FILE | _MAKE_FILE
"""Files only: no folders, links, devices, sockets or pipes are made."""
_OF_FILES = _WRITE_FILE | _READ_FILE | _TRUNCATE

SYSTEM_FILES = (
    *("/etc/resolv.conf", "/run/systemd/resolve", "/run/NetworkManager", "/run/resolvconf"),
    *(
        "/etc/hosts",
        "/etc/nsswitch.conf",
        "/etc/host.conf",
        "/etc/gai.conf",
        "/etc/services",
        "/etc/svc.conf",
    ),
    *(
        "/etc/ssl/certs",
        "/etc/ssl/cert.pem",
        "/etc/ssl/openssl.cnf",
        "/etc/pki/tls/certs",
        "/etc/pki/ca-trust",
    ),
    *("/etc/ca-certificates", "/usr/share/ca-certificates", "/usr/local/share/ca-certificates"),
    *("/etc/ld.so.cache", "/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib"),
    *("/etc/localtime", "/usr/share/zoneinfo", "/dev/null", "/dev/urandom"),
)
"""Files for look-ups of names, certificates, libraries and times. Missing files are passed over."""


def clean_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the part of `environ` for fetching processes."""
    return {name: environ[name] for name in sorted(LET_THROUGH & environ.keys())}


def landlock_abi() -> int:
    """Return this kernel's version of Landlock.

    0: Landlock is missing, disabled or refused.
    """
    return max(0, _call(_CREATE_RULESET, None, 0, _VERSION_FLAG))


def data_bytes() -> int:
    """Return this process's bytes counted by RLIMIT_DATA.

    Call this before `shut_in`, which bars /proc.
    """
    try:
        return (
            int(Path("/proc/self/statm").read_text(encoding="ascii").split()[5])
            * resource.getpagesize()
        )
    except OSError:
        return 64 << 20


def set_limits(**limits: int) -> None:
    """Set limits of this process and all children for good.

    A limit is named without `RLIMIT_`. An existing lower limit stays.
    """
    for name, value in limits.items():
        kind = getattr(resource, f"RLIMIT_{name}")
        _, hard = resource.getrlimit(kind)
        least = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (least, least))


def shut_in(*, read: Iterable[Path | str], write: Iterable[Path | str]) -> str:
    """Let this process open only these files and folders.

    Whatever is below the folders can be opened, too.

    `read`: in addition to those of the system and of Python; `write`: folders in which files are made, replaced and
    deleted, too. For a process of one thread. Returns a line about missing features; "" if the walls are up.
    """
    abi = landlock_abi()
    if not abi:
        return NONE_TEXT
    handled = (1 << _KINDS_OF_FILES[max(since for since in _KINDS_OF_FILES if since <= abi)]) - 1
    # Files, network, scopes: a kernel that knows less of them takes the rest if it is 0.
    attributes = (ctypes.c_uint64 * 3)(handled, 0, SCOPES if abi >= _SCOPES_SINCE else 0)
    rules = _call(_CREATE_RULESET, ctypes.byref(attributes), ctypes.sizeof(attributes), 0)
    if rules < 0:
        return NONE_TEXT
    import ssl  # noqa: PLC0415 - only the process that fetches has it loaded

    try:
        of_ssl = (
            ssl.get_default_verify_paths()
        )  # what OpenSSL, or `SSL_CERT_FILE` and `SSL_CERT_DIR`, name
        certificates = filter(
            None, (of_ssl.cafile, of_ssl.capath, of_ssl.openssl_cafile, of_ssl.openssl_capath)
        )
        for path in {*SYSTEM_FILES, *certificates, *_python_files(), *map(str, read)}:
            _let_in(rules, path, READ & handled)
        for path in map(str, write):
            _let_in(rules, path, WRITE & handled)
        _let_in(rules, os.devnull, _OF_FILES & handled)
        ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        return NONE_TEXT if _call(_RESTRICT_SELF, rules, 0) else ""
    finally:
        os.close(rules)


def _call(number: int, *arguments: object) -> int:
    return int(ctypes.CDLL(None).syscall(number, *arguments))


def _let_in(rules: int, path: str, access: int) -> None:
    """Add a rule; nothing if there is no such path."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            if not Path(path).is_dir():
                access &= _OF_FILES
            rule = access.to_bytes(8, sys.byteorder) + descriptor.to_bytes(4, sys.byteorder)
            _call(_ADD_RULE, rules, _PATH_BENEATH, rule, 0)
        finally:
            os.close(descriptor)


def _python_files() -> set[str]:
    """Return the files of Python and of installed packages.

    Other places in `sys.path` add only the imported modules. A place there may be a project's folder, in which the
    config, or the queues, lie too.
    """
    installed = {
        str(Path(prefix) / "lib") for prefix in (sys.prefix, sys.exec_prefix, sys.base_prefix)
    }
    installed |= {
        entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")
    }
    modules = [module for name, module in list(sys.modules.items()) if "." not in name]
    places = [
        place
        for one in modules
        for place in getattr(one, "__path__", None) or [getattr(one, "__file__", None)]
    ]
    return installed.union(place for place in places if place and place.startswith("/"))
