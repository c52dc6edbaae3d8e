"""Seeds as people write them: a text, a file, or a directory of files; one URL a line, `key=value` after tabs."""

import io
import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import field
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

from crawl_lib.dataclass import dataclass
from crawl_lib.errors import InputError, UrlError, os_errors
from crawl_lib.frontier import refuse
from crawl_lib.records import QueuedUrl
from crawl_lib.seeds.faults import (
    LOOKED_AT_LINES,
    METADATA,
    NOT_TEXT,
    UTF_16,
    WORDS,
    csv_separator,
    fault_of,
    is_text,
    is_utf_16,
    one_url_a_line,
)
from crawl_lib.seeds.files import SeedFile, find_files, require_size
from crawl_lib.stopping import Progress, Work
from crawl_lib.urls import Rejection, UrlFilter, canonicalize, host_of

MAX_LINE_BYTES = 1 << 16


@dataclass
class SeedReport:
    """Result of reading seeds.

    `lines` = `blank` + `comments` + `accepted` + `duplicates` + the sum of `rejected`. `examples`: the first 20
    refusals, with file, line number and reason, without the line itself. `rule_errors`: how often each
    normaliser or filter raised, by its name; not in the mapping if empty.
    """

    lines: int = 0
    blank: int = 0
    comments: int = 0
    accepted: int = 0
    duplicates: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    examples: list[str] = field(default_factory=list)
    rule_errors: Counter[str] = field(default_factory=Counter)


class _Line(NamedTuple):
    """A line of a file.

    `where`: the file's name and the line's number. `separator`: of the file, if it is a CSV. `fault`: of the file.
    """

    where: str
    data: bytes
    separator: str
    fault: str


class Seeds:
    """Iterates over seeds as `QueuedUrl`s, canonical, each once, in the order written; `report` counts as it goes.

    Every iteration reads from the start, with a new report; `place`: file and line of the last seed. Files are
    streamed; a long line is read in pieces. `work` counts the bytes read of a file. Once `work` is to stop, the next
    piece raises StoppedError.
    """

    def __init__(
        self,
        files: list[tuple[str, SeedFile | bytes]],
        *,
        max_length_chars: int,
        url_filter: UrlFilter | None = None,
        work: Work | None = None,
    ) -> None:
        self._files = files
        self._max_length_chars = max_length_chars
        self._filter = url_filter
        self._work = work or Work()
        self.report = SeedReport()
        self.place = ""

    def require_some(self) -> None:
        """Require a usable seed if seeds were given.

        Raises InputError: a run without URLs would look like a success. An empty text is allowed: the crawl goes on
        with the queued URLs.
        """
        if self.report.accepted:
            return
        if self.report.rejected:
            count = sum(self.report.rejected.values())
            raise InputError(
                f"seeds: no line of {count} is a URL to crawl: {'; '.join(self.report.examples[:3])}"
            )
        for name, source in self._files:
            if isinstance(source, SeedFile):
                raise InputError(f"seeds: {name}: holds no URL")

    def __iter__(self) -> Iterator[QueuedUrl]:
        self.report = report = SeedReport()
        seen: set[str] = set()
        for line in self._lines():
            report.lines += 1
            try:
                seed = self._seed(line)
            except UrlError as error:
                words = WORDS.get(str(error.reason), str(error.reason)).format(line.separator)
                refuse(report.rejected, report.examples, error, line.where, words)
                continue
            if seed is not None and seed.url in seen:
                report.duplicates += 1
            elif seed is not None:
                seen.add(seed.url)
                report.accepted += 1
                self.place = line.where
                yield seed
        if self._filter is not None:
            report.rule_errors.update(self._filter.chain.errors)
            self._filter.chain.errors.clear()

    def _lines(self) -> Iterator["_Line"]:
        for name, source in self._files:
            opened = io.BytesIO(source) if isinstance(source, bytes) else source.open()
            with os_errors(f"seeds: {name}", "cannot be read", InputError), opened as file:
                progress = Progress(self._work, f"seeds {name}", file.seek(0, os.SEEK_END), "bytes")
                file.seek(0)
                lines = _bounded_lines(file, name, progress)
                first = list(islice(lines, LOOKED_AT_LINES))
                fault = _fault_of_file(first[0]) if first else ""
                separator = csv_separator(
                    [line.decode("utf-8-sig", "replace").strip() for line in first]
                )
                for number, line in enumerate(chain(first, lines), 1):
                    yield _Line(f"{name}:{number}", line, separator, fault)

    def _seed(self, line: "_Line") -> QueuedUrl | None:
        if line.fault:
            raise UrlError(line.fault, "")
        if len(line.data) > MAX_LINE_BYTES:
            raise UrlError(Rejection.TOO_LONG, "")
        try:
            text = line.data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise UrlError(Rejection.INVALID, "") from error
        url, *fields = text.strip().split("\t")
        if not url or url.startswith("#"):
            self.report.blank += not url
            self.report.comments += bool(url)
            return None
        if fault := fault_of(url.strip(), line.separator, fields):
            raise UrlError(fault, url)
        canonical = canonicalize(url.strip(), max_length_chars=self._max_length_chars)
        if self._filter is not None:
            canonical = self._filter.chain.normalize(canonical)
            accepted, name = self._filter.verdict(canonical, host_of(canonical), 0)
            if not accepted and name != Rejection.SCOPE:  # the scope will have its host
                raise UrlError(str(name), canonical)
        return QueuedUrl(canonical, metadata=_metadata(fields, canonical))


