"""Random canonical URLs, whose urlkeys have to be those of the library `surt`: `python -m tests.segment.surt_random N`.

The URLs are put together of what either program treats apart: escapes of escapes, session ids and what nearly is one,
dots, slashes, `www`, ports, addresses, brackets. The library runs in pywb's environment (`make setup-pywb`).
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from crawl_lib.errors import UrlError
from crawl_lib.segment.cdxj import surt
from crawl_lib.urls import canonicalize

PYWB_PYTHON = Path(__file__).resolve().parents[2] / ".venv-pywb" / "bin" / "python"
LIBRARY = "import sys, surt\nfor line in sys.stdin: print(surt.surt(line.removesuffix('\\n')))"

LABELS = (
    "www",
    "www2",
    "www-",
    "wwwx",
    "WWW77",
    "a",
    "B-c",
    "example",
    "com",
    "co",
    "xn--bcher-kva",
    "",
    "",
    "0",
)
LABELS += ("12", "!$", "'()*+,;=", "_~", '"`{}', "é", "日本")
HOSTS = (
    "127.0.0.1",
    "0x7f.1",
    "017.1",
    "3232235777",
    "[::1]",
    "[2001:db8::7:0:1]",
    "[::ffff:1.2.3.4]",
    "1.2.3.4.",
)
PORTS = ("", "", "", "", ":80", ":443", ":8080", ":0", ":", ":65535", ":081")
HEX24, HEX32 = "0123456789abcdefGHIJKLMN", "0123456789ABCDEF0123456789abcdef"
SESSIONS = (
    f"({HEX24})",
    f"(a({HEX24})S({HEX24}))",
    f"(a({HEX24}))",
    f"(A({HEX24[1:]}))",
    f"({HEX24}0)",
    ".aspx",
    "x.ASPX",
    "?.aspx",
    "%3F",
)
FIELDS = (
    f"jsessionid={HEX32}",
    f"PHPSESSID={HEX32}",
    f"sid={HEX32}",
    f"sid={HEX32[1:]}",
    f"xsid={HEX32}y",
    f"ASPSESSIONIDabcdEFGH={'Ab' * 12}",
    "cfid=1",
    "CFID=",
    "xcfid=cfid=",
    "cftoken=2",
    "CFTOKEN=",
    "cftoken==%26",
    "id",
)
ESCAPES = (
    "%",
    "%2",
    "%%",
    "%g1",
    "%25",
    "%2525",
    "%252525252f",
    "%%32%35",
    "%252e",
    "%2E",
    "%2f",
    "%2F",
    "%3f",
)
ESCAPES += (
    "%3D",
    "%26",
    "%23",
    "%0a",
    "%00",
    "%20",
    "%7f",
    "%80",
    "%C3%A9",
    "%41",
    "%E0%80",
    "%5b",
    "%22",
    "%2b",
)
MARKS = (*"/./?&&=#;,:@[]()\\|^{}\"'`<>~_-*!$+ é\U0001f577", "//", "..", "/./", "/../", "==")
WORDS = ("a", "B", "index.html", "Z9", "id", "wiki", "archive", "b", "page")
PARTS = (SESSIONS, FIELDS, ESCAPES, MARKS, MARKS, WORDS, WORDS)
FEW = ((SESSIONS, WORDS), (FIELDS,))
"""From which most of a text is taken at times: else these seldom meet as they must."""


def random_urls(seed: int) -> Iterator[str]:
    """Canonical URLs without end; the same for the same seed."""
    rng = random.Random(seed)
    while True:
        try:
            yield canonicalize(_random_url(rng))
        except UrlError:
            continue


def _random_url(rng: random.Random) -> str:
    host = (
        rng.choice(HOSTS)
        if rng.random() < 0.1
        else ".".join(rng.choices(LABELS, k=rng.randint(1, 5)))
    )
    path = _text(rng, rng.choice((0, 2, 5, 12)), rng.choice(("", "/")))
    query = (
        f"?{_text(rng, rng.choice((1, 3, 6, 12)), rng.choice(('', '&')))}"
        if rng.random() < 0.6
        else ""
    )
    return f"{rng.choice(('http', 'https', 'HTTP'))}://{host}{rng.choice(PORTS)}/{path}{query}"


def _text(rng: random.Random, most: int, between: str) -> str:
    parts = PARTS if rng.random() < 0.8 else rng.choice(FEW)
    return between.join(rng.choice(rng.choice(parts)) for _ in range(rng.randint(0, most)))


def library_keys(urls: Sequence[str]) -> list[str]:
    """The urlkeys that the library gives; of what holds no line break."""
    done = subprocess.run(
        [PYWB_PYTHON, "-c", LIBRARY],
        input="\n".join(urls) + "\n",
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.removesuffix("\n").split("\n")


def differences(count: int, seed: int) -> Iterator[tuple[str, str, str]]:
    """URL, our key, the library's, where they differ among so many random URLs."""
    urls = random_urls(seed)
    while block := list(islice(urls, min(count, 100_000))):
        count -= len(block)
        for url, theirs in zip(block, library_keys(block), strict=True):
            if surt(url) != theirs:
                yield url, surt(url), theirs


if __name__ == "__main__":
    found = list(differences(int(sys.argv[1]), seed=int(sys.argv[2]) if len(sys.argv) > 2 else 0))
    for difference in found[:20]:
        print(*difference, sep="\n  ")
    print(f"{len(found):,} of {int(sys.argv[1]):,} URLs have another key")
    sys.exit(1 if found else 0)
