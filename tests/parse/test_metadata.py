"""What a page says of itself, value by value and with each source; and that docs/metadata.md tells the order."""

from __future__ import annotations

import importlib.util
import json
import re
import time
from pathlib import Path

import pytest

from crawl_lib.config import ParseConfig
from crawl_lib.parse import Metadata, ParsedPage, parse_html
from crawl_lib.parse.dates import read_date
from crawl_lib.parse.facts import ORDER, Image, Value
from crawl_lib.parse.languages import language_tag
from tests.parse import hostile
from tests.parse.metadata_pages import NOW, PAGES, URL, MetadataPage, json_ld

ROOT = Path(__file__).resolve().parents[2]


def read(html: str | bytes, url: str = URL, charset: str | None = None) -> Metadata:
    data = html.encode() if isinstance(html, str) else html
    page = parse_html(data, url=url, header_charset=charset, config=ParseConfig(), facts_at=NOW)
    assert page.metadata is not None
    return page.metadata


def values(metadata: Metadata) -> dict[str, tuple[object, str]]:
    """Return the fields that have a value, in the form of `MetadataPage.expected`."""
    found = {name: value for name, value in metadata._asdict().items() if value is not None}
    return {
        name: (
            (value.url, value.width, value.height) if isinstance(value, Image) else value.text,
            value.source,
        )
        for name, value in found.items()
    }


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_each_value_of_a_page_and_its_source(page: MetadataPage) -> None:
    assert values(read(page.data, page.url, page.charset)) == page.expected


def test_pages_of_another_hand(testdata: Path) -> None:
    path = testdata / "metadata" / "pages.py"
    if not path.is_file():
        pytest.skip("third-party test data is not there: ../shared/testdata/metadata")
    spec = importlib.util.spec_from_file_location("shared_metadata_pages", path)
    assert spec is not None
    assert spec.loader is not None
    shared = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(shared)
    fields = {"lang": "language", "canonical": "canonical_url"}
    for name, url, charset, html, truth in shared.P:
        found = {field: value for field, (value, _) in values(read(html, url, charset)).items()}
        if "image" in found:
            found["image"] = found["image"][0]
        assert {field: found.get(fields.get(field, field)) for field in truth} == truth, name


def test_the_docs_have_the_order_of_the_code() -> None:
    text = (ROOT / "docs" / "metadata.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (`.*`) \|$", text, re.MULTILINE)
    assert {field: tuple(sources.strip("`").split("`, `")) for field, sources in rows} == ORDER
    assert tuple(ORDER) == Metadata._fields


@pytest.mark.parametrize("page", PAGES[:40:5], ids=[page.name for page in PAGES[:40:5]])
def test_metadata_goes_to_another_process_and_back(page: MetadataPage) -> None:
    read = parse_html(
        page.data, url=page.url, header_charset=page.charset, config=ParseConfig(), facts_at=NOW
    )
    assert ParsedPage.from_json(read.to_json()) == read


def test_nothing_is_chosen_where_no_one_asks() -> None:
    page = parse_html(
        b"<meta property=og:title content=x>", url=URL, header_charset=None, config=ParseConfig()
    )
    assert page.metadata is None
    assert ParsedPage.from_json(page.to_json()) == page


@pytest.mark.parametrize(
    "html",
    [
        "<title>half",
        "<meta property=og:title content='half",
        "<meta name=author content=x><title>half",
    ],
)
def test_what_is_open_where_a_page_is_cut_does_not_count(html: str) -> None:
    page = parse_html(
        html.encode(), url=URL, header_charset=None, config=ParseConfig(), is_cut=True, facts_at=NOW
    )
    assert page.metadata is not None
    assert page.metadata.title is None


META = "<meta property=x content=y>"
TITLE = "<meta property=og:title content=T>"
ICON = "<link rel=icon href=/i>"


