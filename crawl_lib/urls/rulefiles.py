"""Reading rule files, whose syntax is Nutch's: their lines, the names of hosts, and Java's regular expressions.

What is wrong in a file is noted by line, so that all of it is said at once.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from crawl_lib.config import StepConfig
from crawl_lib.errors import UrlError
from crawl_lib.urls.canonical import canonicalize
from crawl_lib.urls.names import host_of

# Syntax of a regular expression: an escape, a class, flags for the rest of the group, the marks of groups.
_TOKENS = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]])*\]|\(\?([a-zA-Z-]+)\)|[()|]|[^\\\[()|]+|.", re.DOTALL
)
_REPLACEMENT = re.compile(r"\\(.)|\$(\d)|[^\\$]+|.", re.DOTALL)


class RuleText:
    """The rules of one step of a chain. `name`: of its file, else of its option; `problems`: what is wrong in it."""

    def __init__(self, step: StepConfig, where: str) -> None:
        self.place = step.file or f"{where}.rules"
        self.name = Path(step.file).name if step.file else step.kind
        self.text = step.rules
        self.problems: list[str] = []

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield number and text of each rule line.

        Blank lines and comments are left out, as is white space around a rule.
        """
        for number, line in enumerate((self.text or "").splitlines(), 1):
            if (rule := line.strip()) and not rule.startswith("#"):
                yield number, rule

    def wrong(self, number: int, why: str) -> None:
        """Note what is wrong with a line."""
        self.problems.append(f"{self.place}:{number}: {why}")

    def host(self, number: int, text: str) -> str:
        """Return the canonical form of a host's name, "" if invalid."""
        if not (name := host_name(text)):
            self.wrong(number, f"{text!r} is not the name of a host or domain, such as example.org")
        return name

    def pattern(self, number: int, text: str) -> "re.Pattern[str] | None":
        """Compile a regular expression in Java's syntax; None if invalid."""
        try:
            return re.compile(python_syntax(text))
        except (re.error, OverflowError, RecursionError) as error:
            self.wrong(number, f"{text!r} is not a regular expression: {error}")
            return None

    def substitutions(self) -> Iterator[Callable[[str], str]]:
        """Yield the replacing function of each rule in a regex-normalize.xml.

        A pattern's match is replaced by a text with `$1` and `\\x`.
        """
        for number, text, replacement in self._xml_rules():
            pattern = self.pattern(number, text)
            most = max(
                (int(found[2] or 0) for found in _REPLACEMENT.finditer(replacement)), default=0
            )
            if pattern and most > pattern.groups:
                self.wrong(
                    number,
                    f"{replacement!r} names group {most}, and the pattern has {pattern.groups}",
                )
            elif pattern:
                yield partial(pattern.sub, _template(replacement))

    def _xml_rules(self) -> list[tuple[int, str, str]]:
        from xml.parsers import expat  # noqa: PLC0415 - few crawls have such a file

        rules: list[tuple[int, str, str]] = []
        fields: dict[str, str] = {}
        path, parser = list[str](), expat.ParserCreate()

        def begin(name: str, _: object) -> None:
            path.append(name)
            if (
                name
                not in (("regex-normalize",), ("regex",), ("pattern", "substitution"))[
                    min(len(path), 3) - 1
                ]
            ):
                self.wrong(parser.CurrentLineNumber, f"<{name}> is unknown here")
            if len(path) == 2:
                fields.clear()

        def text(data: str) -> None:
            if len(path) == 3:
                fields[path[-1]] = fields.get(path[-1], "") + data

        def end(_: str) -> None:
            if len(path) == 2 and "pattern" not in fields:
                self.wrong(parser.CurrentLineNumber, "a <regex> without a <pattern>")
            elif len(path) == 2:
                rules.append(
                    (parser.CurrentLineNumber, fields["pattern"], fields.get("substitution", ""))
                )
            path.pop()

        parser.StartElementHandler, parser.CharacterDataHandler, parser.EndElementHandler = (
            begin,
            text,
            end,
        )
        try:
            parser.Parse(self.text or "", True)
        except expat.ExpatError as error:
            self.wrong(error.lineno, f"is not XML: {expat.ErrorString(error.code)}")
        return rules


def host_name(text: str) -> str:
    """Return the canonical form of a host's name, "" if invalid."""
    try:
        return "" if set("/*@:?#") & set(text) else host_of(canonicalize(f"http://{text}/"))
    except UrlError:
        return ""


def _template(replacement: str) -> str:
    """Convert a replacement in Java's syntax to Python's."""

    def of_part(part: re.Match[str]) -> str:
        return rf"\g<{part[2]}>" if part[2] else (part[1] or part[0]).replace("\\", r"\\")

    return "".join(map(of_part, _REPLACEMENT.finditer(replacement)))


def python_syntax(pattern: str) -> str:
    """Convert a regular expression in Java's syntax to Python's.

    Flags in the middle hold for the rest of their group.

    `a(?i)b|c` is `a(?i:b)|(?i:c)`.
    """
    flags: list[list[str]] = [[]]
    parts = []
    for token in _TOKENS.finditer(pattern):
        part = token[0]
        if token[1]:
            part = f"(?{token[1]}:"
            flags[-1].append(part)
        elif part == "(":
            flags.append([])
        elif part == ")" and len(flags) > 1:
            part = ")" * len(flags.pop()) + ")"
        elif part == "|":
            part = ")" * len(flags[-1]) + "|" + "".join(flags[-1])
        parts.append(part)
    return "".join(parts) + ")" * len(flags[0])
