"""Which pages a push sends: those that are not the same in each version that OpenSearch may have pages of."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl_lib.config import from_mapping
from crawl_lib.errors import ConfigError
from crawl_lib.index import LANGUAGES, OTHER, FieldKind, Fields
from crawl_lib.index.runs import _RUN
from crawl_lib.push.changes import BOOST_STEP, Listed, PageChange, changes, rounded_boost
from crawl_lib.push.documents import document_of
from crawl_lib.search.ranking import boost_factor
from crawl_lib.version import mapping_file
from tests.search.made import page

TABLES = st.lists(st.dictionaries(st.integers(0, 9), st.integers(0, 2)), min_size=1, max_size=4)


def listed(number: int, value: int) -> Listed:
    return Listed(bytes([number]) * 20, bytes([value]) * 20, 1.0, None, None)


@given(TABLES)
def test_changes_are_those_of_a_comparison_by_key(tables: list[dict[int, int]]) -> None:
    now, *befores = tables
    rows = [[listed(*one) for one in sorted(table.items())] for table in tables]
    expected = []
    for number in sorted(set().union(*tables)):
        same = befores and all(before.get(number) == now.get(number) for before in befores)
        if not same:
            expected.append(
                PageChange(
                    bytes([number]) * 20, listed(number, now[number]) if number in now else None
                )
            )
    assert list(changes(rows[0], rows[1:])) == expected


@given(st.floats(0, 1e6))
def test_a_rounded_boost_ranks_about_the_same(boost: float) -> None:
    found = rounded_boost(boost)
    assert boost_factor(found, 0.2) == pytest.approx(boost_factor(boost, 0.2), rel=0.003)
    assert rounded_boost(found) == found
    assert rounded_boost((1 + boost) * (1 + 2 * BOOST_STEP) - 1) > found


def properties() -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = json.loads(mapping_file().read_text())["mappings"][
        "properties"
    ]
    return found


def test_the_mapping_has_the_fields_of_each_language() -> None:
    names, fields = properties(), Fields(tuple(LANGUAGES))
    for group in (*LANGUAGES, OTHER):
        words = fields.name(FieldKind.WORDS, group)
        assert names[words]["analyzer"] == group
        assert names[fields.name(FieldKind.TITLE, group)]["copy_to"] == [
            "text",
            words,
            words,
            words,
        ]
        assert names[fields.name(FieldKind.ANCHORS, group)]["copy_to"] == [words]
        assert names[f"headings_{group}"]["copy_to"] == [words, words]
        assert names[f"body_{group}"]["copy_to"] == ["text", words]


def test_the_mapping_has_all_that_a_document_has() -> None:
    one = page(
        "x",
        "text 東京",
        title="t",
        headings="h",
        anchors=("a",),
        published_us=1,
        robots=("noarchive",),
    )
    until = listed(1, 1)
    for group in (*LANGUAGES, OTHER):
        assert document_of(one, until, group).keys() <= properties().keys()


def test_the_mapping_knows_the_scripts_without_spaces() -> None:
    analysis = json.loads(mapping_file().read_text())["settings"]["analysis"]
    own = re.sub("[\U00010000-\U0010ffff]", lambda found: rf"\x{{{ord(found[0]):x}}}", _RUN.pattern)
    assert analysis["char_filter"]["without_runs"]["pattern"] == own
    assert analysis["tokenizer"]["letters"]["pattern"] == own.removesuffix("+") + r"\p{M}*"


@pytest.mark.parametrize(
    "url",
    [
        "http://anna:hush@search.example:9200",
        "https://hush@search.example",
        "https://search.example/?user=hush",
        "https://search.example/#hush",
        "ftp://hush.example",
        "hush",
        "http://",
        "http://hush.example:x",
        "http://hush.example:99999",
        "http://hush .example",
        "http://[hush",
    ],
)
def test_an_address_with_a_password_is_refused_and_never_repeated(url: str) -> None:
    with pytest.raises(ConfigError, match=r"push\.url: must ") as raised:
        from_mapping(
            {"servers": ["node-0"], "dfs_primary": "dfs", "push": {"url": url}},
            mapping_file().parent,
        )
    assert "hush" not in str(raised.value)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:9200", "https://search.example/opensearch/", "HTTPS://[::1]:9200"]
)
def test_an_address_of_a_server_is_taken(url: str) -> None:
    options = {"servers": ["node-0"], "dfs_primary": "dfs", "push": {"url": url}}
    assert from_mapping(options, mapping_file().parent).push.url == url


@pytest.mark.parametrize(
    "name", ["Docs", "_docs", "-docs", "docs/1", "docs*", "a" * 101, "", "docs,other", ".docs"]
)
def test_a_name_that_opensearch_would_refuse_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"push\.index"):
        from_mapping(
            {"servers": ["node-0"], "dfs_primary": "dfs", "push": {"index": name}},
            mapping_file().parent,
        )
