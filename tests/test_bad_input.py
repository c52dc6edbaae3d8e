"""Bad input: always one clear line that names what is wrong and what to do, and nothing good is lost with the bad.

Every case is tried as the operators do it, through `stages`, and as people do it, with `krake`.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from crawl_lib import stages
from crawl_lib.config import load_config
from crawl_lib.errors import (
    ConfigError,
    KeyStoreError,
    KrakeError,
    OutputConflictError,
    QueueError,
    StorageError,
)
from crawl_lib.export import ContentReader
from crawl_lib.export.readers import UrlMapping
from crawl_lib.graph import open_web_graph
from crawl_lib.stores import open_stores
from demo import Serving, SynthWeb
from demo.spelling import address
from tests.cli.conftest import Krake, run_in_process
from tests.web.files import FileServing


@pytest.fixture
def krake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Krake:
    """A crawl of one node; nothing is there yet."""
    found = Krake(tmp_path, lambda words: run_in_process(capsys, words))
    found.configure(servers=["node-a"])
    return found


@pytest.fixture(scope="module")
def serving() -> Iterator[Serving]:
    with Serving(SynthWeb(seed=6, sites=1, pages_per_site=3, specials=False)) as found:
        yield found


def one_line(error: KrakeError) -> str:
    text = str(error)
    assert text
    assert "\n" not in text
    return text


class TestConfig:
    """The single checks are in tests/config; here: what a user sees."""

    @pytest.mark.parametrize(
        ("sections", "key", "advice"),
        [
            ({"bach": {"size": 1}}, "bach", "the nearest option is batch"),
            ({"batch": {"size": "many"}}, "batch.size", "must be a whole number"),
            ({"batch": {"size": 0}}, "batch.size", "must be at least 1"),
            ({"servers": []}, "servers", "must name at least one"),
            ({"servers": ["a", "a"]}, "servers", "twice"),
            (
                {"key_storage": {"servers": ["x.sqlite"], "replication": 2}},
                "key_storage.replication",
                "as many servers",
            ),
            (
                {"fetch": {"allow_networks": ["everything"]}},
                "fetch.allow_networks",
                "such as 127.0.0.0/8",
            ),
            (
                {"urls": {"rules": [{"action": "-", "kind": "regex", "value": "("}]}},
                "urls.rules",
                "(",
            ),
            ({"dfs_primary": None}, "dfs_primary", "must be a text"),
            ({"crawl": {"directory": "../elsewhere"}}, "crawl.directory", "does not match"),
            (
                {"export": {"directory": "crawl"}},
                "export.directory",
                "must differ from crawl.directory",
            ),
        ],
    )
    def test_a_mistake_names_the_key_and_what_it_may_be(
        self, krake: Krake, sections: dict[str, Any], key: str, advice: str
    ) -> None:
        krake.configure(**sections)
        error = krake("inject", "http://127.0.0.1/").error()
        assert key in error
        assert advice in error

    def test_a_tab_of_yaml_is_named(self, krake: Krake) -> None:
        """YAML's own text is "found character that cannot start any token"."""
        krake.file.write_text("fetch:\n\thost_delay_s: 1\n")
        error = krake("status").error()
        assert "line 2" in error
        assert "begins with a tab" in error


GARBAGE = b"\xff\xfe\x00 garbage"
LONG = b"http://127.0.0.1/" + b"x" * 1_000_000


