"""The scanner of links, `native/links.c`, called by ctypes: one call a page, during which other threads run.

`make setup` compiles it. Its cost is linear in the page's bytes, in time and in memory, whatever they are.
"""

import ctypes
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from crawl_lib.config import ParseConfig
from crawl_lib.errors import SetupError
from crawl_lib.parse.native.compile import LIBRARY, sources_digest
from crawl_lib.version import in_checkout

_SMALL_BYTES = 1 << 20
_META_BYTES = 4096
"""How far behind the beginning of a meta the word `charset` is looked for."""
SKETCH_BYTES = 64
CUT, XML, FACTS = 1, 2, 4
"""KRAKE_CUT, KRAKE_XML and KRAKE_FACTS of `native/links.h`."""
_KINDS_SHIFT = 8
"""KRAKE_KINDS. The order of `ParseConfig.REQUISITE_KINDS` is that of `enum krake_kind`."""


class _Answer(ctypes.Structure):
    _fields_ = (
        ("text", ctypes.c_void_p),
        ("links", ctypes.c_void_p),
        ("requisites", ctypes.c_void_p),
        ("length", ctypes.c_size_t),
        ("links_length", ctypes.c_size_t),
        ("requisites_length", ctypes.c_size_t),
        ("cut", ctypes.c_uint64),
        ("requisites_cut", ctypes.c_uint64),
        ("steps", ctypes.c_uint64),
        ("words", ctypes.c_int64),
    )


class Scanned(NamedTuple):
    """The answer of the scanner. `fields`: the texts that `struct krake_page` in links.h describes, then an empty text.

    `links`, `requisites`: described there too; some bytes may be invalid UTF-8. `cut`, `requisites_cut`: those beyond
    the limits. `steps`: the work, as
    the number of bytes that were looked at, with repetitions. `words`: digest of the different words of the page, 0
    without words.
    """

    fields: list[str]
    links: bytes
    cut: int
    steps: int
    words: int
    requisites: bytes
    requisites_cut: int


_REMEDY = (
    "run `make setup`" if in_checkout() else "run `pip install --force-reinstall --no-deps krake`"
)


def load_native(path: Path = LIBRARY) -> ctypes.CDLL:
    """Load the compiled library.

    Raises SetupError if the library is missing, or was compiled from other sources.
    """
    try:
        library = ctypes.CDLL(str(path))
        library.krake_sources.restype = ctypes.c_uint64
        sources = library.krake_sources()
    except (OSError, AttributeError) as error:
        raise SetupError(
            f"The scanner of links cannot be loaded ({error}): {_REMEDY}, which compiles it"
        ) from None
    if sources != sources_digest():
        raise SetupError(f"{path} was compiled from other sources than these: {_REMEDY}")
    size, text = ctypes.c_size_t, ctypes.c_char_p
    library.krake_links.argtypes = (
        text,
        size,
        text,
        size,
        size,
        size,
        size,
        ctypes.c_int,
        ctypes.c_void_p,
    )
    library.krake_css.argtypes = (text, size, size, ctypes.c_int, ctypes.c_void_p)
    library.krake_free.argtypes = (ctypes.c_void_p,)
    library.krake_free.restype = None
    library.krake_names_charset.argtypes = (text, size, size, size)
    library.krake_sketch.argtypes = (text, size, text)
    library.krake_sketch.restype = None
    array = ctypes.c_void_p
    library.krake_sums.argtypes = (array, size, array, ctypes.c_int64, array, array)
    library.krake_sums.restype = None
    library.krake_unions.argtypes = (array, size, array, array, size, array, array)
    library.krake_unions.restype = ctypes.c_uint64
    library.krake_planes.argtypes = (array, size, array, array, array)
    library.krake_planes.restype = None
    _declare_rows(library)
    return library


_Arguments = tuple[Any, ...]


