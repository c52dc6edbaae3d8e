"""Text of strangers in a readable form: control characters become signs.

A control character of bidirectional text could reverse the rest of a title, so a page could look like another page. The
templates isolate each text besides (`<bdi>`).
"""

_SHOWN = frozenset("\u00ad\u200b\u200c\u200d")
"""Harmless characters that are not printable: some scripts and emoji need these within words."""
_PICTURES = 0x2400
_DELETE, _PICTURE_OF_DELETE = "\x7f", "\u2421"
CUT = "\u2026"


def signs(text: str, most_chars: int | None = None) -> str:
    """Return a text in one line, with signs for unprintable characters.

    `most_chars`: a longer text is cut there.
    """
    if most_chars is not None and len(text) > most_chars:
        text = text[: most_chars - 1].rstrip() + CUT
    return text if text.isprintable() else "".join(map(_sign, text))


def _sign(char: str) -> str:
    if char.isprintable() or char in _SHOWN:
        return char
    if char.isspace():
        return " "
    if char < " ":
        return chr(_PICTURES + ord(char))
    return _PICTURE_OF_DELETE if char == _DELETE else f"\u27e8U+{ord(char):04X}\u27e9"


def text_signs(text: str) -> str:
    """Return a text of lines, with signs for unprintable characters."""
    return "\n".join(map(signs, text.splitlines()))
