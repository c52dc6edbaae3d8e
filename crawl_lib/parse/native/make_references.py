"""Writes references.h: HTML's named character references, out of Python's `html.entities`.

By hand, when Python's table has changed (HTML promises that it never will): `python make_references.py`.
"""

from html.entities import html5
from pathlib import Path

HEADER = Path(__file__).with_name("references.h")
_HEAD = """/* Made by make_references.py: HTML's named character references, sorted, in UTF-8. */
static const struct { const char *name, *text; } REFERENCES[] = {
"""
_WIDTH = 116


def references() -> str:
    """Return the text of references.h."""
    lines = [""]
    for name, text in sorted(html5.items()):
        escaped = "".join(f"\\{byte:03o}" for byte in text.encode())
        entry = f'{{"{name}", "{escaped}"}},'
        if len(lines[-1]) + len(entry) > _WIDTH:
            lines.append("")
        lines[-1] += entry
    names = sorted(html5)
    firsts = [sum(name < chr(code) for name in names) for code in range(ord("A"), ord("z") + 2)]
    table = ", ".join(map(str, firsts))
    return (
        _HEAD
        + "\n".join(lines)
        + "\n};\n\n/* The first name that begins with each byte from `A` to `z`, and the end. */\n"
        + f"static const unsigned short REFERENCES_FROM[] = {{{table}}};\n"
    )


if __name__ == "__main__":
    HEADER.write_text(references())