def _declare_rows(library: ctypes.CDLL) -> None:
    rows, text, size, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int64
    short, flag = ctypes.c_uint32, ctypes.c_int
    declared: dict[str, tuple[Any, _Arguments]] = {
        "new": (rows, (size, ctypes.c_uint64)),
        "free": (None, (rows,)),
        "rule": (number, (rows, text, size)),
        "look": (number, (rows, text, size, text, size, flag)),
        "asks": (rows, (rows,)),
        "learn": (number, (rows, number, text, size, text, short, flag)),
        "unjudged": (number, (rows, number)),
        "judge": (None, (rows, number, flag, short, flag)),
        "send": (flag, (rows, number, number)),
        "write": (number, (rows, rows, text)),
        "rules": (rows, (rows,)),
    }
    for name, (result, arguments) in declared.items():
        function = getattr(library, f"krake_rows_{name}")  # `library[name]` would be another object
        function.restype, function.argtypes = result, arguments
    library.krake_block_free.argtypes = (rows,)
    library.krake_block_free.restype = None


# Loaded with this module, before a process gives up its right to read files; what fails is told when it is needed.
try:
    _library, _failure = load_native(), ""
except SetupError as error:
    _failure = str(error)


def require_scanner() -> None:
    """Raise SetupError unless pages can be scanned: better before they are fetched."""
    if _failure:
        raise SetupError(_failure)


def native_library() -> ctypes.CDLL:
    """Return the compiled library. Raises SetupError where it was not compiled."""
    require_scanner()
    return _library


def scan(
    html: bytes,
    agent: bytes,
    max_links: int,
    max_anchor_chars: int,
    how: int = 0,
    *,
    max_requisites: int = 0,
) -> Scanned:
    """Read a page in UTF-8, or nearly.

    `html`: the page; `agent`: a name of robots metas other than `robots`, in lower case.

    `how`: a sum of `CUT` (the end of the page is missing), `XML` (it is XHTML with a type of XML), `FACTS` (facts are
    wanted, of which `native/links.h` has a list) and `wanted_kinds`, or 0. Raises MemoryError, and SetupError where the
    scanner was not compiled.
    """
    require_scanner()
    answer = _Answer()
    address = ctypes.addressof(answer)
    limits = max_links, max_anchor_chars, max_requisites
    if _library.krake_links(html, len(html), agent, len(agent), *limits, how, address):
        raise MemoryError
    return _scanned(answer)


def scan_css(css: bytes, how: int, max_requisites: int) -> Scanned:
    """Read the requisites of a style sheet.

    `css`: UTF-8, or nearly; `how`: a sum of `wanted_kinds`, and perhaps `CUT`. Raises MemoryError, and SetupError where
    the scanner was not compiled.
    """
    require_scanner()
    answer = _Answer()
    if _library.krake_css(css, len(css), max_requisites, how, ctypes.addressof(answer)):
        raise MemoryError
    return _scanned(answer)


def wanted_kinds(kinds: Iterable[str]) -> int:
    """Return what `how` says of the kinds of requisites that are wanted."""
    return sum(1 << _KINDS_SHIFT + ParseConfig.REQUISITE_KINDS.index(kind) for kind in kinds)


def _scanned(answer: _Answer) -> Scanned:
    """Take the texts out of an answer, and free it."""
    try:
        data = ctypes.string_at(answer.text, answer.length)
        links = ctypes.string_at(answer.links, answer.links_length)
        requisites = ctypes.string_at(answer.requisites, answer.requisites_length)
    finally:
        _library.krake_free(ctypes.addressof(answer))
    if len(data) < _SMALL_BYTES:
        fields = data.decode("utf-8", "replace").split("\0")
    else:  # each on its own: one emoji makes all of a Python text four bytes wide
        fields = [field.decode("utf-8", "replace") for field in data.split(b"\0")]
    return Scanned(
        fields, links, answer.cut, answer.steps, answer.words, requisites, answer.requisites_cut
    )


def may_name_charset(html: bytes, start: int) -> bool:
    """Say whether a meta behind byte `start` may name a charset.

    Texts about charsets have the word, but no meta. Raises SetupError where the scanner was not compiled.
    """
    require_scanner()
    return bool(_library.krake_names_charset(html, len(html), start, _META_BYTES))


def sketch(html: bytes) -> bytes:
    """Return a sketch of a page's different words, `SKETCH_BYTES` bytes.

    Two pages share as many words as they have equal bytes, where not both are 0. See `native/sketch.c`. `html`: in any
    charset that has ASCII's letters. Raises SetupError where the scanner was not compiled.
    """
    require_scanner()
    slots = ctypes.create_string_buffer(SKETCH_BYTES)
    _library.krake_sketch(html, len(html), slots)
    return slots.raw
