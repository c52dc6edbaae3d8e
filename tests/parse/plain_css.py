"""The URLs of a style sheet by a plain reader: regular expressions of the tokens of CSS Syntax Level 3.

`native/css.c` must find the same. By hand, for hours:

    python -m tests.parse.plain_css --seeds 1000000 [--first 0]
"""

from __future__ import annotations

import argparse
import re
import tempfile
from pathlib import Path
from random import Random

from crawl_lib.parse.scan import scan_css, wanted_kinds
from tests.parse.driver import SANITIZERS, Driver, compiled

ESCAPE = r"\\(?>[0-9a-fA-F]{1,6}[ \t\n]?|[^\n0-9a-fA-F]|\Z)"
NAME_START = rf"(?:[A-Za-z_]|[^\x00-\x7f]|{ESCAPE})"
NAME = rf"(?:--|-?{NAME_START})(?:[\w-]|[^\x00-\x7f]|{ESCAPE})*"
STRING = rf"""(?P<quote>["'])(?P<inner>(?:(?!(?P=quote))[^\\\n]|\\\n|{ESCAPE})*+)(?P<end>(?P=quote)|\Z)?"""
TOKEN = re.compile(
    rf"(?P<comment>/\*[\s\S]*?(?:\*/|\Z))|{STRING}|@(?P<at>{NAME})?|#(?:[\w-]|[^\x00-\x7f]|{ESCAPE})*"
    rf"|(?P<number>[+-]?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)?(?:{NAME})?)|-->|<!--"
    rf"|(?P<name>{NAME})(?P<call>\(?)|(?P<mark>[\s\S])",
    re.ASCII,
)
PLAIN_URL = re.compile(
    rf"""[ \t\n]*((?:[^"'()\\ \t\n\x00-\x08\x0b\x0e-\x1f\x7f]|{ESCAPE})*)[ \t\n]*(?:\)|\Z)"""
)
BAD_URL = re.compile(rf"(?:{ESCAPE}|[^)])*(?:\)|\Z)")
QUOTED = re.compile(r"""[ \t\n]*(?=["'])""")
SETS = ("image-set", "-webkit-image-set")
KINDS = {"import": "style", "font": "font", "image": "image"}
"""The kinds of requisites by place."""
PIECES = (
    *(
        "url(",
        "URL(",
        "u\\72l(",
        "@import ",
        "@font-face",
        "@namespace ",
        "@media ",
        "image-set(",
        "-webkit-image-set(",
    ),
    *(
        '"',
        "'",
        "(",
        ")",
        "{",
        "}",
        ";",
        ",",
        "/*",
        "*/",
        "\\",
        "\\\n",
        "\\61 ",
        "\\0 ",
        "\\110000 ",
        "\\d800",
        "\n",
    ),
    *(
        " ",
        "\t",
        "\r\n",
        "\f",
        "\0",
        "\x01",
        "#",
        "@",
        "-",
        "--",
        "-->",
        "<!--",
        "+",
        ".",
        "1",
        "1e",
        "e3",
        "x",
        "a.png",
    ),
    *(
        "é",
        "日本",
        "\U0001f600",
        "data:,",
        "#f",
        "BLOB:x",
        "local(",
        "format(",
        "src:",
        "\x7f",
        "\xa0",
    ),
)


def urls(sheet: str) -> list[tuple[str, str]]:
    """Return the places (`import`, `font`, `image`) and URLs of a sheet that name something."""
    text = (
        sheet.replace("\r\n", "\n").replace("\r", "\n").replace("\f", "\n").replace("\0", "\ufffd")
    )
    reader = _Reader(text)
    reader.read()
    found = [(place, url.strip()) for place, url in reader.found]
    return [
        one for one in found if one[1] and not re.match(r"#|data:|blob:", one[1], re.IGNORECASE)
    ]