class TestSeeds:
    def test_the_bad_lines_are_counted_and_named_and_the_good_ones_crawled(
        self, krake: Krake, serving: Serving, tmp_path: Path
    ) -> None:
        urls = [serving.url(0, path).encode() for path in ("/", "/none/1", "/none/2")]
        first, second = tmp_path / "seeds" / "a.txt", tmp_path / "seeds" / "b.txt"
        first.parent.mkdir()
        first.write_bytes(
            b"\n".join(
                [
                    b"# a comment",
                    b"",
                    urls[0],
                    GARBAGE,
                    b"ftp://127.0.0.1/",
                    b"   ",
                    urls[0],
                    b"mailto:me@x.y",
                ]
            )
        )
        second.write_bytes(
            b"\r\n".join(
                [LONG, urls[1] + b"\tsource=test", b"not a url", urls[2] + b"\tno-equals", b""]
            )
        )
        shown = krake.ok("inject", str(first.parent), "--run-id", "r").out
        counts = stages.inject(
            open_stores(load_config(krake.file)), run_id="r", seeds=str(first.parent)
        )

        assert counts["accepted"] == 2
        assert counts["blank"] == 2
        assert counts["comments"] == 1
        assert counts["duplicates"] == 1
        assert counts["rejected"] == {
            "invalid": 1,
            "no_scheme": 1,
            "scheme": 2,
            "too_long": 1,
            "metadata": 1,
        }
        assert counts["lines"] == 12
        for place in (
            f"{first}:4",
            f"{first}:5",
            f"{first}:8",
            f"{second}:1",
            f"{second}:3",
            f"{second}:4",
        ):
            assert sum(f"{place}:" in example for example in counts["examples"]) == 1
            assert f"{place}:" in shown
        assert all(len(example) < 400 + len(str(second)) for example in counts["examples"])

        krake.configure(servers=["node-a"], urls={"max_depth": 0})
        krake.ok("crawl")
        assert krake.status()["totals"]["outcomes"] == {"ok": 1, "gone": 1}

    def test_a_seed_in_a_refused_network_is_named_at_once(self, krake: Krake) -> None:
        """It was said after the crawl alone, as an outcome."""
        urls = ["http://10.0.0.1/", "http://[::1]/", "http://93.184.215.14/", "http://name.test/"]
        krake.configure(
            servers=["node-a"], fetch={"allow_networks": [], "contact": "me@example.org"}
        )
        warning = krake.ok("inject", *urls).out
        assert (
            "http://10.0.0.1/, http://[::1]/: addresses of inner networks are not fetched"
            in warning
        )
        krake.configure(
            servers=["node-a"],
            fetch={"allow_networks": ["10.0.0.0/8"], "contact": "me@example.org"},
        )
        assert "warning" not in krake.ok("inject", urls[0], urls[2]).out

    @pytest.mark.parametrize(
        ("make", "problem"),
        [
            (lambda path: None, "no such file or directory"),
            (lambda path: path.mkdir(), "a directory without files"),
        ],
    )
    def test_seeds_that_are_not_there_are_named(
        self, krake: Krake, tmp_path: Path, make: Callable[[Path], None], problem: str
    ) -> None:
        make(tmp_path / "seeds.txt")
        error = krake("inject", str(tmp_path / "seeds.txt")).error()
        assert str(tmp_path / "seeds.txt") in error
        assert problem in error

    @pytest.mark.parametrize(
        "text", ["~no-such-user/seeds.txt", "x" * 300, "\0", "seeds.txt/below"]
    )
    def test_a_text_that_is_neither_url_nor_path_is_refused(self, krake: Krake, text: str) -> None:
        Path(krake.directory / "seeds.txt").write_text("")
        error = krake("inject", text).error()
        assert "seeds:1: no" in error or text in error


def below_a_file(directory: Path) -> Path:
    (directory / "file").write_text("")
    return directory / "file" / "below"


def deep_below_a_file(directory: Path) -> Path:
    return below_a_file(directory) / "and" / "deeper"


def a_file(directory: Path) -> Path:
    (directory / "file").write_text("")
    return directory / "file"


def without_parent(directory: Path) -> Path:
    return directory / "no" / "parent"


PLACES = [below_a_file, deep_below_a_file, a_file, without_parent]
Stage = Callable[[Krake], object]


def crawled_once(krake: Krake) -> None:
    krake.ok("inject", "")
    krake.ok("crawl")


