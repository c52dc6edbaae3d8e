"""The compiled scanner: how it is made, what is said where it is missing, and what it was made from."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from html.entities import html5
from pathlib import Path
from random import Random

import pytest

from crawl_lib.errors import SetupError
from crawl_lib.parse import scan
from crawl_lib.parse.native import compile as compiling
from tests.parse.links import columns

ROOT = Path(__file__).resolve().parents[2]


def test_every_reference_is_read_in_texts_and_in_attributes() -> None:
    names = sorted(html5)
    page = "".join(f"<a href='?&{name}'>&{name} x</a>" for name in names)
    found = columns(scan.scan(page.encode(), b"", 10_000, 100).links)
    texts = [" ".join(f"{html5[name]} x".split()) for name in names]
    assert found.anchors == texts
    assert found.hrefs == [f"?{html5[name]}".strip() for name in names]


def test_a_library_that_is_missing_damaged_or_foreign_names_make_setup(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.so"
    damaged.write_bytes(b"no library")
    for path in (tmp_path / "missing.so", damaged):
        with pytest.raises(SetupError, match="make setup"):
            scan.load_native(path)


def test_without_the_library_krake_says_what_to_do_when_it_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scan, "_failure", "Run `make setup`")
    with pytest.raises(SetupError, match="make setup"):
        scan.scan(b"", b"", 1, 1)
    with pytest.raises(SetupError, match="make setup"):
        scan.require_scanner()


def test_memory_that_ran_out_is_an_error_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def krake_links(self, *arguments: object) -> int:
            return -1

    monkeypatch.setattr(scan, "_library", Full())
    with pytest.raises(MemoryError):
        scan.scan(b"", b"", 1, 1)


@pytest.mark.parametrize("seed", range(20))
def test_a_meta_that_may_name_a_charset_is_found(seed: int) -> None:
    rng, reach = Random(seed), 4096
    words = [
        b"<meta ",
        b"<MeTa",
        b"<",
        b"<met",
        b"charset",
        b"CharSet",
        b"charse",
        b" " * 2000,
        b"x" * reach,
    ]
    for _ in range(100):
        page, start = b"".join(rng.choices(words, k=rng.randrange(8))), rng.randrange(20)
        metas = [
            found.end() for found in re.finditer(rb"(?i)<(?=meta)", page) if found.start() >= start
        ]
        places = [found.start() for found in re.finditer(rb"(?i)charset", page)]
        expected = any(0 <= place - meta < reach for meta in metas for place in places)
        assert scan.may_name_charset(page, start) is expected


def test_looking_for_a_charset_reads_no_byte_twice() -> None:
    def cost(page: bytes) -> float:
        began = time.process_time()
        assert not scan.may_name_charset(page, 0)
        return time.process_time() - began

    size = 1 << 20
    hostile = min(cost(b"<meta" * (size // 5)) for _ in range(5))
    assert hostile < 20 * min(
        cost(b"<meta" + b" " * 4091 + b"<p> " * (size // 4 - 1024)) for _ in range(5)
    )


def test_a_library_of_other_sources_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "sources_digest", lambda: compiling.sources_digest() + 1)
    with pytest.raises(SetupError, match="other sources"):
        scan.load_native()


def test_any_change_of_a_source_makes_a_library_one_of_other_sources(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """After a `git pull` without `make setup` no number has to be counted up."""
    for source in compiling.HERE.glob("*.[ch]"):
        shutil.copy(source, tmp_path)
    monkeypatch.setattr(compiling, "HERE", tmp_path)
    scan.load_native()
    for source in sorted(tmp_path.iterdir()):
        before = source.read_bytes()
        source.write_bytes(before + b"\n")
        with pytest.raises(SetupError, match="other sources"):
            scan.load_native()
        source.write_bytes(before)
    scan.load_native()


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    script = [sys.executable, str(Path(compiling.__file__)), *arguments]
    return subprocess.run(
        script, capture_output=True, text=True, env={"PATH": "/nowhere", **environment}
    )


def test_without_any_compiler_one_line_says_what_to_do(tmp_path: Path) -> None:
    """No compiler, and none that can be downloaded: what was compiled before is not touched."""
    before = compiling.LIBRARY.stat().st_mtime_ns
    requirements = tmp_path / "nothing.lock"
    requirements.write_text(
        "krake-has-no-such-compiler==1 --hash=sha256:" + "0" * 64 + "\n--no-index\n"
    )
    done = run(str(requirements), CC="/nowhere/cc")
    assert done.returncode == 1
    assert "No compiler `/nowhere/cc` here: one is downloaded" in done.stderr
    assert done.stderr.splitlines()[-1].endswith("install gcc, then run the same command again")
    assert compiling.LIBRARY.stat().st_mtime_ns == before


def test_make_compiles_again_when_a_source_is_newer() -> None:
    source = Path(compiling.__file__).with_name("links.c")
    command = ["make", "--question", f"--what-if={source.relative_to(ROOT)}", "setup"]
    env = {
        name: value for name, value in os.environ.items() if not name.startswith("MAKE")
    }  # of `make test`
    assert subprocess.run(command, cwd=ROOT, env=env, capture_output=True).returncode == 1
    dry = subprocess.run(
        ["make", "--dry-run", command[2], "setup"],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
    )
    assert "compile.py requirements.compiler.lock" in dry.stdout
