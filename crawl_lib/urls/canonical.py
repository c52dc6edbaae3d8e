"""The canonical form of a URL: one text for each page, whose ASCII bytes are hashed into the key.

The form is the serialisation of the WHATWG URL Standard (https://url.spec.whatwg.org/#url-serializing) for http and
https, after which

* credentials and fragment are removed,
* escapes of unreserved characters (RFC 3986, 2.3: ALPHA DIGIT - . _ ~) are decoded, until none remains,
* other escapes are written in upper case, and a `%` without an escape is left alone,
* dots at the end of the host are removed,
* an empty `?` is removed; the order of the query is kept.

The form is idempotent: parsing the form again changes nothing. Decoding may reveal a new escape (`%%32e` -> `%2e`) or a
dot segment. Both are resolved in rounds, as if a text were parsed, decoded once, and parsed again until nothing
changes; the key of every page depends on these rounds.
`_decode` finds the round of each character in one pass, so the time is linear in the text.

Strangers write these texts, so two limits hold before any work begins: `RAW_CHARS_FACTOR` for the whole text, and
`MAX_LABEL_CHARS` for a label of an international host, whose ASCII form takes quadratic time (RFC 3492).
"""

import re
from typing import NamedTuple

import ada_url

from crawl_lib.errors import UrlError
from crawl_lib.urls.rejections import Rejection

DEFAULT_MAX_LENGTH_CHARS = 2000
RAW_CHARS_FACTOR = 8
"""A raw text may have this many times the characters of the longest canonical form, without its fragment."""
MAX_LABEL_CHARS = 255
"""The most characters of a label that is not ASCII; an escape counts as one. DNS has room for 63."""

_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_UNRESERVED_ESCAPE = re.compile("%(?:3[0-9]|[46][1-9A-Fa-f]|[57][0-9Aa]|2[DEde]|5[Ff]|7[Ee])")
_CHANGED = re.compile(f"{_UNRESERVED_ESCAPE.pattern}|%(?:[a-f][0-9A-Fa-f]|[0-9A-F][a-f])")
"""An escape with another spelling in a canonical URL. Most escapes stay, such as those of a Chinese text."""
_UNRESERVED_OF = {
    digits: character
    for character in _UNRESERVED
    for digits in (f"{ord(character):02x}", f"{ord(character):02X}")
}
"""The unreserved characters by the two digits of their escapes."""
_TOKEN = re.compile(
    f"(?!{_UNRESERVED_ESCAPE.pattern})%[0-9A-Fa-f]{{2}}|[%0-9A-Fa-f]|[^%0-9A-Fa-f]+"
)
"""An escape that stays, a character that may become part of an escape, or others."""
_AUTHORITY = re.compile(r"(?:https?:[/\\]*|[/\\]{2,})([^/\\?#]*)", re.IGNORECASE)
_NON_ASCII = re.compile("[^\0-\x7f]|%[89A-Fa-f]")
_DOT = re.compile("[.\u3002\uff0e\uff61]|%2[Ee]")
_IGNORED = str.maketrans("", "", "\t\n\r")
_C0_AND_SPACE = "".join(map(chr, range(33)))


class _Segment(NamedTuple):
    """A text without escapes of unreserved characters. `round`: the pass that decoded its last character."""

    text: str
    round: int


def canonicalize(url: str, *, max_length_chars: int = DEFAULT_MAX_LENGTH_CHARS) -> str:
    """Return the canonical form of an absolute URL: ASCII, without white space.

    Raises UrlError with a `Rejection` as `reason` (invalid, scheme, too_long); the caller counts rejections.
    """
    return canonical_of(_serialise(_limited(url, max_length_chars), url), url, max_length_chars)


def resolve(base: str, href: str, *, max_length_chars: int = DEFAULT_MAX_LENGTH_CHARS) -> str:
    """Return the canonical form of a reference on a page.

    `base`: the page's canonical base URL. Raises UrlError as `canonicalize` does. `LinkResolver` gives the same
    answers, faster.
    """
    text = _limited(href, max_length_chars)
    try:
        serialised = ada_url.join_url(base, text)
    except ValueError:
        raise UrlError(Rejection.INVALID, href) from None
    return canonical_of(serialised, href, max_length_chars)


def _limited(text: str, max_length_chars: int) -> str:
    """Return a text to parse, without its fragment if long.

    Raises UrlError: too_long.
    """
    longest = RAW_CHARS_FACTOR * max_length_chars
    if len(text) > longest:
        cut = text.find("#", 0, longest + 1)
        if cut < 0:
            raise UrlError(Rejection.TOO_LONG, text)
        text = text[: cut + 1]  # with the mark: a space before the mark is part of the path
    if len(text) > MAX_LABEL_CHARS and _NON_ASCII.search(text) and _has_long_label(text):
        raise UrlError(Rejection.TOO_LONG, text)
    return text


