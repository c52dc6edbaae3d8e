"""A server of a directory tree on a loopback address, in a process of its own, with a request log.

    with FileServing(Path("/some/tree"), "127.0.9.1") as site:
        site.url("/index.html")

`/dir/` answers with `/dir/index.html`, `/dir` redirects to `/dir/`; there is no robots.txt unless the tree has one.
"""

import argparse
import asyncio
import json
import mimetypes
from pathlib import Path
from urllib.parse import unquote

from demo import ServerProcess, Target
from demo.answers import Answer, make_answer
from demo.server import bind, serve

MISSING = make_answer(404, [("Content-Type", "text/html")], b"<p>404</p>")


def find_file(root: Path, path: str) -> Path | str | None:
    """What a URL's path names: a file, the text `redirect` for a directory without its slash, or None."""
    relative = unquote(path.partition("?")[0]).lstrip("/")
    found = root / relative
    if ".." in Path(relative).parts:
        return None
    if found.is_dir():
        if path.partition("?")[0].endswith("/"):
            return found / "index.html" if (found / "index.html").is_file() else None
        return "redirect"
    return found if found.is_file() else None


class FileAnswers:
    """Answers from the files below `root`; read once and kept."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.kept: dict[str, Answer] = {}

    def site(self, address: str) -> int:
        return 0

    def answer(self, target: Target, accepted: str) -> Answer:
        if target.path not in self.kept:
            self.kept[target.path] = self.read(target.path)
        return self.kept[target.path]

    def read(self, path: str) -> Answer:
        found = find_file(self.root, path)
        if found is None:
            return MISSING
        if found == "redirect":
            return make_answer(301, [("Location", path.partition("?")[0] + "/")], b"")
        mime = mimetypes.guess_type(found.name)[0] or "application/octet-stream"
        return make_answer(200, [("Content-Type", mime)], found.read_bytes())


class FileServing(ServerProcess):
    """Serves the tree `root` on `address` while its `with` block runs."""

    def __init__(self, root: Path, address: str) -> None:
        super().__init__(["tests.web.files", str(root), address], address)
        self.root = root
        self.address = address

    def url(self, path: str) -> str:
        return f"http://{self.address}:{self.port}{path}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    parser.add_argument("address")
    parser.add_argument("--until-eof", action="store_true")
    parser.add_argument("--log", type=Path)
    given = parser.parse_args()
    with given.log.open("a", encoding="utf-8") as log:
        asyncio.run(
            serve(
                FileAnswers(given.root),
                bind([given.address]),
                log=log,
                until_eof=given.until_eof,
                on_ready=lambda port: print(json.dumps({"port": port}), flush=True),
            )
        )


if __name__ == "__main__":
    main()