def parse_seeds(
    seeds: str,
    *,
    below: Path | None = None,
    max_length_chars: int = 2000,
    url_filter: UrlFilter | None = None,
    work: Work | None = None,
) -> Seeds:
    """Read seeds from a file, a directory, or a text.

    Files of a directory are sorted.

    `below`: the directory for paths, see `find_files`; None: all files that this user may read. `max_length_chars`:
    limit of a canonical URL. `url_filter`: its rules apply to seeds, but not its scope, since seeds make the scope. In
    a text, URLs may also share a line, with spaces between. Raises InputError if the text looks like a path that does
    not exist, or a directory has no files.
    """
    found = find_files(seeds.strip(), below)
    files: list[tuple[str, SeedFile | bytes]] = [(file.name, file) for file in found or ()]
    if found is None:
        files = [("seeds", one_url_a_line(seeds).encode("utf-8", "surrogatepass"))]
    return Seeds(files, max_length_chars=max_length_chars, url_filter=url_filter, work=work)


def _bounded_lines(file: BinaryIO, name: str, progress: Progress) -> Iterator[bytes]:
    """Yield lines without newlines, each up to a limit.

    A longer line gives one byte more than the limit. Raises InputError for too many bytes of a file: some files report
    a wrong size.
    """
    size = 0
    beginning = b""
    while piece := file.readline(MAX_LINE_BYTES + 1):
        progress.add(len(piece))
        require_size(size := size + len(piece), name)
        beginning = beginning or piece
        if len(piece) <= MAX_LINE_BYTES or piece.endswith(b"\n"):
            yield beginning.rstrip(b"\r\n") if len(beginning) <= MAX_LINE_BYTES else beginning
            beginning = b""
    if beginning:
        yield beginning


def _fault_of_file(first: bytes) -> str:
    if not is_text(first):
        return NOT_TEXT
    return UTF_16 if is_utf_16(first) else ""


def _metadata(fields: list[str], url: str) -> str:
    found: dict[str, str] = {}
    for item in filter(str.strip, fields):
        name, equals, value = item.partition("=")
        if not equals or not name.strip():
            raise UrlError(METADATA, f"{url} {item}")
        found[name.strip()] = value.strip()
    return json.dumps(found, ensure_ascii=True) if found else ""
