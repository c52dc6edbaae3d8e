"""CDXJ index lines: `urlkey timestamp {json}`, sorted, so that replay tools find a capture by binary search.
Source: https://specs.webrecorder.net/cdxj/0.1.0/

The urlkey is a SURT. pywb and others look a URL up by the one that they make, so ours has to be theirs in every letter:
what the package `surt` 0.3.1 (https://github.com/internetarchive/surt) gives with the options it has by default, which
tests compare. Escapes are decoded as often as it goes, and what is not printable escaped again; `www.`, session ids,
default ports, empty and dot segments and the slash at the end are taken out; fields of the query are sorted, labels of
the host reversed, those of an IPv4 address too; all in lower case. Several pages may have one urlkey.
"""

import re
import time
from functools import lru_cache
from json.encoder import encode_basestring_ascii as _quoted
from urllib.parse import unquote_to_bytes

from crawl_lib.records import Fetched
from crawl_lib.segment.encoder import Position

_PARTS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?")
_ESCAPE = re.compile(b"%[0-9A-Fa-f]{2}")
_UNSAFE = re.compile('[^!"$&-~]')
_WWW = re.compile("www[0-9]*[.]")
_NO_PORTS = {("http", "80"), ("https", "443")}
_PATH_SESSIONS = (
    re.compile(r"(.*/)\((?:[a-z]\([0-9a-z]{24}\))+\)/(?=.)"),
    re.compile(r"(.*/)\([0-9a-z]{24}\)/(?=.)"),
)
_QUERY_SESSIONS = tuple(
    re.compile(f"{before}{session}(?:&(.*))?$")
    for before, session in (
        ("(.*)", "jsessionid=[0-9a-z]{32}"),
        ("(.*)", "phpsessid=[0-9a-z]{32}"),
        ("(.*)", "sid=[0-9a-z]{32}"),
        ("(.*)", "aspsessionid[a-z]{8}=[a-z]{24}"),
        # "(.*)" would do but for its time: here each field is tried once, where its last "cfid=" is.
        ("((?:.*&)?(?>[^&]*(?=cfid=[^&])))", "cfid=[^&]++&cftoken=[^&]++"),
    )
)


def surt(url: str) -> str:
    """Return the urlkey of a canonical URL, in linear time.

    The key of an empty text is "-". The keys of other writers' URLs (`dns:`, `whois:`, `filedesc:`) are right too.
    """
    if not url or url.startswith("filedesc"):
        return url or "-"
    parts = _PARTS.match(url)
    if parts is None:
        return surt(f"http://{url}")
    scheme, authority, path, query = parts.groups()
    path = _surt_of_path(path, authority)
    query = _surt_of_query(query) if query else ""
    host = _surt_of_host(scheme, authority) if authority else f"{scheme}:"
    return f"{host}{path or '/'}?{query}" if query else f"{host}{path}"


@lru_cache(maxsize=1024)
def _surt_of_host(scheme: str, authority: str) -> str:
    """Return the part of a urlkey for `scheme://host[:port]`."""
    if authority[0] == "[":
        host, _, port = authority[1:].partition("]")
        port = port[1:]
    else:
        host, _, port = authority.partition(":")
    host = host.replace("..", ".").strip(".")
    www = _WWW.match(host)
    labels = ",".join(reversed(host[www.end() if www else 0 :].split(".")))
    return f"{labels})" if port in {"", "0"} or (scheme, port) in _NO_PORTS else f"{labels}:{port})"


def _surt_of_path(path: str, authority: str | None) -> str:
    """Return the path of a urlkey.

    Without an authority the path is any text, and its slashes separate nothing.
    """
    if "%" in path:
        path = _decoded(path)
    if authority and ("//" in path or "/." in path or not path):
        path = _without_dots(path)
    path = _UNSAFE.sub(_escaped, path).lower()
    if ".aspx" in path:
        for session in _PATH_SESSIONS:
            path = _without_session(path, session)
    return path[:-1] if path[-1:] == "/" and len(path) > 1 else path


def _surt_of_query(query: str) -> str:
    """Return the query of a urlkey, or ""."""
    if "%" in query:
        query = _decoded(query)
    query = _UNSAFE.sub(_escaped, query).lower()
    if "id" in query:
        for session in _QUERY_SESSIONS:
            found = session.match(query)
            if found:
                query = found[1] + (found[2] or "")
    if "&" not in query:
        return query
    return "&".join(sorted(query.split("&"), key=lambda field: field.split("=", 1)))


def _decoded(text: str) -> str:
    """Decode the escapes of a text until none is left.

    The result has a character for each byte.
    """
    decoded = unquote_to_bytes(text)
    if _ESCAPE.search(decoded):
        # Escapes of escapes. A new escape ends at the byte added last.
        stack = bytearray()
        for byte in decoded:
            stack.append(byte)
            while _ESCAPE.fullmatch(stack, max(0, len(stack) - 3)):
                stack[-3:] = bytes.fromhex(stack[-2:].decode())
        decoded = bytes(stack)
    return decoded.decode("latin-1")


def _escaped(character: re.Match[str]) -> str:
    return f"%{ord(character[0]):02x}"


def _without_dots(path: str) -> str:
    """Remove empty and dot segments from a path."""
    kept: list[str] = []
    for segment in path.split("/")[1:]:
        if segment == ".." and kept:
            kept.pop()
        elif segment != ".":
            kept.append(segment)
    return "/" + "/".join(filter(None, kept))


def _without_session(path: str, session: re.Pattern[str]) -> str:
    """Remove the last session id before an ASP page.

    The id and the page are separated by `?`, which was escaped.
    """
    end = len(path)
    while end > 0:
        start = path.rfind("?", 0, end) + 1
        found = session.match(path, start, max(start, path.rfind(".aspx", start, end)))
        if found:
            return path[: found.end(1)] + path[found.end() :]
        end = start - 1
    return path


def declared_mime(head: bytes) -> str:
    """Return the media type of an HTTP head, in lower case.

    A head without a type has "unk".
    """
    start = head.lower().find(b"\ncontent-type:")
    if start < 0:
        return "unk"
    line = head[start + 14 :].split(b"\n", 1)[0]
    return line.split(b";", 1)[0].strip().decode("latin-1").lower() or "unk"


def cdxj_line(fetched: Fetched, digest: str, position: Position) -> str:
    """Return the line of one response, or revisit.

    `digest`: "sha1:...", or "" for none.
    """
    url = fetched.url
    mime = declared_mime(fetched.head) if fetched.revisits is None else "warc/revisit"
    status = "" if fetched.status is None else fetched.status
    return (
        f'{surt(url)} {_stamp(int(fetched.time))} {{"url": {_quoted(url)}, '
        f'"mime": {_quoted(mime)}, "status": "{status}", "digest": "{digest}", '
        f'"length": "{position.length}", "offset": "{position.offset}", "filename": {_quoted(position.warc_file)}}}'
    )


@lru_cache(maxsize=16)
def _stamp(second: int) -> str:
    return time.strftime("%Y%m%d%H%M%S", time.gmtime(second))