def _has_long_label(text: str) -> bool:
    """Say whether a host in a text has an overlong non-ASCII label."""
    match = _AUTHORITY.match(text.translate(_IGNORED).lstrip(_C0_AND_SPACE))
    labels = _DOT.split(match[1].rpartition("@")[2]) if match else []
    return any(
        len(label) - 2 * label.count("%") > MAX_LABEL_CHARS and _NON_ASCII.search(label)
        for label in labels
    )


def canonical_of(serialised: str, given: str, max_length_chars: int) -> str:
    """Convert a WHATWG serialisation to the canonical form.

    `given`: the text that errors name. Raises UrlError for the caller to count.
    """
    if not serialised.startswith(("http://", "https://")):
        raise UrlError(Rejection.SCHEME, given)
    url = serialised
    cut = url.find("#")
    if cut >= 0:
        url = url[:cut]
    if url[-1] == "?" and url.index("?") == len(url) - 1:
        url = url[:-1]
    # A serialised http URL has a path, so a slash ends the authority; "@" and dots inside of it are the rare case.
    end = url.index("/", 8)
    if "@" in url or url[end - 1] == "." or ".:" in url:
        authority = _tidy_authority(url[:end], given)
        if len(authority) < end:  # a host without its dots may be an address, such as `0x7f.1..`
            url = _serialise(authority + "/", given)[:-1] + url[end:]
    if "%" in url:
        url = _without_unreserved_escapes(url)
    if len(url) > max_length_chars:
        raise UrlError(Rejection.TOO_LONG, given)
    return url


def _serialise(url: str, given: str) -> str:
    try:
        return ada_url.normalize_url(url)
    except ValueError:
        raise UrlError(Rejection.INVALID, given) from None


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


def _without_unreserved_escapes(url: str) -> str:
    decoded = _CHANGED.sub(_replace_escape, url)
    if len(decoded) == len(url):
        return decoded
    if (
        _UNRESERVED_ESCAPE.search(decoded) is None
    ):  # no new dot segment either: the parser has read `%2e` as a dot
        return _CHANGED.sub(_replace_escape, decoded)  # `%%33e` was `%3e`, which is written `%3E`
    end = url.index("/", 8)
    path, mark, query = url[end + 1 :].partition("?")
    path = _without_dot_segments([_decode(segment) for segment in path.split("/")])
    return _CHANGED.sub(_replace_escape, f"{url[:end]}/{path}{mark}{_decode(query).text}")


def _replace_escape(match: re.Match[str]) -> str:
    escape = match[0]
    character = chr(int(escape[1:], 16))
    return character if character in _UNRESERVED else escape.upper()


def _decode(text: str) -> _Segment:
    """Decode escapes of unreserved characters, nested ones too.

    One pass with a stack suffices.
    """
    if "%" not in text:
        return _Segment(text, 0)
    tokens, rounds = ["", ""], [0, 0]
    for token in _TOKEN.findall(text):
        tokens.append(token)
        rounds.append(0)
        while tokens[-3] == "%" and (plain := _UNRESERVED_OF.get(tokens[-2] + tokens[-1])):
            last = 1 + max(rounds[-3:])
            del tokens[-2:], rounds[-2:]
            tokens[-1], rounds[-1] = plain, last
    return _Segment("".join(tokens), max(rounds))


def _without_dot_segments(segments: list[_Segment]) -> str:
    """Resolve the dot segments that decoding revealed (https://url.spec.whatwg.org/#path-state), round by round.

    In a round `..` removes the last remaining segment before it; a later round begins with the remaining segments.
    """
    texts = [segment.text for segment in segments]
    last = len(texts) - 1
    before, after = list(range(-1, last)), list(range(1, last + 2))
    left = [True] * len(texts)

    def remove(place: int) -> None:
        left[place] = False
        if before[place] >= 0:
            after[before[place]] = after[place]
        before[after[place]] = before[place]

    dots = [place for place, text in enumerate(texts) if text in {".", ".."}]
    for place in sorted(dots, key=lambda place: segments[place].round):
        if not left[place]:
            continue
        if texts[place] == ".." and before[place] >= 0:
            remove(before[place])
        if place < last:
            remove(place)
        else:
            texts[place] = ""
    return "/".join(text for text, stays in zip(texts, left, strict=True) if stays)
