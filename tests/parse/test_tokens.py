"""The tokenizer against html5lib's tests: the same tokens as the HTML Standard, under sanitizers."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.parse.driver import Answer, Driver

TESTDATA = Path(__file__).parents[3] / "shared" / "testdata" / "html"
STATES = {
    "Data state": 0,
    "RCDATA state": 1,
    "RAWTEXT state": 2,
    "Script data state": 3,
    "PLAINTEXT state": 4,
    "CDATA section state": 5,
}
Token = tuple[Any, ...]


def unescaped(value: Any) -> Any:
    """Undo the escapes of a test that is `doubleEscaped`."""
    if isinstance(value, str):
        return re.sub(r"\\u([0-9A-Fa-f]{4})", lambda match: chr(int(match[1], 16)), value)
    if isinstance(value, list):
        return [unescaped(one) for one in value]
    return (
        {unescaped(name): unescaped(text) for name, text in value.items()}
        if isinstance(value, dict)
        else value
    )


def cases(path: Path) -> list[tuple[str, bytes, int, str, list[Token]]]:
    """(description, input, state, last start tag, tokens) of each test of a file, for each of its states."""
    found = []
    for test in json.loads(path.read_bytes()).get("tests", []):
        html, output = test["input"], test["output"]
        if test.get("doubleEscaped"):
            html, output = unescaped(html), unescaped(output)
        data = (
            html.encode("utf-16", "surrogatepass")
            .decode("utf-16", "surrogatepass")
            .encode("utf-8", "surrogatepass")
        )
        for state in test.get("initialStates", ["Data state"]):
            expected = merged([known(token) for token in output])
            found.append(
                (test["description"], data, STATES[state], test.get("lastStartTag", ""), expected)
            )
    return found


def known(token: list[Any]) -> Token:
    """What we know of a token: nothing of a doctype but that it is there."""
    if token[0] == "DOCTYPE":
        return ("DOCTYPE",)
    if token[0] == "StartTag":
        return ("StartTag", token[1], token[2], bool(token[3:] and token[3]))
    return tuple(token)


def merged(tokens: list[Token]) -> list[Token]:
    """Characters that follow each other as one token."""
    found: list[Token] = []
    for token in tokens:
        if token[0] == "Character" and found and found[-1][0] == "Character":
            found[-1] = ("Character", found[-1][1] + token[1])
        else:
            found.append(token)
    return found


def tokens_of(answer: Answer) -> list[Token]:
    """The tokens in an answer of the driver."""
    data, place, found = answer.data, 0, list[Token]()

    def text() -> str:
        nonlocal place
        (length,) = struct.unpack_from("=I", data, place)
        place += 4 + length
        return data[place - length : place].decode("utf-8", "surrogatepass")

    while place < len(data):
        kind, place = data[place : place + 1], place + 1
        if kind == b"T":
            found.append(("Character", text()))
        elif kind == b"C":
            found.append(("Comment", text()))
        elif kind == b"D":
            found.append(("DOCTYPE",))
        else:
            name, attributes = text(), dict[str, str]()
            while data[place : place + 1] == b"A":
                place += 1
                attribute, value = text(), text()
                attributes.setdefault(attribute, value)
            closing = data[place : place + 1] == b"/"
            place += 1
            found.append(
                ("StartTag", name, attributes, closing) if kind == b"S" else ("EndTag", name)
            )
    return merged(found)


FILES = sorted((TESTDATA / "tokenizer").glob("*.test"))


def test_the_tests_of_html5lib_are_there() -> None:
    if not FILES:
        pytest.skip(f"html5lib's tests are not in {TESTDATA}")
    assert sum(len(cases(path)) for path in FILES) > 6800


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_tokens_are_those_of_the_standard(path: Path, driver: Driver) -> None:
    tests = cases(path)
    answers = driver.tokens((html, state, name) for _, html, state, name, _ in tests)
    wrong = [
        (description, html, expected, tokens_of(answer))
        for (description, html, _, _, expected), answer in zip(tests, answers, strict=True)
        if tokens_of(answer) != expected
    ]
    assert wrong == []