class TestDirectories:
    """Missing ones are made if their parent is there; what cannot be made is named, with its option."""

    @pytest.mark.parametrize("place", PLACES)
    def test_dfs_primary(self, krake: Krake, place: Callable[[Path], Path]) -> None:
        path = place(krake.directory)
        krake.configure(servers=["node-a"], dfs_primary=str(path))
        for words in (
            ["inject", "http://127.0.0.1/"],
            ["crawl"],
            ["settle"],
            ["export"],
            ["status"],
        ):
            error = krake(*words).error()
            assert f"dfs_primary: {path}: " in error
        with pytest.raises((ConfigError, StorageError)):
            stages.inject(open_stores(load_config(krake.file)), run_id="r", seeds="")

    @pytest.mark.parametrize("place", PLACES)
    def test_queue_local_dir(self, krake: Krake, place: Callable[[Path], Path]) -> None:
        path = place(krake.directory)
        krake.configure(servers=["node-a"], queue={"local_dir": str(path)})
        for words in (["inject", "http://127.0.0.1/"], ["crawl"], ["settle"]):
            assert f"queue.local_dir: {path}" in krake(*words).error()
        with pytest.raises((ConfigError, StorageError)):
            stages.settle_node(open_stores(load_config(krake.file)), node="node-a")
        krake.ok("status")

    @pytest.mark.parametrize("place", PLACES)
    def test_key_server_files(self, krake: Krake, place: Callable[[Path], Path]) -> None:
        path = place(krake.directory) / "0.sqlite"
        if place is a_file:
            path = krake.directory / "file"
            path.write_bytes(b"this is no database" * 100)
        krake.configure(servers=["node-a"], key_storage={"servers": [str(path)]})
        for words in (["inject", "http://127.0.0.1/"], ["crawl"]):
            assert str(path if place is a_file else path.parent) in krake(*words).error()
        for words in (["settle"], ["keys", "create"], ["forget", "--yes", "http://127.0.0.1/"]):
            assert str(path) in krake(*words).error()
        assert str(path) in krake("keys", "check").out
        with pytest.raises(KeyStoreError) as caught:
            stages.settle_node(open_stores(load_config(krake.file)), node="node-a")
        assert str(path) in one_line(caught.value)
        assert str(path) in krake.status()["keys"][0]["error"]

    @pytest.mark.parametrize("place", PLACES)
    def test_scratch(self, krake: Krake, place: Callable[[Path], Path]) -> None:
        crawled_once(krake)
        path = place(krake.directory)
        krake.configure(servers=["node-a"], scratch={"directory": str(path)})
        for words in (["inject", ""], ["crawl"], ["export"]):
            error = krake(*words).error()
            assert str(path) in error
            assert "scratch.directory" in error
        with pytest.raises((ConfigError, StorageError)):
            stages.export_pages(open_stores(load_config(krake.file)))

    def test_a_directory_is_made_where_only_itself_is_missing(self, krake: Krake) -> None:
        crawled_once(krake)
        krake.ok("export")
        assert {entry.name for entry in krake.directory.iterdir() if entry.is_dir()} == {
            "dfs",
            "keys",
            "queue",
            "scratch",
        }

    @pytest.mark.parametrize("name", ["crawl", "export"])
    def test_a_file_where_a_folder_of_the_dfs_should_be(self, krake: Krake, name: str) -> None:
        if name == "export":
            crawled_once(krake)
            shutil.rmtree(krake.directory / "dfs" / name)
        (krake.directory / "dfs").mkdir(exist_ok=True)
        (krake.directory / "dfs" / name).write_text("")
        words = {"crawl": ["inject", ""], "export": ["export"]}[name]
        assert str(krake.directory / "dfs" / name) in krake(*words).error()


def test_a_queue_state_that_lies_is_named_with_the_command_that_repairs_it(krake: Krake) -> None:
    krake.ok("inject", "http://127.0.0.1/a http://127.0.0.1/b")
    krake.ok("settle")
    state = krake.directory / "queue" / "node-a" / "state"
    state.write_text("0\n3\n")
    with pytest.raises(QueueError) as caught:
        stages.settle_node(open_stores(load_config(krake.file)), node="node-a")
    assert one_line(caught.value) == (
        f"{state.parent}: file 0 has 2 URLs, and `state` says 3; run `krake fsck --repair`"
    )
    assert krake("crawl").error() == str(caught.value)
    assert state.read_text() == "0\n3\n", "nothing is repaired in silence"


