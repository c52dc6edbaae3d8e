"""Which files a name may reach: what somebody who triggers a DAG may name, and what is refused to all."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from threading import Event
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crawl_lib.crawldir import CrawlDirectory
from crawl_lib.errors import InputError, KrakeError, StoppedError
from crawl_lib.seeds import Division
from crawl_lib.seeds import lines as seeds_module
from crawl_lib.seeds.files import MAX_FILE_BYTES, find_files
from crawl_lib.seeds.inject import inject
from crawl_lib.seeds.lines import parse_seeds
from crawl_lib.stopping import Progress, Work
from crawl_lib.storage.local import LocalStorage

SECRET = "s3cret-word"
GOOD = "http://inside.test/"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`seeds` may be named; `outside` holds what must stay there, and links in `seeds` lead to it."""
    root = tmp_path_factory.mktemp("place")
    inside, outside = root / "seeds", root / "outside"
    (inside / "more").mkdir(parents=True)
    outside.mkdir()
    for folder in (inside, inside / "more"):
        (folder / "list").write_text(f"{GOOD}\n")
    for folder in (outside, root):
        (folder / "list").write_text(f"http://{SECRET}.test/\n{SECRET}\n")
    (root / "seeds-of-others").symlink_to(outside)
    (inside / "file-link").symlink_to(outside / "list")
    (inside / "folder-link").symlink_to(outside)
    (inside / "relative-link").symlink_to("../outside/list")
    (inside / "link-of-link").symlink_to("file-link")
    (inside / "own-link").symlink_to("more/list")
    (inside / "loop").symlink_to("loop")
    (inside / "linked").mkdir()
    (inside / "linked" / "a").symlink_to("../../outside/list")
    return root


def all_that_is_said(text: str, below: Path | None) -> tuple[list[str], str]:
    """The URLs that come out, and everything that a reader of results, errors and reports can see."""
    said = ""
    urls: list[str] = []
    try:
        seeds = parse_seeds(text, below=below)
        urls = [seed.url for seed in seeds]
        said = repr(seeds.report)
        seeds.require_some()
    except KrakeError as error:
        said += str(error)
    return urls, said


def outside_paths(root: Path) -> list[str]:
    target = str(root / "outside" / "list")
    other = str(root / "seeds-of-others" / "list")
    return [
        target,
        other,
        f"/{target}",
        f"/..{target}",
        f"{root}/seeds/../outside/list",
        f"{root}/seeds/more/../../outside/list",
        f"{root}/seeds/folder-link/list",
        f"{root}/seeds-of-others",
        str(root),
        "..",
        "../list",
        "../outside",
        "../outside/list",
        "./more/.././../outside/list",
        "file-link",
        "folder-link",
        "folder-link/list",
        "folder-link/../list",
        "relative-link",
        "link-of-link",
        "linked",
        "linked/a",
        f"/proc/self/root{target}",
        f"/proc/{os.getpid()}/root{target}",
        f"/proc/self/cwd/{os.path.relpath(target)}",
        f"file://{target}",
        f"file:{target}",
        quote(target, safe=""),
        target.replace("/", "%2f"),
        "%2e%2e/outside/list",
        "..%2foutside%2flist",
        "..\\outside\\list",
        f"~root/../{target}",
        f"~/{os.path.relpath(target, Path.home())}",
        f"{target}\0",
        f"seeds\0/../..{target}",
        f"{target}/",
        f"{target}/.",
        "/etc/shadow",
        "/etc/passwd",
        "/proc/self/environ",
        f"/proc/{os.getpid()}/environ",
        "/proc/self/fd/0",
        "/dev/stdin",
        "/dev/zero",
        "/dev/full",
        "loop",
        "no-such",
        "",
    ]


def test_no_spelling_leads_out_of_the_directory(place: Path) -> None:
    for text in outside_paths(place):
        urls, said = all_that_is_said(text, place / "seeds")
        assert urls == [], text
        assert SECRET not in said.replace(str(place), ""), text
        assert "root:" not in said, text


