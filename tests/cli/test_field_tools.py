"""`krake graph export` and `krake commoncrawl` as a user types them."""

from __future__ import annotations

from pathlib import Path

from demo import Serving
from tests.cli.conftest import Krake


def test_files_for_other_programs_of_a_crawl(
    krake: Krake, serving: Serving, tmp_path: Path
) -> None:
    krake.configure()
    krake.ok("inject", "\n".join(serving.seeds))
    krake.ok("crawl", "--iterations", "2")
    krake.ok("export", "--label", "x")
    assert (
        "run `krake graph link`"
        in krake("graph", "export", "--format", "bv", str(tmp_path / "web")).error()
    )
    krake.ok("graph", "link")
    for form, count in (("commoncrawl", 3), ("bv", 6)):
        found = krake.ok("graph", "export", "--format", form, str(tmp_path / "web"), "--json").json
        assert (found["graph"], len(found["files"])) == ("pages", count)
        assert all(Path(file).name.startswith("web-page") for file in found["files"])
        assert (
            "is there already"
            in krake("graph", "export", "--format", form, str(tmp_path / "web")).error()
        )
    krake.ok(
        "graph",
        "export",
        "--format",
        "commoncrawl",
        "--graph",
        "domains",
        "--of",
        "links",
        str(tmp_path / "all"),
    )
    assert (
        "goes with --format"
        in krake("graph", "export", "--of", "links", str(tmp_path / "no")).error()
    )
    for what in ("wet", "index"):
        made = krake.ok(
            "commoncrawl", what, "--label", "y", "--folders", "newest", "1", "--json"
        ).json
        assert (made["path"].rpartition("-")[2], made["complete_already"]) == ("y", False)
        assert (
            "complete_already"
            in krake.ok("commoncrawl", what, "--label", "y", "--folders", "newest", "1").out
        )
        assert "made of other segments" in krake("commoncrawl", what, "--label", "y").error()
    assert "clean" in krake.ok("settle").out + krake.ok("fsck").out
