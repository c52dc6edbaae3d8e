"""What operators do to a crawl, an action each: `ACTIONS` says how often each is drawn.

An action returns False if there was nothing to do it to. What it makes the crawler fetch again is allowed first.
"""

from __future__ import annotations

import json
import random
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from crawl_lib.errors import UrlError
from crawl_lib.urls import canonicalize
from demo import SynthWeb
from tests.scopes import scope_of
from tests.torture.operated import AbandonedError, FindingError, Operated

NODES = ("node-0", "node-1", "node-2")
SERVERS = tuple(f"keys/{number}.sqlite" for number in range(4))
BESIDE = (
    "crawl",
    "settle_all",
    "sweep",
    "repair_keys",
    "export",
    "forget",
    "rebuild",
    "repair_queue",
    "inject",
)
"""What an operator may do while a command that was killed has yet to be run again."""
ABANDON = 0.2
STALE = ".*_key_unknown|key_without_url|page_key_behind|replica_.*"
NOT_SETTLED = "may change once all of them are settled"


class Acts:
    """The actions on one crawl. `truth`: all URLs of its web; `archives`: WARC files of another crawl of it."""

    def __init__(
        self, crawl: Operated, web: SynthWeb, truth: set[str], archives: list[str]
    ) -> None:
        self.it, self.web, self.truth, self.archives = crawl, web, sorted(truth), archives
        self.lost: set[str] = set()
        self.by_hand_urls: set[str] = set()
        self.copies: dict[str, Path] = {}
        self.key_copy: Path | None = None
        crawl.between = self._between

    def do(self, name: str, rng: random.Random) -> bool:
        """Do one action to its end, or give it up and clear up; False if there was nothing to do."""
        it = self.it
        it.rng, it.abandon = rng, ABANDON
        it.say(name)
        before = json.loads(json.dumps(it.mapping))
        try:
            return getattr(self, name)() is not False
        except AbandonedError as error:
            it.abandon = 0.0
            it.say(f"  abandoned: {error}")
            self._clear_up(list(error.words), before)
            return True

    def _between(self) -> None:
        name = self.it.rng.choice(BESIDE)
        self.it.say(f"  in between: {name}")
        getattr(self, name)()

    def _clear_up(self, words: list[str], before: dict[str, Any]) -> None:
        """What has to be done some day is done now; what is wrong is repaired as `fsck` says."""
        it = self.it
        if it.mapping["servers"] != before["servers"] and words[0] == "nodes":
            self._node_again(words, before)
        elif it.mapping["key_storage"] != before["key_storage"]:
            it.krake("keys", "reshard", "--from", str(it.home / "old.yml"))
        elif words[0] in {"export", "link", "finalize"}:
            shutil.rmtree(it.home / "dfs/export" / words[-1], ignore_errors=True)
        it.mapping["crawl"] = {}
        it.write()
        it.follow(".*")

    def _node_again(self, words: list[str], before: dict[str, Any]) -> None:
        it = self.it
        if words[1:] == ["retire", words[-1]] and it.rng.random() < 0.5:
            it.mapping = before
            it.write()
            it.krake("settle")
        else:
            it.krake(*words)

    # Crawling

    def crawl(self) -> None:
        rng = self.it.rng
        words = ("crawl", "--run-id", self.it.run_id(), "--iterations", str(rng.choice((1, 1, 2))))
        words += ("--batch-size", str(rng.randint(2, 14)))
        self._after_changes(*words)

    def _after_changes(self, *words: str) -> None:
        """A command that may say what has to come first since the list of nodes was changed; that is done then."""
        done = self.it.krake(*words, refused=f"{NOT_SETTLED}|is not in servers: put it back")
        if done.code and not self.it.is_between:
            if left := re.search(r"`krake nodes retire (\S+)`", done.err):
                self.it.krake("nodes", "retire", left[1])
            self.it.krake("settle")
            self.it.krake(*words)

    def settle_all(self) -> None:
        self.it.krake("settle")

    def inject(self) -> None:
        self._after_changes(
            "inject", "\n".join(self.it.rng.sample(self.truth, 3)), "--run-id", self.it.run_id()
        )

    def limit(self) -> None:
        """`crawl.max_pages` for a while."""
        self.it.look()
        self.it.mapping["crawl"] = {
            "max_pages": max(1, self.it.total().total() + self.it.rng.randint(0, 6))
        }
        self.it.write()
        self.crawl()
        self.it.mapping["crawl"] = {}
        self.it.write()

    def node_away(self) -> bool | None:
        """A node cannot work, and the others go on."""
        it, node = self.it, self._some_node()
        if node is None or len(it.nodes) < 2 or self._nodes_change():
            return False
        away = it.home / f"away-{node}"
        shutil.move(it.queue(node), away)
        it.queue(node).write_text("no directory")
        it.mapping["crawl"] = {"min_nodes": 0.3}
        it.write()
        try:
            self.crawl()
        finally:
            it.queue(node).unlink()
            shutil.move(away, it.queue(node))
            it.mapping["crawl"] = {}
            it.write()
        return None

    def _nodes_change(self) -> bool:
        """Whether the next crawl has other nodes, or another routing, than the newest: all have to settle first."""
        folders = self.it.folders()
        newest = (
            json.loads((folders[-1] / "iteration.json").read_bytes())
            if folders
            else {"nodes": [], "routing": ""}
        )
        now = sorted(self.it.nodes), self.it.mapping["frontier"]["routing"]
        return (sorted(newest["nodes"]), newest["routing"]) != now

    def by_hand(self) -> bool | None:
        """Lines are put into a queue, one of them no URL; one that waits elsewhere may be twice in a batch.

        Lines that are processed go, since the `state` of people begins with 0.
        """
        it, node = self.it, self._some_node()
        queue = it.queue(node) if node else it.home
        if (
            any((queue / name).exists() for name in ("move", "take", "intake"))
            or not (queue / "state").exists()
        ):
            return False
        urls = it.rng.sample(self.truth, it.rng.randint(1, 5))
        self.by_hand_urls.update(urls)
        it.allow(urls)()
        it.usual = "row_repeated"
        processed, *totals = map(int, (queue / "state").read_text().split())
        first, path = queue / "0", queue / str(len(totals) - 1)
        first.write_bytes(b"".join(first.read_bytes().splitlines(keepends=True)[processed:]))
        totals[0] -= processed
        unended = path.read_bytes()[-1:] not in (b"", b"\n")  # what a repair kept of a damaged file
        with path.open("a") as file:
            file.write("\n" * unended + "".join(f"{line}\n" for line in [*urls, "no url"]))
        totals[-1] += len(urls) + 1
        (queue / "state").write_text("".join(f"{number}\n" for number in (0, *totals)))
        it.say(f"  {len(urls)} URLs into the queue of {node}")
        self.crawl()
        return None

    def routing(self) -> None:
        it = self.it
        it.krake("settle")
        it.mapping["frontier"] = {
            "routing": "local" if it.mapping["frontier"]["routing"] == "host" else "host"
        }
        it.counts_fetches = False
        it.write()
        self.crawl()

    def export(self) -> None:
        name = f"export-{self.it.run_id()}"
        for words in (
            ("export", "--label", name),
            ("graph", "link", "--export", name),
            ("graph", "finalize", "--export", name),
        ):
            if self.it.krake(
                *words, refused="other segments|have changed|no page|no iteration"
            ).code:
                shutil.rmtree(self.it.home / "dfs/export" / name, ignore_errors=True)
                return

    # Pages and segments

    def forget(self) -> None:
        urls = self.it.rng.sample(self.truth, self.it.rng.randint(1, 5))
        self.it.krake("forget", *urls, "--yes", each_time=self.it.allow(urls))
        self.it.krake("inject", "\n".join(urls), "--run-id", self.it.run_id())

    def forget_host(self) -> None:
        host = self.it.rng.choice(self.web.addresses())
        urls = [url for url in self.truth if f"//{host}:" in url]
        self.it.krake(
            "forget", host, "--yes", refused="no page of a host", each_time=self.it.allow(urls)
        )

    def forget_old(self) -> None:
        self.it.krake("forget", "--older-than", "0", "--yes", each_time=self.it.allow(self.truth))

    def drop(self) -> bool | None:
        self.it.look()
        if not self.it.live:
            return False
        urls = sorted(self.it.live)
        some = self.it.rng.sample(urls, min(3, len(urls)))
        self.it.krake("segment", "drop", *some, "--yes", refused="not found")
        return None

    def compact(self) -> None:
        self.it.krake("segment", "compact", "--yes")

    def salvage(self) -> bool | None:
        it = self.it
        segments = it.segments()
        if not segments:
            return False
        it.look()
        segment = it.rng.choice(segments)
        name = f"{segment.parent.name}/{segment.name}"
        self._damage(
            it.rng.choice(sorted(path for path in segment.iterdir() if "dropped" not in path.name))
        )
        it.krake("fsck", "--repair", each_time=it.allow([*it.pages.get(name, ()), *it.deleted]))
        return None

    def delete_folder(self) -> bool | None:
        """An iteration that all nodes have taken in is deleted by hand."""
        it = self.it
        it.krake("settle")
        it.look()
        if not it.folders():
            return False
        folder = it.rng.choice(it.folders())
        it.deleted.update(
            url
            for name, urls in it.pages.items()
            if name.startswith(f"{folder.name}/")
            for url in urls
        )
        shutil.rmtree(folder)
        it.say(f"  deleted {folder.name}")
        return None

    def folder_damage(self) -> bool | None:
        it = self.it
        if not it.folders():
            return False
        folder = it.rng.choice(it.folders())
        name = it.rng.choice(("iteration.json", "scope", "index.json"))
        path = scope_of(folder) if name == "scope" else folder / name
        if not path.exists() or (name != "index.json" and not [*folder.glob("*/iteration.json")]):
            return False  # no segment has a copy yet
        self._damage(path)
        it.krake("fsck", "--repair", each_time=it.allow(it.deleted))
        return None

    def sweep(self) -> None:
        self.it.krake("sweep")

    def import_archive(self) -> None:
        """Pages that wait are imported, and stay in their queue."""
        self.it.krake(
            "import", self.it.rng.choice(self.archives), each_time=self.it.allow(self.truth)
        )

    # Keys

    def reshard(self) -> None:
        it = self.it
        self.key_copy = None
        shutil.copy(it.file, it.home / "old.yml")
        before = it.mapping["key_storage"]["servers"]
        servers = it.rng.sample(SERVERS, it.rng.randint(1, 3))
        for server in set(SERVERS) - set(before):
            (it.home / server).unlink(missing_ok=True)
        it.mapping["key_storage"] = {
            "servers": servers,
            "replication": it.rng.randint(1, min(2, len(servers))),
        }
        it.write()
        it.krake("keys", "reshard", "--from", str(it.home / "old.yml"))
        it.krake("keys", "check")

    def rebuild(self) -> None:
        self.it.krake("fsck", "--repair", each_time=self.it.allow(self.it.deleted))

    def rebuild_drop(self) -> bool | None:
        if self.it.deleted:
            return False  # what nothing holds is found again only while segments are there
        self.it.krake("fsck", "--repair")
        if self.it.rng.random() < 0.3:
            self.it.krake("settle", "--all-again")
        return None

    def repair_keys(self) -> None:
        self.it.krake("fsck", "--repair", each_time=self.it.allow(self.it.deleted))

    def server_emptied(self) -> bool | None:
        path = self.it.home / self.it.rng.choice(self.it.mapping["key_storage"]["servers"])
        if not path.exists():
            return False
        path.unlink()
        self._fill_keys()
        return None

    def copy_keys(self) -> None:
        self.key_copy = self.it.home / "key-copy"
        shutil.rmtree(self.key_copy, ignore_errors=True)
        self.key_copy.mkdir()
        for server in self.it.mapping["key_storage"]["servers"]:
            if (self.it.home / server).exists():
                shutil.copy(self.it.home / server, self.key_copy)

    def server_stale(self) -> bool | None:
        copies = sorted(self.key_copy.iterdir()) if self.key_copy else []
        if not copies:
            return False
        path = self.it.rng.choice(copies)
        shutil.copy(path, self.it.home / "keys" / path.name)
        self.it.say(f"  an older {path.name}")
        self._fill_keys()
        return None

    def _fill_keys(self) -> None:
        self.rebuild()
        self.it.follow(STALE)

    # Queues

    def repair_queue(self) -> bool | None:
        node = self._some_node()
        if node is None:
            return False
        self.it.krake("fsck", "--repair", each_time=self.it.allow(self.it.deleted))
        return None

    def queue_damage(self) -> bool | None:
        node = self._some_node()
        if node is None or self.it.deleted:
            return False
        files = sorted(
            path
            for path in self.it.queue(node).rglob("*")
            if path.is_file() and path.name != "lock"
        )
        self._damage(self.it.rng.choice(files))
        self.it.krake(
            "fsck", "--repair", refused="nodes restart", each_time=self.it.allow(self.it.deleted)
        )
        self.it.follow(".*")
        return None

    def queue_lost(self) -> bool | None:
        node = self._some_node()
        if node is None or self.it.deleted:
            return False
        shutil.rmtree(self.it.queue(node))
        if any(found["name"] == "queue_missing" for found in self.it.fsck()):
            self._begin_again(node)
        return None

    def copy_queue(self) -> bool | None:
        node = self._some_node()
        if node is None:
            return False
        self.copies[node] = self.it.home / f"copy-of-{node}"
        shutil.rmtree(self.copies[node], ignore_errors=True)
        shutil.copytree(self.it.queue(node), self.copies[node])
        return None

    def older_copy(self) -> bool | None:
        """A copy of a node's directory is put back; if that is seen, the queue begins again."""
        nodes = [node for node in self.copies if node in self.it.nodes]
        if not nodes or self.it.deleted:
            return False
        node = self.it.rng.choice(nodes)
        shutil.rmtree(self.it.queue(node), ignore_errors=True)
        shutil.copytree(self.copies[node], self.it.queue(node))
        found = self.it.fsck()
        if (
            any(one["name"] == "queue_rolled_back" for one in found)
            and not self.it.once("settle").code
        ):
            raise FindingError("an older copy was continued")
        if found:
            shutil.rmtree(self.it.queue(node))
            self._begin_again(node)
        return None

    def _begin_again(self, node: str) -> None:
        # One that was killed, and finished by a repair in between, has nothing left to begin.
        self.it.krake(
            "nodes", "restart", node, refused="holds a queue, and this begins an empty one"
        )
        self.it.krake("fsck", "--repair")
        self.it.krake("settle")
        self.it.follow("leftover.*")

    # Nodes

    def retire(self) -> bool | None:
        it, node = self.it, self._some_node()
        if node is None or len(it.nodes) < 2:
            return False
        it.krake("settle")
        how = it.rng.choice(("here", "here", "--dir", "--lost")) if not it.deleted else "here"
        it.mapping["servers"] = [name for name in it.nodes if name != node]
        it.write()
        self.copies.pop(node, None)
        words = ["nodes", "retire", node]
        if how == "--dir":
            moved = it.home / f"moved-{node}-{it.run_id()}"
            shutil.move(it.queue(node), moved)
            words += ["--dir", str(moved)]
        elif how == "--lost":
            shutil.rmtree(it.queue(node))
            words += ["--lost", "--yes"]
        if how != "here":
            self.lost.add(node)
        if it.krake(*words, refused="before the others have settled").code and not it.is_between:
            it.krake("settle")  # a repair that came between two tries took a mark away
            it.krake(*words)
        if how == "--lost" and self.by_hand_urls:
            it.follow(
                f"key_without_url|{it.usual}"
            )  # what people put into that queue, no one has sent to it
        return None

    def add(self) -> bool | None:
        it = self.it
        out = [name for name in NODES if name not in it.nodes]
        if not out:
            return False
        node = it.rng.choice(out)
        it.krake("settle")
        it.mapping["servers"] = [*it.nodes, node]
        it.write()
        if node in self.lost or it.rng.random() < 0.3:
            shutil.rmtree(it.queue(node), ignore_errors=True)
        if node in self.lost:
            it.krake("nodes", "admit", node)
            self.lost.discard(node)
        self.crawl()
        return None

    def replace(self) -> bool | None:
        """A node leaves, and another one joins at once."""
        it, node = self.it, self._some_node()
        out = [name for name in NODES if name not in it.nodes and name not in self.lost]
        if node is None or not out:
            return False
        it.krake("settle")
        joins = it.rng.choice(out)
        it.mapping["servers"] = [joins if name == node else name for name in it.nodes]
        it.write()
        self.copies.pop(node, None)
        it.krake("nodes", "retire", node)
        return None

    def _some_node(self) -> str | None:
        """A node whose directory is there."""
        nodes = [node for node in self.it.nodes if (self.it.queue(node) / "state").exists()]
        return self.it.rng.choice(nodes) if nodes else None

    def _damage(self, path: Path) -> None:
        """Change a file, cut it, or delete it; other names of it keep what they show."""
        rng, data = self.it.rng, bytearray(path.read_bytes())
        how = rng.choice(("flip", "cut", "zero", "garbage", "delete"))
        self.it.say(f"  damage: {path}: {how}")
        path.unlink()
        if how == "delete":
            return
        at = rng.randrange(len(data)) if data else 0
        if how == "flip" and data:
            data[at] ^= 0x10
            if (
                path.name.isdigit()
            ):  # a line of a queue; changed, it may be a URL all the same, which no one can tell
                with suppress(UrlError):
                    self.it.made_up.add(canonicalize(_line_at(data, at)))
        elif how == "zero":
            data[at : at + 40] = bytes(len(data[at : at + 40]))
        path.write_bytes({"cut": data[:at], "garbage": b"\0garbage\xff" * 7}.get(how, data))


def _line_at(data: bytes | bytearray, at: int) -> str:
    """The line of a file in which a byte is."""
    return data[data.rfind(b"\n", 0, at) + 1 :].partition(b"\n")[0].decode("latin-1")


ACTIONS = {
    "crawl": 30,
    **dict.fromkeys(("forget", "retire", "add", "salvage", "reshard", "queue_damage", "export"), 6),
    **dict.fromkeys(
        (
            "drop",
            "server_emptied",
            "server_stale",
            "older_copy",
            "import_archive",
            "by_hand",
        ),
        5,
    ),
    **dict.fromkeys(
        ("copy_keys", "copy_queue", "inject", "queue_lost", "folder_damage", "settle_all"),
        4,
    ),
    **dict.fromkeys(
        ("rebuild", "rebuild_drop", "compact", "forget_host", "sweep", "node_away", "limit"), 3
    ),
    **dict.fromkeys(
        ("replace", "delete_folder", "forget_old", "routing", "repair_keys", "repair_queue"), 2
    ),
}
"""How often each action is drawn, in proportion."""
