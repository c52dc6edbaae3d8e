"""CDXJ index lines: `urlkey timestamp {json}`, sorted, so that replay tools find a capture by binary search.

The urlkey is a SURT: host labels in reverse order, without `www`; then path and query, in lower case, query fields
sorted, no slash at the end. Addresses keep their order. Source: https://specs.webrecorder.net/cdxj/0.1.0/
"""

from __future__ import annotations

import re
import time
from functools import lru_cache
from json.encoder import encode_basestring_ascii as _quoted
from urllib.parse import urlsplit

from crawl_lib.records import Fetched
from crawl_lib.segment.records import Position

WWW = re.compile(r"^www\d*\.")
DEFAULT_PORTS = {"http": 80, "https": 443}


def surt(url: str) -> str:
    """The urlkey of a canonical URL; of anything else, its text in lower case without spaces."""
    path_start = url.find("/", url.find("://") + 3)
    host = _surt_of_host(url[:path_start]) if path_start > 0 else ""
    if not host:
        return url.lower().replace(" ", "%20") or "-"
    path, _, query = url[path_start:].partition("#")[0].partition("?")
    fields = f"?{'&'.join(sorted(query.split('&')))}" if query else ""
    return f"{host}){path.rstrip('/') or '/'}{fields}".lower().replace(" ", "%20")


@lru_cache(maxsize=1024)
def _surt_of_host(origin: str) -> str:
    """What stands for `scheme://host[:port]` in a urlkey; "" if that is none."""
    try:
        parts = urlsplit(origin)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return ""
    if not host or parts.query or parts.fragment:
        return ""
    if ":" in host:
        labels = f"[{host}]"
    elif host.replace(".", "").isdigit():
        labels = host
    else:
        labels = ",".join(reversed(WWW.sub("", host).rstrip(".").split(".")))
    return f"{labels}:{port}" if port and port != DEFAULT_PORTS.get(parts.scheme) else labels


def declared_mime(head: bytes) -> str:
    """The media type of an HTTP head, in lower case, "unk" where it has none."""
    start = head.lower().find(b"\ncontent-type:")
    if start < 0:
        return "unk"
    line = head[start + 14 :].split(b"\n", 1)[0]
    return line.split(b";", 1)[0].strip().decode("latin-1").lower() or "unk"


def cdxj_line(fetched: Fetched, digest: str, position: Position) -> str:
    """The line of one response. `digest`: "sha1:...", or "" for none."""
    url = fetched.url
    status = "" if fetched.status is None else fetched.status
    return (
        f'{surt(url)} {_stamp(int(fetched.time))} {{"url": {_quoted(url)}, '
        f'"mime": {_quoted(declared_mime(fetched.head))}, "status": "{status}", "digest": "{digest}", '
        f'"length": "{position.length}", "offset": "{position.offset}", "filename": {_quoted(position.warc_file)}}}'
    )


@lru_cache(maxsize=16)
def _stamp(second: int) -> str:
    return time.strftime("%Y%m%d%H%M%S", time.gmtime(second))