STEPS = [
    *(
        "..",
        ".",
        "",
        "seeds",
        "more",
        "outside",
        "list",
        "linked",
        "a",
        "file-link",
        "folder-link",
        "relative-link",
    ),
    *(
        "own-link",
        "loop",
        "seeds-of-others",
        "%2e%2e",
        "~",
        "proc",
        "self",
        "root",
        "cwd",
        "\udc80",
        "é",
        " ",
        "list\n",
    ),
]


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    start=st.sampled_from(
        ["", "/", "//", "ROOT/", "ROOT/seeds/", "/proc/self/rootROOT/", "file://ROOT/", "file:"]
    ),
    steps=st.lists(st.sampled_from(STEPS), max_size=7),
)
def test_no_drawn_path_leads_out_of_the_directory(
    place: Path, start: str, steps: list[str]
) -> None:
    text = start.replace("ROOT", str(place)) + "/".join(steps)
    urls, said = all_that_is_said(text, place / "seeds")
    assert set(urls) <= {GOOD}
    assert SECRET not in said


@pytest.mark.parametrize(
    "text", ["list", "./list", "more/list", "more", "more/../list", "own-link"]
)
def test_what_lies_in_it_is_read_by_a_relative_path_or_an_absolute_one(
    place: Path, text: str
) -> None:
    for spelled in (text, f"{place}/seeds/{text}"):
        assert all_that_is_said(spelled, place / "seeds")[0] == [GOOD]
    link = place / "link-to-seeds"
    link.unlink(missing_ok=True)
    link.symlink_to("seeds")
    assert all_that_is_said(text, link)[0] == [GOOD], "the directory itself may be a link"


def test_what_is_not_there_is_told_what_is(place: Path) -> None:
    (place / "seeds" / ".hidden").write_text("")
    names = sorted(path.name for path in (place / "seeds").iterdir() if path.name != ".hidden")
    with pytest.raises(InputError) as caught:
        parse_seeds("lsit", below=place / "seeds")
    has = f"inject.directory ({place / 'seeds'}, which has {', '.join(names[:10])}: {len(names)} in all)"
    neither = "is neither a URL (write http:// or https:// before it) nor a file in"
    assert str(caught.value) == f"seeds: 'lsit' {neither} {has}"
    with pytest.raises(InputError, match=r"inject\.directory \(.*none, which is empty\)"):
        parse_seeds("list", below=place / "none")


def test_an_outside_path_tells_nothing_of_what_is_there(place: Path) -> None:
    def told(path: str) -> str:
        return all_that_is_said(path, place / "seeds")[1].replace(path, "PATH")

    assert (
        told(str(place / "outside" / "list"))
        == told(str(place / "outside" / "none"))
        == told("/etc/shadow")
    )


def test_a_way_that_leaves_the_directory_and_comes_back_tells_nothing(place: Path) -> None:
    """Else one could ask for each path of the machine whether it is a link, and how deep its target is."""
    up = "../" * len(place.parts)
    for link in ("/proc/self", f"{place}/seeds-of-others", "/no/such", f"{place}/outside"):
        depth = "../" * (link.count("/"))
        for way in (f"{link}/{depth}{place}/seeds/list", f"{up}{link}/{depth}{place}/seeds/list"):
            urls, said = all_that_is_said(way, place / "seeds")
            assert urls == [], way
            assert "does not lie in inject.directory" in said


def test_the_user_of_the_command_line_reads_what_he_may(place: Path) -> None:
    for text in (
        str(place / "outside" / "list"),
        str(place / "seeds" / "file-link"),
        str(place / "seeds-of-others"),
    ):
        urls, said = all_that_is_said(text, None)
        assert urls == [f"http://{SECRET}.test/"]
        assert "list:2: no http" in said or "file-link:2: no http" in said
        assert SECRET not in said


def test_what_was_judged_is_what_is_opened(tmp_path: Path) -> None:
    """A link that takes the place of a file, or of a folder on the way, after the path was looked at."""
    inside, outside = tmp_path / "seeds", tmp_path / "outside"
    (inside / "folder").mkdir(parents=True)
    outside.mkdir()
    for file in (inside / "list", inside / "folder" / "list"):
        file.write_text(GOOD)
    (outside / "list").write_text(f"http://{SECRET}.test/")
    found = [find_files(text, inside) for text in ("list", "folder/list")]
    (inside / "list").unlink()
    (inside / "list").symlink_to(outside / "list")
    (inside / "folder").rename(inside / "old")
    (inside / "folder").symlink_to(outside)
    for files in found:
        assert files
        with pytest.raises(InputError, match=r"is not a regular file|Not a directory"):
            files[0].open()


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def make_device(path: Path) -> None:
    try:
        os.mknod(path, 0o600 | 0o020000, os.makedev(1, 5))  # as /dev/zero
    except PermissionError:
        path.symlink_to("/dev/zero")


