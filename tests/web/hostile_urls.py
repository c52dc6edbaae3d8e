"""URLs as a hostile page would write them, drawn by seed: the same seed gives the same shape at every size.

    shape = draw(7)
    shape.url(Random(7), 4000)   # an absolute URL of about 4,000 characters
    shape.href(Random(7), 4000)  # a reference, often relative
    shape.page(Random(7), 4000)  # an HTML page of about 4,000 bytes of such links

Nothing here imports Krake, so that tests of any room can use the texts. `python -m tests.web.hostile_urls --seconds
3600` compares the canonical form with its earlier version, and measures what twice the size costs.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from random import Random

Maker = Callable[[Random, int], str]
"""Makes a part of a URL of about so many characters."""

MOST_RATIO = 2.5
"""CPU time for twice the size, at most."""
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_ALPHABETS = (
    _LETTERS,
    "abcXYZ019-._~",
    "äöüßéèê",
    "日本語中文漢字一丁七万",
    "абвгдежз",
    "אבגד\u05b0",
    "a\u0301\u0323\u0327",
    "\u1100\u1161\u11a8",
    "\xad\u200b\u200d\ufeff",
    "%0123456789abcdefABCDEF",
    "\t\n\r \x00\x1f\x7f",
    "\"<>`{}|^'()[]",
    "🦑🐙😀",
    "/\\",
    ".%2eE",
)


def _repeat(text: str) -> Maker:
    return lambda _, size: text * (size // len(text))


def _of(alphabet: str, *, least: int = 0) -> Maker:
    return lambda rng, size: "".join(rng.choices(alphabet, k=max(size, least)))


def _parts(*choices: str) -> Maker:
    """Texts in a random order."""

    def made(rng: Random, size: int) -> str:
        mean = sum(map(len, choices)) / len(choices)
        return "".join(rng.choices(choices, k=max(1, int(size / mean))))

    return made


def _chain(rng: Random, size: int) -> str:
    """An escape within an escape: each pass over the text decodes one."""
    link = rng.choice(["%3", "%4", "%5", "%6", "%7", "%"])
    return link * (size // len(link)) + rng.choice(["31", "41", "2e", "25", "7e", "3"])


def _chains(rng: Random, size: int) -> str:
    """Segments that become dots after one to nine passes."""
    segments = []
    while size > 0:
        segment = "".join(_dot(rng.randrange(9)) for _ in range(rng.randrange(1, 3)))
        segments.append(rng.choice([segment, segment, "a", "%41", ""]))
        size -= len(segments[-1]) + 1
    return "/".join(segments)


def _dot(passes: int) -> str:
    text = "."
    for number in range(passes):
        # The last character of an escape is escaped: `%2e`, `%2%65`, `%2%6%35`.
        text = text[:-1] + f"%{ord(text[-1]):02{'x' if number % 2 else 'X'}}"
    return text


def _octets(rng: Random, size: int) -> str:
    """Escaped octets in either case, often not of UTF-8."""
    return "".join(f"%{rng.randrange(256):02{rng.choice('xX')}}" for _ in range(size // 3))


def _words(rng: Random, size: int) -> str:
    """Folders with new names, without a digit."""
    return "/".join(
        "".join(rng.choices(_LETTERS, k=rng.randrange(1, 12))) for _ in range(size // 7)
    )


def _query(mark: str) -> Maker:
    """Many parts, with new names."""

    def made(rng: Random, size: int) -> str:
        names = ("".join(rng.choices(_LETTERS, k=rng.randrange(1, 8))) for _ in range(size // 8))
        return mark.join(f"{name}={rng.randrange(100)}" for name in names)

    return made


def _punycode(rng: Random, size: int) -> str:
    letters = "".join(chr(rng.randrange(0x4E00, 0x9FFF)) for _ in range(max(1, size // 3)))
    return "xn--" + letters.encode("punycode").decode()


def _host_of(label: Maker, dot: str = ".") -> Maker:
    """A host of labels of up to 60 characters."""

    def made(rng: Random, size: int) -> str:
        labels = [label(rng, rng.randrange(1, 60)) for _ in range(size // 30)]
        return dot.join([*labels, "example"])

    return made


HOSTS: dict[str, Maker] = {
    "plain": _of(_LETTERS, least=1),
    "sub-domains": _host_of(_of(_LETTERS)),
    "many dots": _parts("a.", "b.", "."),
    "upper case": _of("ABCxyz-", least=1),
    "numbers": _parts("1.", "0x7f.", "017.", "256.", "0"),
    "zeros": lambda _, size: "0x" + "0" * size + "1",
    "addresses of IPv6": lambda rng, size: f"[{_parts('1:', '::', 'ffff:', '0')(rng, size)}]",
    "escaped": _octets,
    "escapes in escapes": _chain,
    "punycode": _punycode,
    "punycode labels": _host_of(_punycode),
    "false punycode": _host_of(lambda rng, size: "xn--" + _of(_LETTERS + "0123456789-")(rng, size)),
    "umlauts": _of("äöüß", least=1),
    "one alphabet": lambda rng, size: "".join(
        chr(rng.randrange(0x4E00, 0x9FFF)) for _ in range(size)
    ),
    "alphabets": _host_of(lambda rng, size: _of(rng.choice(_ALPHABETS))(rng, size)),
    "other dots": _host_of(_of(_LETTERS), "。"),
    "marks": lambda rng, size: "a" + _of("\u0301\u0323\u0327\u0345")(rng, size),
    "dots at the end": lambda _, size: "a.example" + "." * size,
}
PATHS: dict[str, Maker] = {
    "folders": _words,
    "one name": _of(_LETTERS),
    "slashes": _repeat("/"),
    "backslashes": _repeat("\\"),
    "dots": _parts("../", "./", "a/", ".../", "%2e/", "%2E%2e/", ".%2e/"),
    "up and down": lambda _, size: "a/" * (size // 5) + "../" * (size // 5),
    "an escape in an escape": _chain,
    "dots in escapes": _chains,
    "dots escaped in rounds": _parts(
        "%%32e%%32e/", "%2%65/", "a/", "%%%32%35%32e/", "%2%6%35%%32%65/"
    ),
    "pieces of escapes": _parts("%", "2", "e", "%2", "3", "%3", "/", "."),
    "octets": _octets,
    "letters in escapes": _parts("%61", "%7E", "%2D", "%5f", "%30"),
    "white space": _parts(" ", "\t", "\n", "\r", "x"),
    "control characters": _parts("\x00", "\x1f", "\x7f", "\x85", "a"),
    "alphabets": lambda rng, size: _of(rng.choice(_ALPHABETS))(rng, size),
    "all alphabets": _of("".join(_ALPHABETS)),
    "session ids": _parts(";jsessionid=", "sessid", "/(S(", "0a1b2c3d4e5f6a7b8c9d0e1f", "))/"),
    "dates": _parts("2031/", "05/", "12/", "may-", "/calendar/", "20310512"),
    "repeated": _repeat("shop/cart/"),
}
QUERIES: dict[str, Maker] = {
    "parts": _query("&"),
    "parts with semicolons": _query(";"),
    "ampersands": _repeat("&"),
    "question marks": _repeat("?"),
    "quotes": _parts("'", '"', "<", ">"),
    "an escape in an escape": _chain,
    "pieces of escapes": _parts("%", "2", "e", "%2", "3", "%3", "&", "="),
    "octets": _octets,
    "alphabets": lambda rng, size: _of(rng.choice(_ALPHABETS))(rng, size),
    "session ids": _parts("sessid", "PHPSESSID=", "sid=", "a1", "&", "sessionid"),
    "dates": _parts("date=", "2031-05-12", "&", "month=", "year=2031", "x.date="),
    "URLs": _parts("http://a.example/", "%2f%2F", "?u=", "../"),
}
CREDENTIALS: dict[str, Maker] = {
    "signs": _repeat("@"),
    "many": _repeat("u:p@"),
    "colons": lambda _, size: ":" * size + "@",
    "octets": lambda rng, size: _octets(rng, size) + "@",
    "alphabets": lambda rng, size: _of(rng.choice(_ALPHABETS[:9]))(rng, size) + "@",
}
PORTS: dict[str, Maker] = {
    "zeros": lambda _, size: ":" + "0" * size + "80",
    "digits": lambda rng, size: ":" + _of("0123456789")(rng, size),
    "colons": _repeat(":"),
}
FRAGMENTS: dict[str, Maker] = {"text": _of("".join(_ALPHABETS)), "signs": _repeat("#")}
_KINDS = {
    "host": HOSTS,
    "path": PATHS,
    "query": QUERIES,
    "credentials": CREDENTIALS,
    "port": PORTS,
    "fragment": FRAGMENTS,
}
_WEIGHTS = (4, 8, 4, 1, 1, 1)
_STARTS = ("http://", "https://", "//", "HTTP:\\\\", "http:", "\thttp:/\n/", "  http:///", "")
_ENDS = ("", "", "", " ", "#", " #x", "?", "/", "/.", "/..")


@dataclass(frozen=True)
class Shape:
    """Kinds of parts. `large`: the part that takes up the size; the others have a few characters."""

    name: str
    large: str
    makers: dict[str, Maker]
    start: str
    end: str

    def url(self, rng: Random, size: int) -> str:
        """Return an absolute URL of about `size` characters."""
        return (self.start if "tp:" in self.start.lower() else "http://") + self._rest(rng, size)

    def href(self, rng: Random, size: int) -> str:
        """Return a reference, relative to the root or the folder if its shape begins with no host."""
        if self.start:
            return self.start + self._rest(rng, size)
        return rng.choice(["", "/", "../", "./"]) + self._behind_host(rng, size)

    def page(self, rng: Random, size: int, *, link_chars: int = 2000) -> bytes:
        """Return an HTML page of about `size` bytes, whose links have about `link_chars` characters each."""
        links: list[bytes] = []
        while size > 0:
            link = f'<a href="{escape(self.href(rng, link_chars))}">x</a>'.encode(
                "utf-8", "replace"
            )
            links.append(link)
            size -= len(link)
        return b"".join(links)

    def _rest(self, rng: Random, size: int) -> str:
        made = {part: self._part(part, rng, size) for part in ("credentials", "host", "port")}
        host = made["host"] or "a.example"
        return made["credentials"] + host + made["port"] + "/" + self._behind_host(rng, size)

    def _behind_host(self, rng: Random, size: int) -> str:
        path, query, fragment = (
            self._part(part, rng, size) for part in ("path", "query", "fragment")
        )
        return (
            path + (f"?{query}" if query else "") + (f"#{fragment}" if fragment else "") + self.end
        )

    def _part(self, part: str, rng: Random, size: int) -> str:
        if part not in self.makers:
            return ""
        own = Random(rng.getrandbits(32))  # so that each part begins alike at every size
        return self.makers[part](own, size if part == self.large else min(size, 12))


def draw(seed: int) -> Shape:
    """Return the shape of a seed."""
    rng = Random(seed)
    large = rng.choices(list(_KINDS), _WEIGHTS)[0]
    names = {
        part: rng.choice(list(kinds))
        for part, kinds in _KINDS.items()
        if part == large or rng.random() < (0.6 if part in {"host", "path", "query"} else 0.1)
    }
    makers = {part: _KINDS[part][name] for part, name in names.items()}
    return Shape(
        f"seed {seed}: {large} of {names}", large, makers, rng.choice(_STARTS), rng.choice(_ENDS)
    )


def ratio(work: Callable[[int], Callable[[], object]], size: int) -> float:
    """Return how many times the CPU time is that twice the size takes.

    `work`: makes what is measured, of a size. If the time grows too much, the next doubling decides: a longer text may
    be the first to have a rare feature, which makes one step of the time and no curve.
    """
    found = _ratio(work(size), work(2 * size))
    return found if found <= MOST_RATIO else min(found, _ratio(work(2 * size), work(4 * size)))


def _ratio(small: Callable[[], object], large: Callable[[], object], *, tries: int = 9) -> float:
    """Return the least of some tries, each of which measures more often."""
    repeat = max(1, int(0.001 / (_cpu_s(small, 1) + 1e-6)))
    found = float("inf")
    for attempt in range(tries):
        times_each = repeat * (1 + attempt)
        pairs = [
            (_cpu_s(small, times_each), _cpu_s(large, times_each)) for _ in range(1 + 3 * attempt)
        ]
        times = [statistics.median(column) for column in zip(*pairs, strict=True)]
        found = min(found, times[1] / times[0])
        if found <= MOST_RATIO:
            break
    return found


def _cpu_s(work: Callable[[], object], repeat: int) -> float:
    began = time.process_time()
    for _ in range(repeat):
        work()
    return time.process_time() - began


def main() -> None:
    from tests.urls import hostile_checks  # noqa: PLC0415 - the texts above need nothing of Krake

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=900, help="how long")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    options = parser.parse_args()
    seed, end_s, dearest = options.first, time.monotonic() + options.seconds, (0.0, "")
    while time.monotonic() < end_s:
        shape = draw(seed)
        hostile_checks.compare(shape, seed, texts=60)
        found = max(hostile_checks.ratios(shape, seed).values())
        assert found <= MOST_RATIO, f"{shape.name}: twice the size takes {found:.1f} times the CPU"
        dearest = max(dearest, (found, shape.name))
        seed += 1
    print(f"seeds {options.first} to {seed - 1}; the highest ratio: {dearest[0]:.2f}, {dearest[1]}")


if __name__ == "__main__":
    main()
