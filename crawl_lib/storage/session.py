"""The one HTTP session of a store: pooled, certificates checked, nothing taken from the environment.

Kerberos over HTTP (SPNEGO, RFC 4559): a ticket proves the client, and the answer proves the server.

One exchange for each namenode and session: the answer sets the cookie `hadoop.auth` (10 hours by default), which the
session sends from then on; after the cookie's end the server asks again, and a new exchange follows. Each exchange
reads the ticket cache again, so that a renewed ticket is used without a restart. Datanodes are shown a delegation token
(`WebHdfs.token`), one for a session. Measured on two busy cores, by HTTPS: a request with the cookie takes the client
1.0 to 1.5 ms of CPU, one with an exchange 2 ms more, and 10 to 15 ms more until its answer; a datanode closes the
connection behind each file, and a new one by TLS takes 1.8 ms of CPU.

The library is GSSAPI, which obeys the variables KRB5CCNAME (a cache of tickets), KRB5_CLIENT_KTNAME (a keytab, from
which it gets and renews tickets by itself) and KRB5_CONFIG. It is in the extra `kerberos`, and is loaded only where
`dfs.security` is `kerberos`.

Not by requests-kerberos: that one keeps the state of an exchange in the session, where the
threads of several open files mix it up, and tells only the log why there is no ticket.
"""

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from http.cookiejar import Cookie, CookieJar, DefaultCookiePolicy
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase
from requests.cookies import RequestsCookieJar, extract_cookies_to_jar

from crawl_lib.config import DfsConfig
from crawl_lib.errors import ConfigError
from crawl_lib.version import in_checkout

POOL_CONNECTIONS = 8

_OFFER = re.compile(r"\bNegotiate\b(?:\s+([A-Za-z0-9+/=]+))?", re.IGNORECASE)


KDC_UNREACHABLE, CLOCK_SKEW = (
    code & 0xFFFFFFFF for code in (-1765328228, -1765328347)
)  # krb5.h; GSSAPI: unsigned


class TicketError(requests.RequestException):
    """There is no ticket, none that is good now, or none for this server; the text says which. For this package.

    `kind`: "ticket"; "kdc" where no server can be asked for one; "clock" where clocks differ.
    """

    def __init__(self, *arguments: object, kind: str = "ticket", **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.kind = kind


class Negotiate(AuthBase):
    """Answers a server's `WWW-Authenticate: Negotiate`. Safe to use from several threads.

    Raises ConfigError when made, if the extra `kerberos` is not installed; from a request TicketError.
    """

    def __init__(self) -> None:
        try:
            import gssapi  # noqa: PLC0415 - an extra
        except (ImportError, OSError) as error:
            extra = (
                f"needs the extra: {'make setup-kerberos, or ' if in_checkout() else ''}pip "
                f"install 'krake[kerberos]'"
            )
            raise ConfigError(f"dfs.security: kerberos {extra} ({error})") from error
        self._gssapi: Any = gssapi

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Look at the answer of a request."""
        request.register_hook("response", self._answered)  # type: ignore[no-untyped-call]
        return request

    def credentials(self) -> Any:
        """Return the credentials to show; None: the environment's."""
        return None

    def _answered(self, response: requests.Response, **options: Any) -> requests.Response:
        """Return the answer, repeated with a ticket if asked."""
        request = response.request
        can_be_sent_again = request.body is None or isinstance(request.body, bytes)
        if (
            response.status_code != requests.codes.unauthorized
            or _token_of(response) is None
            or not can_be_sent_again
        ):
            return response
        host = urlsplit(request.url or "").hostname or ""
        response.content  # noqa: B018 - read to its end, so that the connection can be used again
        response.close()
        again = request.copy()
        jar = again._cookies  # type: ignore[attr-defined]
        extract_cookies_to_jar(jar, request, response.raw)  # type: ignore[no-untyped-call]
        again.headers.pop("Cookie", None)  # the one that has run out
        again.prepare_cookies(jar)
        try:
            answer = self._exchanged(
                again, host, lambda: response.connection.send(again, **options)
            )
        except self._gssapi.exceptions.GSSError as error:
            kind = {KDC_UNREACHABLE: "kdc", CLOCK_SKEW: "clock"}.get(error.min_code, "ticket")
            words = [
                *error.get_all_statuses(error.min_code, False),
                *error.get_all_statuses(error.maj_code, True),
                error,
            ]
            raise TicketError(
                f"Kerberos for HTTP@{host}: {words[0]}", kind=kind, request=request
            ) from error
        answer.history.append(response)
        answer.request = again
        return answer

    def _exchanged(
        self, request: requests.PreparedRequest, host: str, send: Callable[[], requests.Response]
    ) -> requests.Response:
        """Send a request with a ticket, and check the server's key.

        Raises GSSError.
        """
        gssapi = self._gssapi
        context = gssapi.SecurityContext(
            name=gssapi.Name(f"HTTP@{host}", gssapi.NameType.hostbased_service),
            creds=self.credentials(),
            usage="initiate",
            mech=gssapi.MechType.kerberos,
            flags=gssapi.RequirementFlag.mutual_authentication
            | gssapi.RequirementFlag.replay_detection,
        )
        request.headers["Authorization"] = (
            f"Negotiate {base64.b64encode(context.step() or b'').decode()}"
        )
        answer = send()
        try:
            if answer.ok:  # an answer before the server's own key is worth nothing
                context.step(_token_of(answer) or b"")
        except gssapi.exceptions.GSSError:
            answer.close()
            raise
        return answer


def _token_of(response: requests.Response) -> bytes | None:
    """Return the token behind `Negotiate`, or None."""
    offer = _OFFER.search(response.headers.get("WWW-Authenticate", ""))
    if offer is None:
        return None
    try:
        return base64.b64decode(offer[1] or "", validate=True)
    except binascii.Error:
        return b""


class _Cookies(RequestsCookieJar):
    """Cookies that a thread may read while another one gets the first of a namenode: http.cookiejar raises then."""

    def __iter__(self) -> Iterator[Cookie]:  # type: ignore[override]
        with self._cookies_lock:  # type: ignore[attr-defined]
            return iter(list(CookieJar.__iter__(self)))


def open_session(config: DfsConfig) -> requests.Session:
    """Open a session that checks certificates and ignores the environment.

    Connections are pooled. Raises ConfigError where a certificate file is missing, or where Kerberos is asked for and
    its packages are not installed.
    """
    for name in ("ca_file", "cert_file", "key_file"):
        path = getattr(config, name)
        if path is not None and not Path(path).exists():
            raise ConfigError(f"dfs.{name}: {path}: is not there")
    if config.key_file and not config.cert_file:
        raise ConfigError("dfs.key_file: is of no use without dfs.cert_file")
    session = requests.Session()
    session.trust_env = False  # neither a proxy nor .netrc of the user who runs the task
    session.verify = config.ca_file or True
    if config.cert_file:
        session.cert = (config.cert_file, config.key_file) if config.key_file else config.cert_file
    session.cookies = _Cookies()
    session.headers["Accept-Encoding"] = "identity"
    for scheme in ("http://", "https://"):
        session.mount(
            scheme, HTTPAdapter(pool_connections=POOL_CONNECTIONS, pool_maxsize=POOL_CONNECTIONS)
        )
    if config.security == "kerberos":
        session.auth = Negotiate()
    else:
        session.params = {"user.name": config.user}
        session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    return session