class _Reader:
    """One reading of a sheet: what is open at `at`, and the URLs so far."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.rule = ""
        self.braces = self.font = self.brackets = self.of_set = 0
        self.found: list[tuple[str, str]] = []

    def read(self) -> None:
        while self.at < len(self.text):
            token = self.next()
            if token["at"]:
                self.rule = _text(token["at"]).lower()
            elif token["quote"] and (
                self.rule == "import" or (self.of_set and self.brackets == self.of_set)
            ):
                self.give(_string(token))
            elif token["call"]:
                self.call(_text(token["name"]).lower())
            elif token["mark"]:
                self.mark(token["mark"])

    def next(self) -> re.Match[str]:
        token = TOKEN.match(self.text, self.at)
        assert token is not None
        self.at = token.end()
        return token

    def give(self, url: str | None) -> None:
        if url is not None and self.rule not in {"namespace", "imported"}:
            self.found.append(
                ("import" if self.rule == "import" else "font" if self.font else "image", url)
            )
        if url is not None and self.rule == "import":
            self.rule = "imported"

    def call(self, name: str) -> None:
        quoted = QUOTED.match(self.text, self.at)
        if name != "url" or quoted:
            self.brackets += 1
        if name in SETS:
            self.of_set = self.brackets
        if name == "url" and quoted:
            self.at = quoted.end()
            self.give(_string(self.next()))
        elif name == "url":
            plain = PLAIN_URL.match(self.text, self.at)
            found = plain or BAD_URL.match(self.text, self.at)
            assert found is not None
            self.at = found.end()
            self.give(_text(plain[1]) if plain else None)

    def mark(self, mark: str) -> None:
        if mark == "(":
            self.brackets += 1
        elif mark == ")":
            self.of_set = 0 if self.brackets == self.of_set else self.of_set
            self.brackets = max(0, self.brackets - 1)
        elif mark in "{};":
            self.braces += mark == "{"
            if mark == "{" and self.rule == "font-face":
                self.font = self.braces
            if mark == "}":
                self.font = 0 if self.braces == self.font else self.font
                self.braces = max(0, self.braces - 1)
            self.rule, self.brackets, self.of_set = "", 0, 0


def _string(token: re.Match[str]) -> str | None:
    """Return the text of a string; None if a newline ends it."""
    if token["end"] is None:
        return None
    return re.sub(
        rf"\\(?:\n|\Z)|{ESCAPE}",
        lambda found: "" if found[0] in {"\\", "\\\n"} else _character(found),
        token["inner"],
    )


def _text(escaped: str) -> str:
    return re.sub(ESCAPE, _character, escaped)


def _character(escape: re.Match[str]) -> str:
    text = escape[0][1:]
    if not re.match("[0-9a-fA-F]", text):
        return text or "\ufffd"
    code = int(text, 16)
    return "\ufffd" if code == 0 or 0xD800 <= code <= 0xDFFF or code > 0x10FFFF else chr(code)


def sheet(seed: int) -> str:
    """Return the sheet of a seed."""
    rng = Random(seed)
    return "".join(rng.choices(PIECES, k=rng.choice((1, 3, 8, 20, 60))))


def check(driver: Driver, seeds: range) -> None:
    """Fail if C finds other URLs in a sheet, or reads beyond its end."""
    sheets = [sheet(seed) for seed in seeds]
    every = driver.css((text.encode() for text in sheets), wanted_kinds(KINDS.values()))
    for seed, text, answer in zip(seeds, sheets, every, strict=True):
        expected = urls(text)
        letters = [("q" if place == "import" else "k") + url for place, url in expected]
        assert [one.decode() for one in answer.data.split(b"\0")[:-1:3]] == letters, (
            f"seed {seed}: {text!r}"
        )
        for place, kind in KINDS.items():
            found = scan_css(text.encode(), wanted_kinds([kind]), 1000).requisites.count(b"\0") // 3
            assert found == [where for where, _ in expected].count(place), f"seed {seed}: {text!r}"


def main() -> None:
    """Check sheets by seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        driver = Driver(compiled(Path(folder), *SANITIZERS))
        for first in range(given.first, given.first + given.seeds, 1000):
            check(driver, range(first, min(first + 1000, given.first + given.seeds)))


if __name__ == "__main__":
    main()
