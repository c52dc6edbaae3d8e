"""What `krake fsck` finds in a crawl half done, what the crawl has, and ways to damage it that tests share."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from crawl_lib.config import load_config
from crawl_lib.frontier import Queue
from crawl_lib.keys import KEY_BYTES, KeyServer, open_key_store
from crawl_lib.keys.intervals import side_by_side
from tests.cli.conftest import Krake
from tests.e2e.crawl import Result
from tests.frontier.helpers import to_be_adopted

REPAIR = ("fsck", "--repair")
EXPORT = (
    ("export", "--label", "e"),
    ("graph", "link", "--export", "e"),
    ("graph", "finalize", "--export", "e"),
)


def node_a(directory: Path) -> Path:
    """Give the directory of the node's queue."""
    return directory / "queue" / "node-a"


def newest_folder(directory: Path) -> Path:
    """Give the folder of the newest iteration."""
    return max(directory.glob("dfs/crawl/1*"))


def found(krake: Krake, *words: str) -> Counter[str]:
    """Count the names of findings, and check the form of all findings."""
    done = krake("fsck", "--json", *words)
    report = done.json
    assert done.code == (0 if report["clean"] else 1)
    assert report["clean"] == all(one["severity"] == "note" for one in report["findings"])
    for one in report["findings"]:
        assert one["where"]
        assert one["problem"]
        assert one["repair"]
    return Counter(one["name"] for one in report["findings"] if one["severity"] != "note")


def finding(krake: Krake, name: str, *words: str) -> dict[str, Any]:
    """Give the one finding of a name."""
    report = krake("fsck", "--json", *words).json
    [one] = [one for one in report["findings"] if one["name"] == name]
    return dict(one)


def waiting(krake: Krake) -> Counter[str]:
    """Count the URLs in the queue."""
    return Counter(one.url for one in Queue(node_a(krake.directory), "node-a"))


def visited(krake: Krake) -> Counter[str]:
    """Count the captures of each URL."""
    return Result(load_config(str(krake.file))).visited()


def all_keys(servers: Sequence[KeyServer]) -> dict[bytes, int]:
    """Give every key of these servers with its highest state."""
    scans = [server.scan(bytes(KEY_BYTES), b"\xff" * KEY_BYTES) for server in servers]
    return {key: int(max(states.values())) for key, states in side_by_side(scans)}


def keys_of(krake: Krake) -> dict[bytes, int]:
    """Give all keys of the key tables with their states."""
    with open_key_store(load_config(str(krake.file)).key_storage) as store:
        return all_keys(store.servers)


def carry_out(krake: Krake, words: tuple[str, ...]) -> None:
    """Run a command, or delete what follows "rm"; NEWEST is the newest iteration's folder."""
    if words[0] != "rm":
        krake.ok(*words)
        return
    if words[1] == "NEWEST":
        shutil.rmtree(newest_folder(krake.directory))
        return
    for path in krake.directory.glob(words[1]):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def snapshot(directory: Path) -> dict[Path, bytes]:
    """Read all files but locks and what a data base keeps next to its file while it is open."""
    return {
        path: path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and not re.search(r"(^|/)lock$|\.sqlite-(wal|shm)$", str(path))
    }


def into_queue(name: str, data: bytes) -> Callable[[Path], object]:
    """Damage a crawl: put these bytes into a file of the queue."""
    return lambda directory: (node_a(directory) / name).write_bytes(data)


def sql(server: int, statement: str) -> Callable[[Path], object]:
    """Damage a crawl: run a statement on one key server."""

    def damage(directory: Path) -> None:
        with closing(sqlite3.connect(directory / "keys" / f"{server}.sqlite")) as base:
            base.execute(statement)
            base.commit()

    return damage


def both(statement: str) -> Callable[[Path], object]:
    """Damage a crawl: run a statement on both key servers."""
    return lambda directory: [sql(server, statement)(directory) for server in (0, 1)]


def another_url(path: Path) -> None:
    """Change a letter of the last URL, which is canonical all the same."""
    data = path.read_bytes()
    at = data.rindex(b"http://")
    end = min(place for place in (data.find(b"\n", at), data.find(b"\t", at)) if place > 0)
    letter = max(place for place in range(at, end) if data[place : place + 1].isalpha())
    path.write_bytes(data[:letter] + data[letter : letter + 1].swapcase() + data[letter + 1 :])


def lose_a_url(krake: Krake, node: str = "node-a") -> str:
    """Take the last URL out of a queue, and repair `state`, as the fixed format lets people do."""
    path = krake.directory / "queue" / node
    numbers = (path / "state").read_bytes().split()
    last = path / str(len(numbers) - 2)
    *lines, url = last.read_bytes().splitlines(keepends=True)
    (path / "state").write_bytes(b"\n".join([*numbers[:-1], b"%d" % len(lines)]) + b"\n")
    last.write_bytes(b"".join(lines))
    to_be_adopted(path)
    return url.decode().strip()


def findings(krake: Krake) -> dict[str, dict[str, Any]]:
    """Give the findings of a fast check by their names."""
    return {one["name"]: one for one in krake("fsck", "--fast", "--json").json["findings"]}
