"""Seeds as people write them, and their injection."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl_lib.config import RuleConfig, UrlsConfig
from crawl_lib.crawldir import CrawlDirectory
from crawl_lib.errors import InputError
from crawl_lib.seeds import Division, Seeds, parse_seeds
from crawl_lib.seeds.inject import inject
from crawl_lib.storage.local import LocalStorage
from crawl_lib.urlfiles import decode_line, read_outlinks
from crawl_lib.urls import Owners, UrlFilter, canonicalize, host_of

GOOD = "http://a.test/"


def listed(seeds: Seeds) -> list[str]:
    return [seed.url for seed in seeds]


def adds_up(seeds: Seeds) -> bool:
    report = seeds.report
    parts = (
        report.blank
        + report.comments
        + report.accepted
        + report.duplicates
        + sum(report.rejected.values())
    )
    return report.lines == parts


def test_garbage_is_counted_and_named_and_the_good_ones_come_through(tmp_path: Path) -> None:
    file = tmp_path / "seeds.txt"
    file.write_bytes(
        b"\xef\xbb\xbfhttp://A.test\r\n# comment\n\n   \nftp://b.test/\nno url\n\xff\xfe\n"
        b"http://big.test/"
        + b"x" * (1 << 20)
        + b"\nhttp://c.test/\nhttp://a.test/#x\nhttp://long.test/"
        + b"y" * 3000
        + b"\nhttp://d.test/\tdepth"
    )
    seeds = parse_seeds(str(file))
    assert listed(seeds) == [GOOD, "http://c.test/"]
    report = seeds.report
    assert (report.lines, report.blank, report.comments, report.duplicates) == (12, 2, 1, 1)
    assert report.rejected == {
        "scheme": 1,
        "no_scheme": 1,
        "invalid": 1,
        "too_long": 2,
        "metadata": 1,
    }
    assert adds_up(seeds)
    for line, example in zip((5, 6, 7, 8, 11, 12), report.examples, strict=True):
        assert example.startswith(f"{file}:{line}: ")
        assert len(example) < 500


def test_only_the_first_refusals_are_named() -> None:
    seeds = parse_seeds("\n".join(f"garbage {n}" for n in range(50)))
    assert listed(seeds) == []
    assert (len(seeds.report.examples), seeds.report.rejected) == (20, {"no_scheme": 50})
    assert seeds.report.examples[19].startswith("seeds:20: ")


def test_metadata_is_kept_as_json() -> None:
    (seed,) = parse_seeds(f"{GOOD}\tsource=list 1\tlabel=Ä=b\t\n")
    assert json.loads(seed.metadata) == {"source": "list 1", "label": "Ä=b"}
    assert "\t" not in seed.metadata


AS_PEOPLE_SAVE_THEM = {
    "csv with a header": (
        b"url;title\nhttp://a.test/;Home\nhttp://b.test/;About\n",
        ["a ; after the URL"] * 3,
    ),
    "csv with white space": (
        b"http://a.test/, Home\nhttp://b.test/, About\n",
        ["a , after the URL"] * 2,
    ),
    "csv with quotes": (
        b'http://a.test/;"Home"\nhttp://b.test/;"About"\n',
        ["a ; after the URL"] * 2,
    ),
    "csv of two URLs": (b"http://a.test/,http://b.test/\n", ["a , after the URL"]),
    "csv with the URL behind": (
        b"Home;http://a.test/\nAbout;http://b.test/\n",
        ["a ; after the URL"] * 2,
    ),
    "two URLs on a line": (
        b"http://a.test/ http://b.test/\nhttp://c.test/\n",
        ["two URLs on a line"],
    ),
    "two URLs and a tab": (
        b"http://a.test/\tHTTPS://b.test/\nhttp://c.test/\n",
        ["two URLs on a line"],
    ),
    "two URLs and a tab, a query": (
        b"http://a.test/\t http://b.test/?a=b\nhttp://c.test/\n",
        ["two URLs on a line"],
    ),
    "two URLs, much space": (b"http://a.test/ \xc2\xa0 HTTPS://b.test/\n", ["two URLs on a line"]),
    "utf-16": ("http://a.test/\nhttp://b.test/\n".encode("utf-16"), ["the text is UTF-16"] * 3),
    "utf-16 without a mark": (
        "http://a.test/\nhttp://b.test/\n".encode("utf-16-le"),
        ["the text is UTF-16"] * 3,
    ),
    "utf-16, big end first": ("\ufeffhttp://a.test/\n".encode("utf-16-be"), ["the text is UTF-16"]),
    "gzip": (gzip.compress(b"http://a.test/\n", mtime=0), ["the file is no text"]),
    "a table of an office program": (
        b"PK\x03\x04\x14\0\x06\0http://a.test/\n",
        ["the file is no text"],
    ),
    "pdf": (b"%PDF-1.7\nhttp://a.test/\n", ["the file is no text"] * 2),
    "no scheme": (
        b"a.test/page\nlocalhost:8005\n127.0.0.6:8005\nwww.b.test\n",
        ["no http:// or https://"] * 4,
    ),
    "another scheme": (
        b"ftp://a.test/\nmailto:me@a.test\n",
        ["the scheme is neither http nor https"] * 2,
    ),
}


@pytest.mark.parametrize("case", AS_PEOPLE_SAVE_THEM)
def test_lines_as_people_save_them_are_refused_in_words(tmp_path: Path, case: str) -> None:
    data, words = AS_PEOPLE_SAVE_THEM[case]
    file = tmp_path / "saved.txt"
    file.write_bytes(data)
    seeds = parse_seeds(str(file))
    urls = listed(seeds)
    assert urls == (["http://c.test/"] if b"c.test" in data else []), "no other URL is made of them"
    assert adds_up(seeds)
    for number, (example, word) in enumerate(zip(seeds.report.examples, words, strict=True), 1):
        assert example.startswith(f"{file}:{number}: {word}")


def test_separators_are_legal_in_urls(tmp_path: Path) -> None:
    """A list whose URLs have as many of them is no CSV; neither is one with a single space behind one of many."""
    urls = [f"http://a.test/article,{number},0.html;v={number}" for number in range(30)]
    file = tmp_path / "list.txt"
    file.write_text("# a list; of URLs, all mine\n" + "\n".join(urls) + "\n")
    assert listed(parse_seeds(str(file))) == urls
    file.write_text("http://a.test/a;b;c\nhttp://a.test/a, b\nhttp://a.test/\n")
    assert len(listed(parse_seeds(str(file)))) == 3


@given(st.lists(st.text("ab;,=?&/\"' ", max_size=12), min_size=1, max_size=30))
def test_a_line_is_one_url_or_a_refusal(paths: list[str]) -> None:
    """What is accepted is the canonical form of the whole line."""
    lines = [f"http://a.test/{number}/{path}" for number, path in enumerate(paths)]
    seeds = parse_seeds("\n".join(lines) + "\n")
    assert set(listed(seeds)) <= {canonicalize(line.strip()) for line in lines}
    assert adds_up(seeds)


def test_urls_of_a_form_may_be_on_a_line_but_not_in_a_list() -> None:
    assert listed(parse_seeds("http://a.test/ http://b.test/")) == [GOOD, "http://b.test/"]
    for text in (
        "http://a.test/, http://b.test/",
        "http://a.test/; http://b.test/; http://c.test/",
    ):
        seeds = parse_seeds(text)
        assert listed(seeds) == []
        assert sum(seeds.report.rejected.values()) == 1


def test_a_directory_is_read_in_the_order_of_its_names(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("http://b.test/\n")
    (tmp_path / "a").write_text("http://a.test/\nbad")
    (tmp_path / ".hidden").write_text("http://hidden.test/\n")
    (tmp_path / "folder").mkdir()
    seeds = parse_seeds(str(tmp_path))
    assert listed(seeds) == [GOOD, "http://b.test/"]
    assert seeds.report.examples[0].startswith(f"{tmp_path / 'a'}:2: ")
    assert listed(seeds) == [GOOD, "http://b.test/"], "it can be read again"
    assert seeds.report.lines == 3


def test_what_looks_like_a_path_and_is_none_is_an_error(tmp_path: Path) -> None:
    for text in (str(tmp_path / "none.txt"), "seeds.txt", "./x", "~/nobody-has-this"):
        with pytest.raises(InputError, match="no such file"):
            parse_seeds(text)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="without files"):
        parse_seeds(str(tmp_path / "empty"))


@pytest.mark.parametrize(
    ("text", "urls"),
    [
        ("", []),
        ("\n", []),
        (GOOD, [GOOD]),
        (f"{GOOD} http://b.test/", [GOOD, "http://b.test/"]),
        (f"{GOOD}\nhttp://b.test/", [GOOD, "http://b.test/"]),
        ("mailto:x@y.z", []),
        ("http:/a.test", [GOOD]),
    ],
)
def test_a_text_is_read_as_urls(text: str, urls: list[str]) -> None:
    seeds = parse_seeds(text)
    assert listed(seeds) == urls
    assert adds_up(seeds)


def test_rules_hold_for_seeds_and_the_scope_does_not() -> None:
    config = UrlsConfig(rules=(RuleConfig("-", "suffix", ".pdf"),))
    seeds = parse_seeds(f"{GOOD}\n{GOOD}x.pdf", url_filter=UrlFilter(config, ()))
    assert listed(seeds) == [GOOD]
    assert seeds.report.rejected == {"rule": 1}


def test_ports_that_browsers_refuse_are_a_rejection() -> None:
    seeds = parse_seeds(
        f"{GOOD}\nhttp://a.test:25/\nhttps://a.test:6667/", url_filter=UrlFilter(UrlsConfig(), ())
    )
    assert listed(seeds) == [GOOD]
    assert seeds.report.rejected == {"port": 2}


@given(st.binary(max_size=300))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    seeds = Seeds([("x", data)], max_length_chars=100)
    listed(seeds)
    assert adds_up(seeds)


def injected(
    root: Path,
    seeds: str,
    nodes: tuple[str, ...] = ("n1", "n2", "n3"),
    routing: str = "host",
    run: str = "r",
):
    storage = LocalStorage.open(root)
    return storage, inject(
        CrawlDirectory(storage, "crawl"), run, parse_seeds(seeds), Division(nodes, routing)
    )


def parts_of(storage: LocalStorage, manifest) -> dict[str, list[str]]:
    path = f"crawl/seeds/{manifest.said['digest']}/outlinks"
    return {
        node: [
            decode_line(line)[0].url
            for line in read_outlinks(
                storage.open_read(path, part["offset"], part["length"]), count=part["count"]
            )
        ]
        for node, part in manifest.outlinks.items()
    }


URLS = [f"http://h{n}.test/{n}" for n in range(31)]


def test_each_seed_goes_to_the_owner_of_its_host(tmp_path: Path) -> None:
    storage, manifest = injected(tmp_path, "\n".join(URLS))
    owners = Owners(["n1", "n2", "n3"])
    for node, urls in parts_of(storage, manifest).items():
        assert urls == [url for url in URLS if owners.owner(host_of(url)) == node]
    scope = storage.read_bytes(f"crawl/seeds/{manifest.said['digest']}/scope").decode().splitlines()
    assert scope == sorted(host_of(url) for url in URLS)
    assert manifest.accepted == manifest.said["seeds"]["accepted"] == 31


@pytest.mark.parametrize("count", [0, 1, 2, 3, 31])
def test_local_routing_spreads_seeds_evenly_and_without_overlap(tmp_path: Path, count: int) -> None:
    storage, manifest = injected(
        tmp_path, "\n".join([*URLS[:count], *URLS[:count]]), routing="local"
    )
    parts = parts_of(storage, manifest)
    sizes = [len(urls) for urls in parts.values()]
    assert max(sizes) - min(sizes) <= 1
    assert sorted(url for urls in parts.values() for url in urls) == sorted(URLS[:count])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "garbage\nftp://a.test/\n",
            r"no line of 2 is a URL to crawl: .*:1: no http.*; .*:2: the scheme is neither.*",
        ),
        ("# a comment\n\n", "holds no URL"),
        ("", "holds no URL"),
    ],
)
def test_a_file_without_any_seed_is_refused_and_leaves_nothing(
    tmp_path: Path, text: str, message: str
) -> None:
    """Else a run that fetches nothing looks like a success."""
    file = tmp_path / "seeds.txt"
    file.write_text(text)
    with pytest.raises(InputError, match=message):
        injected(tmp_path, str(file))
    assert not (tmp_path / "crawl").exists()
    assert injected(tmp_path, "")[1].accepted == 0, "no seeds: what is queued is crawled"


def test_injecting_again_finds_it_complete(tmp_path: Path) -> None:
    storage, manifest = injected(tmp_path, "\n".join(URLS))
    before = storage.stat(f"crawl/seeds/{manifest.said['digest']}/outlinks")
    assert injected(tmp_path, "\n".join(URLS))[1] == manifest
    assert storage.stat(f"crawl/seeds/{manifest.said['digest']}/outlinks") == before
    assert injected(tmp_path, "\n".join(URLS), run="s")[1].said["digest"] != manifest.said["digest"]
    assert injected(tmp_path, "\n".join(URLS[1:]))[1].said["digest"] != manifest.said["digest"]
    assert len(storage.list("crawl/seeds")) == 3


def test_of_two_that_inject_the_same_at_once_one_finds_the_other(tmp_path: Path) -> None:
    class Racing(LocalStorage):
        raced = False

        def rename(self, source: str, target: str) -> None:
            if not self.raced:
                self.raced = True
                injected(tmp_path, "\n".join(URLS))
            super().rename(source, target)

    storage = Racing.open(tmp_path)
    manifest = inject(
        CrawlDirectory(storage, "crawl"),
        "r",
        parse_seeds("\n".join(URLS)),
        Division(["n1"], "host"),
    )
    assert storage.raced
    assert manifest.nodes == ("n1", "n2", "n3"), "what is there is the truth"
    assert [entry.name for entry in storage.list("crawl/seeds")] == [manifest.said["digest"]]