def test_an_export_over_one_with_other_inputs_is_refused_and_touches_nothing(
    krake: Krake, serving: Serving
) -> None:
    krake.ok("inject", serving.seeds[0])
    krake.ok("crawl")
    krake.ok("export", "--label", "mine")
    files = {
        file: file.read_bytes() for file in (krake.directory / "dfs" / "export" / "mine").iterdir()
    }
    krake.ok("export", "--label", "mine")
    krake.ok("crawl")
    with pytest.raises(OutputConflictError) as caught:
        stages.export_pages(open_stores(load_config(krake.file)), label="mine")
    error = krake("export", "--label", "mine").error()
    assert error == one_line(caught.value)
    assert "export/mine" in error
    assert "label" in error
    assert {
        file: file.read_bytes() for file in (krake.directory / "dfs" / "export" / "mine").iterdir()
    } == files


def nothing_is_valid(krake: Krake) -> None:
    """Settle, maintenance, export, linker and finalizer of no page, twice; all their outputs are empty and valid."""
    config = load_config(krake.file)
    for _ in range(2):
        for words in (
            ["settle"],
            ["fsck", "--repair"],
            ["export", "--label", "none"],
            ["graph", "link"],
            ["graph", "finalize"],
        ):
            krake.ok(*words)
    place = krake.directory / "dfs" / "export" / "none"
    assert (place / "urlmapping").read_bytes() == struct.pack(">i", 0)
    assert (place / "webgraph").read_bytes() == struct.pack(">i", 0)
    assert (place / "content").read_bytes() == (place / "offsets").read_bytes() == b""
    with (
        UrlMapping(place / "urlmapping") as mapping,
        ContentReader(place / "content", place / "offsets") as content,
    ):
        assert list(mapping) == list(content) == []
        assert mapping.node_id(b"\0" * 20) is None
    with open_web_graph(open_stores(config), name="none") as graph:
        assert list(graph) == []
        assert graph.stats()
    assert pq.read_table(place / "pages.parquet").num_rows == 0
    [export] = krake.status()["exports"]
    assert export["complete"]
    assert export["pages"] == 0
    assert "0 pages" in krake.ok("status").out
    krake.ok("graph", "stats")
    assert "among the 0 crawled pages" in krake("show", "0").error()


def test_a_crawl_without_seeds_goes_through_all_stages(krake: Krake) -> None:
    for words in (
        ["inject", ""],
        ["inject", "# nothing but a comment\n\n"],
        ["crawl", "--iterations", "2"],
    ):
        krake.ok(*words)
    assert krake.status()["totals"]["fetched"] == 0
    for segment in (krake.directory / "dfs" / "crawl").glob("[0-9]*/node-a"):
        assert {path.name for path in segment.iterdir()} == {
            "manifest.json",
            "iteration.json",
            "scope",
        }
    nothing_is_valid(krake)


def test_a_crawl_that_was_never_injected_goes_through_all_stages(krake: Krake) -> None:
    krake.ok("crawl")
    nothing_is_valid(krake)


def test_an_export_of_a_crawl_that_never_began_is_empty_or_refused(krake: Krake) -> None:
    """Without a label it has no name; with one it is an export of nothing."""
    assert "crawl first" in krake("export").error()
    nothing_is_valid(krake)


def test_a_crawl_where_every_page_is_gone_or_denied_goes_through_all_stages(
    krake: Krake, serving: Serving, tmp_path: Path
) -> None:
    denied = tmp_path / "denied"
    denied.mkdir()
    (denied / "robots.txt").write_text("User-agent: *\nDisallow: /\n")
    (denied / "page.html").write_text("<a href=other.html>never seen</a>")
    with FileServing(denied, address(190)) as files:
        krake.ok(
            "inject",
            "\n".join(
                [serving.url(0, "/none/1"), serving.url(0, "/none/2"), files.url("/page.html")]
            ),
        )
        krake.ok("crawl", "--iterations", "2")
    assert krake.status()["totals"]["outcomes"] == {"gone": 2, "robots_denied": 1}
    nothing_is_valid(krake)
