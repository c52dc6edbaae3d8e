"""As much of OpenSearch as a push asks for, in this process: indexes, aliases, notes, `_bulk`, counts.

It keeps what the real server was seen to do: `require_alias`, external versions that deletions keep, changes of aliases
that are done whole or not at all. `tests/cluster/test_opensearch.py` runs the same pushes on the real one.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatch
from http.server import ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from tests.serving import Answering, running

Answer = tuple[int, dict[str, Any]]
Fault = Callable[["Request"], Answer | bytes | None]
"""What is answered in place of the server: an answer, the bytes of a whole response, or b"" for a broken connection."""


@dataclass(frozen=True)
class Request:
    """A request. `number`: counted from 1."""

    number: int
    method: str
    path: str
    body: bytes
    authorization: str | None


@dataclass
class Index:
    """An index. `versions`: of documents and of deleted ones."""

    mapping: dict[str, Any]
    aliases: set[str] = field(default_factory=set)
    documents: dict[str, dict[str, Any]] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)


def error(status: int, kind: str, reason: str = "") -> Answer:
    """An answer with an error."""
    return status, {"error": {"type": kind, "reason": reason}, "status": status}


@dataclass
class FakeOpenSearch:
    """The server. `fault`: asked before each request; `refuse`: gives the error of a document, None to take it."""

    url: str = ""
    indexes: dict[str, Index] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    fault: Fault = lambda request: None
    refuse: Callable[[str, dict[str, Any]], Answer | None] = lambda key, document: None
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def forget(self) -> None:
        """Forget requests and faults."""
        self.requests, self.fault = [], lambda request: None

    def behind(self, alias: str) -> list[str]:
        """The indexes that an alias names."""
        return sorted(name for name, index in self.indexes.items() if alias in index.aliases)

    def documents(self, alias: str) -> dict[str, dict[str, Any]]:
        """The documents behind an alias, by key."""
        [name] = self.behind(alias)
        return self.indexes[name].documents

    def asked(self, method: str, part: str) -> list[Request]:
        """The requests with a method and a part of a path."""
        return [one for one in self.requests if one.method == method and part in one.path]

    def answer(
        self, method: str, path: str, body: bytes, authorization: str | None
    ) -> Answer | bytes:
        with self._lock:
            request = Request(len(self.requests) + 1, method, path, body, authorization)
            self.requests.append(request)
        if (fault := self.fault(request)) is not None:
            return fault
        with self._lock:
            return self._answer(method, urlsplit(path).path.strip("/").split("/"), body)

    def _answer(self, method: str, parts: list[str], body: bytes) -> Answer:
        match method, parts:
            case "POST", [alias, "_bulk"]:
                return 200, {"items": list(self._bulk(alias, body.splitlines()))}
            case "POST", ["_aliases"]:
                return self._change_aliases(json.loads(body)["actions"])
            case "GET", [name, "_alias"]:
                found = {one: {"aliases": _of(self.indexes[one])} for one in self._named(name)}
                return (200, found) if found else error(404, "index_not_found_exception")
            case "GET", [pattern, "_mapping"]:
                notes = {
                    one: index.mapping["_meta"]
                    for one, index in self.indexes.items()
                    if "_meta" in index.mapping
                }
                return 200, {
                    one: {"mappings": {"_meta": notes[one]}}
                    for one in notes
                    if fnmatch(one, pattern)
                }
        return self._of_index(method, parts, body)

    def _named(self, name: str) -> list[str]:
        return [name] if name in self.indexes else self.behind(name)

    def _of_index(self, method: str, parts: list[str], body: bytes) -> Answer:
        name, *rest = parts
        if (method, rest) == ("PUT", []):
            return self._made(name, json.loads(body))
        if not (found := self._named(name)):
            return error(404, "index_not_found_exception")
        index = self.indexes[found[0]]
        match method, rest:
            case "DELETE", []:
                del self.indexes[name]
            case "PUT", ["_mapping"]:
                index.mapping |= json.loads(body)
            case "GET" | "POST", ["_count" | "_refresh"]:
                return 200, {"count": len(index.documents), "_shards": {"failed": 0}}
            case "POST", ["_mget"]:
                wanted = json.loads(body)["docs"]
                return 200, {
                    "docs": [
                        {"_id": one["_id"], "found": one["_id"] in index.documents}
                        for one in wanted
                    ]
                }
            case _:
                return error(400, "no_such_request", f"{method} {parts}")
        return 200, {"acknowledged": True}

    def _made(self, name: str, body: dict[str, Any]) -> Answer:
        if name in self.indexes:
            return error(400, "resource_already_exists_exception")
        if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,254}", name):
            return error(400, "invalid_index_name_exception")
        self.indexes[name] = Index(body["mappings"])
        return 200, {"acknowledged": True}

    def _change_aliases(self, actions: list[dict[str, Any]]) -> Answer:
        for action in actions:
            ((kind, of),) = action.items()
            index = self.indexes.get(of["index"])
            names = of.get("aliases") or [of["alias"]]
            if index is None:
                return error(404, "index_not_found_exception")
            if kind == "remove" and index.aliases.isdisjoint(names):
                return error(404, "aliases_not_found_exception")
        for action in actions:
            ((kind, of),) = action.items()
            change = set.update if kind == "add" else set.difference_update
            change(self.indexes[of["index"]].aliases, of.get("aliases") or [of["alias"]])
        return 200, {"acknowledged": True}

    def _bulk(self, alias: str, lines: list[bytes]) -> Iterator[dict[str, Any]]:
        found, rest = self.behind(alias), iter(lines)
        for line in rest:
            ((kind, of),) = json.loads(line).items()
            document = json.loads(next(rest)) if kind == "index" else None
            if found:
                status, body = self._written(self.indexes[found[0]], of, document)
            else:
                status, body = error(404, "index_not_found_exception", f"no such index [{alias}]")
            yield {kind: {**body, "_id": of["_id"], "status": status}}

    def _written(self, index: Index, of: dict[str, Any], document: dict[str, Any] | None) -> Answer:
        key, version = of["_id"], of["version"]
        assert of["version_type"] == "external_gte"
        if index.versions.get(key, -1) > version:
            return error(409, "version_conflict_engine_exception")
        if document is not None and (refused := self.refuse(key, document)):
            return refused
        index.versions[key] = version
        if document is None:
            return (200 if index.documents.pop(key, None) else 404), {}
        index.documents[key] = document
        return 200, {}


def _of(index: Index) -> dict[str, Any]:
    return {alias: {} for alias in index.aliases}


@contextmanager
def fake_opensearch() -> Iterator[FakeOpenSearch]:
    """A server on a free port of this machine."""
    fake = FakeOpenSearch()

    class Handler(Answering):
        protocol_version = "HTTP/1.1"
        wbufsize = 1 << 16  # an answer is one packet: two would wait for each other

        def _do(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            found = fake.answer(self.command, self.path, body, self.headers.get("Authorization"))
            if isinstance(found, bytes):
                self.wfile.write(found)
                self.close_connection = True
                return
            status, answer = found
            self.answer(status, json.dumps(answer).encode(), {"Content-Type": "application/json"})

        do_GET = do_POST = do_PUT = do_DELETE = _do

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    fake.url = f"http://127.0.0.1:{server.server_port}"
    with running(server):
        yield fake
