"""Reads the test cases of google/robotstxt-spec-test: just as much of the textproto form as those files use."""

import re
from dataclasses import dataclass
from pathlib import Path

_TOKEN = re.compile(
    rb'\s*(?:#[^\n]*\n\s*)*(?:("(?:[^"\\\n]|\\.)*")|([A-Za-z_]\w*)|([\[\]{}:,]))', re.DOTALL
)
_SIMPLE = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b'"': b'"', b"\\": b"\\", b"'": b"'", b"a": b"\a", b"b": b"\b",
           b"f": b"\f", b"v": b"\v", b"?": b"?"}  # fmt: skip
_ESCAPE = re.compile(rb"\\(?:x([0-9A-Fa-f]{1,2})|([0-7]{1,3})|(.))", re.DOTALL)


@dataclass(frozen=True)
class Case:
    """One expectation: may `agent` fetch `url` under `robots`?"""

    name: str
    robots: bytes
    agent: str
    url: str
    allowed: bool
    standard: bool


def _unescape(text: bytes) -> bytes:
    def one(match: re.Match[bytes]) -> bytes:
        if match[1]:
            return bytes([int(match[1], 16)])
        return bytes([int(match[2], 8)]) if match[2] else _SIMPLE[match[3]]

    return _ESCAPE.sub(one, text)


def _tokens(data: bytes):
    place = 0
    while match := _TOKEN.match(data, place):
        place = match.end()
        yield _unescape(match[1][1:-1]) if match[1] is not None else (match[2] or match[3]).decode()
    assert not re.sub(rb"#[^\n]*", b"", data[place:]).strip(), data[place : place + 80]


def _message(tokens: list, index: int, end: str | None) -> tuple[list, int]:
    """The fields of a message as (name, value) pairs, until the bracket `end`."""
    fields = []
    while index < len(tokens) and tokens[index] != end:
        if tokens[index] == ",":
            index += 1
            continue
        name = tokens[index]
        index += 2 if tokens[index + 1] == ":" else 1
        value, index = _value(tokens, index)
        fields.append((name, value))
    return fields, index + 1


def _value(tokens: list, index: int):
    token = tokens[index]
    if isinstance(token, bytes):
        text = b""
        while index < len(tokens) and isinstance(tokens[index], bytes):
            text += tokens[index]
            index += 1
        return text, index
    if token == "{":
        return _message(tokens, index + 1, "}")
    if token == "[":
        items = []
        index += 1
        while tokens[index] != "]":
            if tokens[index] == ",":
                index += 1
                continue
            item, index = _value(tokens, index)
            items.append(item)
        return items, index + 1
    return token, index + 1


def _all(fields: list, name: str) -> list:
    return [entry for key, value in fields if key == name for entry in (value if isinstance(value, list) and value
            and isinstance(value[0], list) else [value])]  # fmt: skip


def read_cases(path: Path) -> list[Case]:
    """The cases of one file; `name` is `file:test:expectation`."""
    tokens = list(_tokens(path.read_bytes()))
    fields, _ = _message(tokens, 0, None)
    cases = []
    for number, test in enumerate(_all(fields, "tests")):
        facts = dict(test)
        for step, expectation in enumerate(_all(test, "test_expectations")):
            expected = dict(expectation)
            special = "GOOGLE_SPECIFIC" in (facts.get("test_type"), expected.get("test_type"))
            outcome = expected["expected_outcome"]
            assert outcome in ("ALLOWED", "DISALLOWED")
            cases.append(
                Case(
                    f"{path.parent.name}/{path.stem}:{number}:{step}",
                    facts.get("robotstxt", b""),
                    expected.get("useragent", b"").decode("utf-8", "replace"),
                    expected["testurl"].decode("utf-8", "replace"),
                    outcome == "ALLOWED",
                    not special,
                )
            )
    return cases
