"""The canonical form as it was computed first: parsed, decoded once, and so on until nothing changes.

The form is part of every crawl's format, since keys are its SHA-1. So tests compare today's function with this one,
which takes quadratic time where each pass decodes one escape.
"""

import re

import ada_url

from crawl_lib.errors import UrlError
from crawl_lib.urls.rejections import Rejection

DEFAULT_MAX_LENGTH_CHARS = 2000

_ESCAPE = re.compile("%[0-9A-Fa-f]{2}")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


def canonicalize(url: str, *, max_length_chars: int = DEFAULT_MAX_LENGTH_CHARS) -> str:
    """Return the canonical form of an absolute URL: pure ASCII, without any white space.

    Raises UrlError whose `reason` is a `Rejection` (invalid, scheme, too_long); the caller counts it.
    """
    return canonical_of(_serialise(url, url), url, max_length_chars)


def resolve(base: str, href: str, *, max_length_chars: int = DEFAULT_MAX_LENGTH_CHARS) -> str:
    """Return the canonical form of `href` as found on a page whose base URL (canonical) is `base`.

    Raises UrlError as `canonicalize` does. `LinkResolver` gives the same answers, faster.
    """
    try:
        serialised = ada_url.join_url(base, href)
    except ValueError:
        raise UrlError(Rejection.INVALID, href) from None
    return canonical_of(serialised, href, max_length_chars)


def canonical_of(serialised: str, given: str, max_length_chars: int) -> str:
    """Carry a WHATWG serialisation to the canonical form; `given` is the text that errors name.

    Raises UrlError for the caller to count.
    """
    if not serialised.startswith(("http://", "https://")):
        raise UrlError(Rejection.SCHEME, given)
    url, settled = _tidy(serialised, given)
    while not settled:
        url, settled = _tidy(_serialise(url, given), given)
    if len(url) > max_length_chars:
        raise UrlError(Rejection.TOO_LONG, given)
    return url


def _serialise(url: str, given: str) -> str:
    try:
        return ada_url.normalize_url(url)
    except ValueError:
        raise UrlError(Rejection.INVALID, given) from None


def _tidy(url: str, given: str) -> tuple[str, bool]:
    """Apply our steps to a serialised URL; False with it when the result has to be parsed again."""
    cut = url.find("#")
    if cut >= 0:
        url = url[:cut]
    if url[-1] == "?" and url.index("?") == len(url) - 1:
        url = url[:-1]
    settled = True
    # A serialised http URL has a path, so a slash ends the authority; "@" and dots inside of it are the rare case.
    end = url.index("/", 8)
    if "@" in url or url[end - 1] == "." or ".:" in url:
        authority = _tidy_authority(url[:end], given)
        settled = len(authority) == end
        url = authority + url[end:]
    if "%" in url:
        decoded = _ESCAPE.sub(_replace_escape, url)
        settled = settled and len(decoded) == len(url)
        url = decoded
    return url, settled


def _tidy_authority(authority: str, given: str) -> str:
    """Remove credentials and the host's last dots from `scheme://authority`."""
    scheme, _, rest = authority.partition("://")
    rest = rest[rest.rfind("@") + 1 :]
    host, colon, port = rest.rpartition(":")
    if not colon or rest.endswith("]"):
        host, colon, port = rest, "", ""
    host = host.rstrip(".")
    if not host:
        raise UrlError(Rejection.INVALID, given)
    return f"{scheme}://{host}{colon}{port}"


def _replace_escape(match: re.Match[str]) -> str:
    escape = match[0]
    character = chr(int(escape[1:], 16))
    return character if character in _UNRESERVED else escape.upper()
