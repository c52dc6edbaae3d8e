"""Ways to write a link: many spellings of one URL, all with the same canonical form.

The target of a link is known before its spelling, so this module resolves no reference. The canonical form is that of
Krake: WHATWG serialisation, unreserved escapes decoded, other escapes in upper case, no fragment, no empty query.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from demo.model import PORT_MARK, Target


def address(site: int) -> str:
    """Return the loopback address of a site: 127.0.1.1, 127.0.1.2, ..."""
    return f"127.0.{1 + site // 200}.{1 + site % 200}"


def authority(site: int) -> str:
    """Return address and port mark of a site."""
    return f"{address(site)}:{PORT_MARK}"


def absolute(target: Target) -> str:
    """Return the canonical URL of a target, with the port mark."""
    return f"http://{authority(target.site)}{target.path}"


def relative(base_path: str, path: str) -> str:
    """Return `path` relative to the page `base_path` (RFC 3986, 4.2)."""
    here = base_path.partition("?")[0].split("/")[1:-1]
    bare, mark, query = path.partition("?")
    *there, name = bare.split("/")[1:]
    shared = 0
    while shared < min(len(here), len(there)) and here[shared] == there[shared]:
        shared += 1
    steps = [".."] * (len(here) - shared) + there[shared:]
    # "./" instead of an empty reference, or of a query alone (such a query keeps the base's last segment)
    text = "/".join([*steps, name])
    return ("./" + text if not text or text.startswith("/") else text) + mark + query


def _dotted(target: Target) -> str:
    return f"/over/./..{target.path}"


def _encoded_dots(target: Target) -> str:
    return f"/over/%2e%2E{target.path}"


def _escaped_letters(target: Target) -> str:
    bare, mark, query = target.path.partition("?")
    return bare.replace("p", "%70").replace("~", "%7e") + mark + query


def _lower_case_escapes(target: Target) -> str:
    return target.path.replace("%C3%A9", "%c3%a9").replace("~", "%7E")


def _unescaped(target: Target) -> str:
    return target.path.replace("%C3%A9", "\u00e9").replace("%20", " ")


def _fragment(target: Target) -> str:
    return f"{target.path}#part-2"


def _empty_query(target: Target) -> str:
    return target.path if "?" in target.path else f"{target.path}?"


def _white_space(target: Target) -> str:
    return f"  {target.path[:2]}\n\t{target.path[2:]} "


def _backslashes(target: Target) -> str:
    bare, mark, query = target.path.partition("?")
    return bare.replace("/", "\\") + mark + query


def _scheme_relative(target: Target) -> str:
    return f"//{authority(target.site)}{target.path}"


def _upper_case_scheme(target: Target) -> str:
    return f"HTTP://{authority(target.site)}{target.path}"


def _credentials(target: Target) -> str:
    return f"http://user:secret@{authority(target.site)}{target.path}"


def _hex_address(target: Target) -> str:
    number = "".join(f"{int(part):02x}" for part in address(target.site).split("."))
    return f"http://0x{number}:{PORT_MARK}{target.path}"


IN_SITE: tuple[Callable[[Target], str], ...] = (
    _dotted,
    _encoded_dots,
    _escaped_letters,
    _lower_case_escapes,
    _unescaped,
    _fragment,
    _empty_query,
    _white_space,
    _backslashes,
)
"""Odd spellings that keep the site, and do not depend on the page's own path."""

ANYWHERE: tuple[Callable[[Target], str], ...] = (
    _scheme_relative,
    _upper_case_scheme,
    _credentials,
    _hex_address,
)
"""Odd spellings that name the site."""


def spell(rng: random.Random, base: Target, target: Target, *, portable: bool = False) -> str:
    """Return a spelling of `target` in a page with the base URL `base`.

    `portable`: the spelling must not depend on the page's path (copies of the page have other paths).
    """
    odd = rng.random() < 0.2
    if target.site != base.site:
        return rng.choice(ANYWHERE)(target) if odd else absolute(target)
    if odd:
        return rng.choice(IN_SITE + ANYWHERE)(target)
    kind = rng.random()
    if kind < 0.6 and not portable:
        return relative(base.path, target.path)
    return target.path if kind < 0.9 else absolute(target)
