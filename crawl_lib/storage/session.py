"""The one HTTP session of a store: pooled, certificates checked, nothing taken from the environment."""

from __future__ import annotations

from collections.abc import Iterator
from http.cookiejar import Cookie, CookieJar, DefaultCookiePolicy
from pathlib import Path

import requests
from requests.adapters import HTTPAdapter
from requests.cookies import RequestsCookieJar

from crawl_lib.config import DfsConfig
from crawl_lib.errors import ConfigError
from crawl_lib.storage.kerberos import Negotiate

POOL_CONNECTIONS = 8


class _Cookies(RequestsCookieJar):
    """Cookies that a thread may read while another one gets the first of a namenode: http.cookiejar raises then."""

    def __iter__(self) -> Iterator[Cookie]:  # type: ignore[override]
        with self._cookies_lock:  # type: ignore[attr-defined]
            return iter(list(CookieJar.__iter__(self)))


def open_session(config: DfsConfig) -> requests.Session:
    """A session with pooled connections that checks certificates and takes nothing from the environment.

    Raises ConfigError where a certificate file is missing, or where Kerberos is asked for and its packages are not
    installed.
    """
    for name in ("ca_file", "cert_file", "key_file"):
        path = getattr(config, name)
        if path is not None and not Path(path).exists():
            raise ConfigError(f"dfs.{name}: {path}: is not there")
    if config.key_file and not config.cert_file:
        raise ConfigError("dfs.key_file: is of no use without dfs.cert_file")
    session = requests.Session()
    session.trust_env = False  # neither a proxy nor .netrc of whoever runs the task
    session.verify = config.ca_file or True
    if config.cert_file:
        session.cert = (config.cert_file, config.key_file) if config.key_file else config.cert_file
    session.cookies = _Cookies()
    session.headers["Accept-Encoding"] = "identity"
    for scheme in ("http://", "https://"):
        session.mount(scheme, HTTPAdapter(pool_connections=POOL_CONNECTIONS, pool_maxsize=POOL_CONNECTIONS))
    if config.security == "kerberos":
        session.auth = Negotiate()
    else:
        session.params = {"user.name": config.user}
        session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    return session