@pytest.mark.parametrize("in_folder", [False, True])
@pytest.mark.parametrize("below", [False, True])
@pytest.mark.parametrize("make", [os.mkfifo, make_socket, make_device])
def test_what_is_no_regular_file_is_refused_at_once(
    tmp_path: Path, make: Callable[[Path], None], below: bool, in_folder: bool
) -> None:
    """Nothing waits for a writer, and nothing reads without end."""
    folder = tmp_path / "s"
    folder.mkdir()
    make(folder / "odd")
    with pytest.raises(
        InputError, match=r"odd: (is not a regular file|does not lie in inject\.directory)"
    ):
        list(
            parse_seeds(
                str(folder if in_folder else folder / "odd"), below=folder if below else None
            )
        )


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/random", "/dev/full", "/dev/null"])
def test_devices_are_refused_for_everybody(path: str) -> None:
    with pytest.raises(InputError, match="is not a regular file"):
        list(parse_seeds(path))


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    with (
        os.fdopen(reading),
        os.fdopen(writing, "w"),
        pytest.raises(InputError, match="is not a regular file"),
    ):
        list(parse_seeds(f"/dev/fd/{reading}"))


def test_a_file_beyond_all_lists_is_refused_before_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "seeds"
    with file.open("wb") as sparse:
        sparse.truncate(MAX_FILE_BYTES + 1)
    with pytest.raises(InputError, match="divide it"):
        list(parse_seeds(str(file)))


class Endless:
    """A file that says nothing of its size; one line of zeros. `stop` is set by the third piece."""

    def __init__(self, stop: Event | None) -> None:
        self.pieces, self.stop = 0, stop

    def readline(self, size: int) -> bytes:
        self.pieces += 1
        if self.stop and self.pieces == 3:
            self.stop.set()
        return bytes(size)


def test_a_line_without_end_is_stopped_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = Event()
    endless, progress = Endless(stop), Progress(Work(stop=stop), "x", 0, "bytes")
    with pytest.raises(StoppedError):
        list(seeds_module._bounded_lines(endless, "x", progress))  # type: ignore[arg-type]
    assert endless.pieces == 3
    monkeypatch.setattr("crawl_lib.seeds.files.MAX_FILE_BYTES", 1 << 20)
    endless = Endless(None)
    with pytest.raises(InputError, match="has more than 1048576 bytes"):
        list(seeds_module._bounded_lines(endless, "x", Progress(Work(), "x", 0, "bytes")))  # type: ignore[arg-type]
    assert endless.pieces <= 17


LINES = st.lists(
    st.one_of(
        st.just(SECRET),
        st.just(f"root:{SECRET}:19000:0:99999:7:::"),
        st.just(f"PASSWORD={SECRET}\0"),
        st.just(f"ftp://{SECRET}.test/"),
        st.just(f"http://{SECRET} {SECRET}/"),
        st.just(f"http://a.test/\t{SECRET}"),
        st.just(f"http://a.test/{SECRET}\t{SECRET}"),
        st.just(f"http://{SECRET}.test:99999/"),
        st.just(f"http://a.test/{SECRET}.pdf" + "x" * 3000),
        st.just(SECRET + "y" * 70000),
        st.just(f"{SECRET}\udcff"),
        st.just(GOOD),
    ),
    max_size=8,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=LINES, below=st.booleans())
def test_no_line_of_a_file_is_told_only_its_number(
    lines: list[str], below: bool, tmp_path: Path
) -> None:
    """In the error, the result, the manifest: nowhere."""
    folder = tmp_path / "seeds"
    folder.mkdir(exist_ok=True)
    (folder / "list").write_bytes("\n".join(lines).encode("utf-8", "surrogateescape"))
    said, root = "", Path(tempfile.mkdtemp(dir=tmp_path))
    try:
        seeds = parse_seeds(str(folder / "list"), below=folder if below else None)
        manifest = inject(
            CrawlDirectory(LocalStorage.open(root), "crawl"), "run", seeds, Division(["n"], "host")
        )
        said = repr(manifest)
        assert sum(manifest.said["seeds"]["rejected"].values()) == sum(
            line != GOOD for line in lines
        )
        for path in root.rglob("manifest.json"):
            said += path.read_text()
    except InputError as error:
        said += repr(error) + repr(error.__cause__) + repr(error.__context__)
    assert SECRET not in said
