"""The environment of fetching processes: a short list of variables, and nothing else of what the task has.

Who parses strangers' bytes must have nothing worth stealing. The password of the key servers, Airflow's secrets and
connections, cloud credentials: they are in variables of the task, under names that are not known here. So this is a
list of what is let through, not of what is kept away. Begun by exec with it (`forkserver`), neither the fork server nor
what it forks ever had anything else in its memory.

What a fetching process is told comes by its standard input: the config, which has no password but the one that a
proxy may ask for (`fetch.proxy`), since it is the one who speaks to the proxy.
"""

from __future__ import annotations

from collections.abc import Mapping

from crawl_lib.durable import KILL_VARIABLE

LET_THROUGH = frozenset(
    {
        # Where Python and its libraries lie, and how names of files are encoded.
        *("HOME", "LD_LIBRARY_PATH", "PYTHONHOME", "PYTHONPATH", "PYTHONUSERBASE", "PYTHONNOUSERSITE"),
        *("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX", "PYTHONUTF8"),
        *("LANG", "LC_ALL", "LC_CTYPE", "TZ"),
        # Whose certificates are believed, and how the system's resolver is set.
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "LOCALDOMAIN", "RES_OPTIONS"),
        KILL_VARIABLE,
    }
)
"""Variables that a fetching process gets, where its task has them. Add none whose value may be a secret."""


def clean_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The part of `environ` that fetching processes get."""
    return {name: environ[name] for name in sorted(LET_THROUGH & environ.keys())}
