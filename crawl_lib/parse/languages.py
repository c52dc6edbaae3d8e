"""Language tags: BCP 47 (RFC 5646), as pages write them."""

import re

_TAG = re.compile(
    r"([a-z]{2,3})(?:-[a-z]{3}){0,3}(?:-[a-z]{4})?(?:-(?:[a-z]{2}|[0-9]{3}))?"
    r"(?:-(?:[a-z0-9]{5,8}|[0-9][a-z0-9]{3}))*(?:-[0-9a-wy-z](?:-[a-z0-9]{2,8})+)*(?:-x(?:-[a-z0-9]{1,8})+)?"
)
"""A well-formed tag (RFC 5646, 2.1): language, script, region, variants, extensions, private use."""
_MAX_TAG_CHARS = 64
_TWO_LETTERS = """
aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el
en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu
ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na
nb nd ne ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg sh si sk sl sm sn
so sq sr ss st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu
"""
_CODES = frozenset(_TWO_LETTERS.split())
"""The two-letter codes of ISO 639. Others, such as `jp` and `cn`, name countries."""
_OTHER_CODES = {
    "iw": "he",
    "in": "id",
    "ji": "yi",
    "eng": "en",
    "deu": "de",
    "ger": "de",
    "fra": "fr",
    "fre": "fr",
    "spa": "es",
    "ita": "it",
    "por": "pt",
    "rus": "ru",
    "jpn": "ja",
    "zho": "zh",
    "chi": "zh",
    "kor": "ko",
    "tha": "th",
    "nld": "nl",
    "dut": "nl",
}
"""Older codes, and codes of three letters, which pages use for the codes of RFC 5646."""
_NO_LANGUAGES = frozenset({"und", "mul", "zxx", "mis"})


def language_tag(text: str) -> str | None:
    """Return a language tag in canonical case; None if invalid.

    Such as `zh-Hant-TW`. An underscore counts as a hyphen. The language is a code of ISO 639: two letters where the
    language has such a code, else three. A tag of more than 64 characters is no tag.
    """
    tag = text[: 2 * _MAX_TAG_CHARS].strip().replace("_", "-").lower()
    found = _TAG.fullmatch(tag) if len(tag) <= _MAX_TAG_CHARS and text.isascii() else None
    if found is None:
        return None
    code = _OTHER_CODES.get(found[1], found[1])
    if not (code in _CODES or (len(code) == 3 and code not in _NO_LANGUAGES)):
        return None
    return "-".join([code, *_in_case(tag.split("-")[1:])])


def _in_case(subtags: list[str]) -> list[str]:
    """Write regions and scripts in canonical case.

    Regions are in capitals, scripts have one capital, up to the first extension (RFC 5646, 2.1.1).
    """
    end = next((number for number, subtag in enumerate(subtags) if len(subtag) == 1), len(subtags))
    shapes = {2: str.upper, 4: str.capitalize}
    return [shapes.get(len(subtag), str.lower)(subtag) for subtag in subtags[:end]] + subtags[end:]


def language_of_tag(tag: str) -> str | None:
    """Return the language of a tag such as `de-AT`.

    The result is in lower case; None: the tag names no language.
    """
    found = language_tag(tag)
    return None if found is None else found.partition("-")[0]