@pytest.mark.parametrize(
    ("html", "field", "found"),
    [
        (META * 255 + TITLE, "title", True),
        (META * 256 + TITLE, "title", False),
        ("<time datetime=x>" * 1000 + ICON * 1000 + json_ld("{}") * 1000 + TITLE, "title", True),
        (META * 1000 + ICON, "icon", True),
        (json_ld("{}") * 31 + json_ld('{"@type":"Article","headline":"T"}'), "title", True),
        (json_ld("{}") * 32 + json_ld('{"@type":"Article","headline":"T"}'), "title", False),
        (json_ld(" " * 262_000) + json_ld('{"@type":"Article","headline":"T"}'), "title", True),
        (
            json_ld('"' + "x" * 262_140 + '"') + json_ld('{"@type":"Article","headline":"T"}'),
            "title",
            False,
        ),
        (
            json_ld('{"@graph":[' * 31 + '{"@type":"Article","headline":"T"}' + "]}" * 31),
            "title",
            True,
        ),
        (
            json_ld('{"@graph":[' * 32 + '{"@type":"Article","headline":"T"}' + "]}" * 32),
            "title",
            False,
        ),
        (json_ld('{"@type":"Article","headline":"T","a":[' + "0," * 200 + "0]}"), "title", True),
        (json_ld('{"@type":"Article","headline":"T","a":[' + "0," * 400 + "0]}"), "title", False),
        (json_ld('/* "[" */ {"@type":"Article","headline":"T"}'), "title", False),
        (json_ld('{"@type":"Article","headline":"' + "[" * 500 + '"}'), "title", True),
        (json_ld('{"@type":"Article","headline":"' + "a" * 5000 + '"}'), "title", True),
        (f"<meta property=og:image content='/{'x' * 1900}'>", "image", True),
        (f"<meta property=og:image content='/{'x' * 2100}'>", "image", False),
        (f"<link rel=canonical href='/{'x' * 2100}'>", "canonical_url", False),
    ],
)
def test_limits(html: str, field: str, found: bool) -> None:
    assert (getattr(read(html), field) is not None) is found


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        (
            "<meta property=og:image:width content=1><meta property=og:image content=/a>",
            (None, None),
        ),
        (
            "<meta property=og:image content=/a><meta property=og:image:width content=1200.5>",
            (None, None),
        ),
        (
            "<meta property=og:image content=/a><meta property=og:image:width content=' 12px '>",
            (12, None),
        ),
        (
            "<meta property=og:image content=/a><meta property=og:image:height content=\u0661\u0662>",
            (None, None),
        ),
        (
            "<meta property=og:image content=/a><meta property=og:image:width content=99999999999>",
            (None, None),
        ),
        (
            json_ld('{"@type":"Article","image":{"url":"/a","width":true,"height":-3}}'),
            (None, None),
        ),
        (
            json_ld('{"@type":"Article","image":{"url":"/a","width":[1],"height":{"value":"7"}}}'),
            (None, 7),
        ),
    ],
)
def test_sizes_of_an_image(html: str, expected: tuple[int | None, int | None]) -> None:
    image = read(html).image
    assert image is not None
    assert (image.width, image.height) == expected


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        ("en", "en"),
        (" EN_us ", "en-US"),
        ("zh-hant-tw", "zh-Hant-TW"),
        ("de-ch-1901", "de-CH-1901"),
        ("sl-rozaj-biske", "sl-rozaj-biske"),
        ("es-419", "es-419"),
        ("in", "id"),
        ("en-a-bbb-x-A-ccc", "en-a-bbb-x-a-ccc"),
        ("en-US-US", None),
        ("en-u", None),
        ("en--us", None),
        ("en-", None),
        ("en_US.UTF-8", None),
        ("a-DE", None),
        ("x-whatever", None),
        ("e\u212a", None),
        ("und-Latn", None),
        ("en" + "-abcde" * 11, None),
    ],
)
def test_a_language_tag_is_one_of_bcp_47(text: str, tag: str | None) -> None:
    assert language_tag(text) == tag


@pytest.mark.parametrize(
    ("text", "iso"),
    [
        ("2026-03-04T05:06:07.000Z", "2026-03-04T05:06:07+00:00"),
        ("2026-03-04T05:06", "2026-03-04T05:06:00"),
        ("2026-03-04 05:06:07 +0530", "2026-03-04T05:06:07+05:30"),
        ("20260304", "2026-03-04"),
        ("2026/03/04", "2026-03-04"),
        ("Wed, 04 Mar 2026 05:06:07 EST", "2026-03-04T05:06:07-05:00"),
        ("4 Mar 2026", "2026-03-04"),
        ("2026-03", "2026-03"),
        ("2026", "2026"),
        ("2026-02-29", None),
        ("2026-03-04T24:30:00Z", None),
        ("2026-03-04T05:06:07+25:00", None),
        ("0000-01-01", None),
        ("04/03/2026", None),
        ("yesterday", None),
        ("", None),
    ],
)
def test_dates_are_written_by_iso_8601(text: str, iso: str | None) -> None:
    found = read_date(text, NOW)
    assert (found and found.iso) == iso


def test_authors_of_one_thing_are_joined_without_addresses_and_repetitions() -> None:
    people = [
        "Ann",
        {"name": "Bob"},
        {"name": "Ann"},
        "https://social.example/x",
        {"name": ["Cy"]},
        7,
    ]
    things = [{"@type": "Article", "author": people}, {"@type": "Article", "author": "Dee"}]
    assert read(json_ld(json.dumps(things))).author == Value("Ann, Bob", "json-ld author")


def test_things_that_name_each_other_in_a_circle_end() -> None:
    things = [
        {
            "@type": "Article",
            "@id": "#a",
            "author": {"@id": "#a"},
            "image": {"@id": "#a"},
            "name": {"@id": "#a"},
        }
    ]
    assert read(json_ld(json.dumps(things))) == Metadata(type=Value("Article", "json-ld @type"))


def spent(html: bytes, at: float | None) -> float:
    began = time.process_time()
    parse_html(html, url=URL, header_charset="utf-8", config=ParseConfig(), facts_at=at)
    return time.process_time() - began


@pytest.mark.parametrize("shape", [hostile.metas, hostile.json_ld])
@pytest.mark.parametrize("seed", range(15))
def test_hostile_metadata_costs_no_more_than_links_do(shape: hostile.Shape, seed: int) -> None:
    """At most 20 ms a MB, on a machine that reads a MB of plain links in 3.3 ms. Seen: 10 ms."""
    size = 1 << 18
    html, links = (
        shape(hostile.Random(seed), size)[: 2 * size],
        b"<a href=/page/of/links>text</a> " * (size // 32),
    )
    cost = min(spent(html, NOW) for _ in range(3)) / len(html)
    assert cost < 6 * min(spent(links, None) for _ in range(3)) / len(links)
