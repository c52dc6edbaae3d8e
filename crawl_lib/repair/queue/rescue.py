"""Getting URLs out of what `krake fsck --repair` cannot use as it is: intakes without journal, unreadable moves.

Whatever may hold the only copy of a URL becomes a data file at the end of the queue. Some of these URLs may be in the
queue already, or may be of other nodes: the next intake adopts the queue, and that sorts them out. Nothing is deleted
before the data file is durable, and what is lost is noted first, so a repair that was killed or stopped may be run
again.
"""

from collections.abc import Callable, Iterator
from itertools import islice, repeat
from pathlib import Path
from threading import Event

from crawl_lib.durable import delete_durable, fsync_dir, fsync_file, reached, rename_durable, write_durable
from crawl_lib.errors import DamagedFileError
from crawl_lib.frontier import (
    BARE_META,
    CLAIM,
    NodeDirectory,
    Queue,
    count_lines,
    decode_line,
    decode_meta,
    host_of_line,
    note_lost,
    read_journal,
    read_lost,
    split_line,
    whole_line,
)
from crawl_lib.stopping import go_on, until_stopped
from crawl_lib.urls import is_list_of_hosts, scope_bytes, whole_hosts

BROKEN = ".broken"


class Rescue:
    """The rescues of one repair. `done`: what was done, in words. `lost`: URLs found gone, which are noted too.

    `made`: numbers of the data files that were made; the meta beside them is theirs. `cut`: of those that ended within
    a line, which was taken away. Each rescue raises StoppedError once `stop` is set.
    """

    def __init__(self, queue: Queue, stop: Event | None = None) -> None:
        self.queue = queue
        self.stop = stop
        self.done: list[str] = []
        self.lost = 0
        self.made: set[int] = set()
        self.cut: set[int] = set()

    def set_aside(self, name: str) -> None:
        """Rename a file so that nobody reads it any more."""
        if (self.queue.directory / name).exists():
            rename_durable((self.queue.directory / name), self.queue.directory / (name + BROKEN))
            self.done.append(f"{name}: set aside as {name}{BROKEN}")

    def intake(self) -> None:
        """An intake whose journal cannot be read, is missing, or promises more than its files have, begins anew.

        What it had decided is in no queue yet, and its keys may be known: that is rescued. What it had not decided is
        read again from its sources, which are not noted as taken in.
        """
        queue = self.queue
        try:
            journal = read_journal(queue.directory)
        except DamagedFileError as error:
            self.done.append(f"{NodeDirectory.journal}: {error}")
            journal = None
        if journal is not None and not journal.short_files(queue.directory):
            return
        if journal is None and not queue.files.journal.exists() and not _size(queue.files.new):
            return
        rescued = self._append(_pairs(queue.files.new, queue.files.meta_of(queue.files.new)), NodeDirectory.new)
        if journal is None or journal.phase == CLAIM:
            self._append(_outlinks(queue.files.new_claim), NodeDirectory.new_claim)
        if journal is not None and journal.new_count > rescued:
            self._missing(journal.new_count - rescued, NodeDirectory.new)
        go_on(self.stop)
        self._keep_undecided()
        self.set_aside(NodeDirectory.journal)
        for name in (NodeDirectory.new, NodeDirectory.new_meta, NodeDirectory.new_claim):
            delete_durable(queue.directory / name)
        reached("repair.queue.intake")

    def _missing(self, count: int, name: str) -> None:
        """URLs that were decided and are gone, unless a data file has become of them: the move was begun."""
        record_sizes = self._recorded_sizes()
        data = [self.queue.files.data(number) for number in self.queue.data_files()]
        if name == NodeDirectory.new and any(
            _size(path) not in record_sizes and _lines(path) == count for path in data
        ):
            return
        self._lose(count)
        self.done.append(f"{name}: {count} URLs of it cannot be read")

    def _lose(self, count: int) -> None:
        note_lost(self.queue, count)
        self.lost += count

    def _recorded_sizes(self) -> set[int]:
        try:
            return set(self.queue.record().sizes)
        except DamagedFileError:
            return set()

    def _keep_undecided(self) -> None:
        """What both files of undecided URLs hold is asked again."""
        path, more = self.queue.files.undecided, self.queue.files.new_undecided
        if _size(more):
            both = (path.read_bytes() if path.exists() else b"") + more.read_bytes()
            write_durable(path, both)
            reached("repair.queue.undecided")
        delete_durable(more)

    def after_unreadable_move(self) -> None:
        """A move that cannot be read may have been half done: its files are taken in whichever way they lie."""
        queue = self.queue
        for name in (NodeDirectory.adopted, NodeDirectory.put_back):
            if _size(queue.directory / name):
                self._append(_pairs(queue.directory / name, queue.files.meta_of(queue.directory / name)), name)
            delete_durable(queue.directory / name)
            delete_durable(queue.files.meta_of(queue.directory / name))
        go_on(self.stop)
        handed, more = queue.files.handed_on, queue.files.adopted_handed_on
        if _size(more):
            write_durable(handed, (handed.read_bytes() if handed.exists() else b"") + more.read_bytes())
            reached("repair.queue.handed_on")
            delete_durable(more)

    def half_lines(self) -> None:
        """Half a URL at the end of a data file is no URL: it goes to `<n>.broken`, and counts as lost.

        That is noted first: killed after it, the next repair knows as well that the segments have to be read again.
        """
        for number in until_stopped(self.queue.data_files(), self.stop):
            try:
                half = self.queue.half_line(number, self.queue.record())
            except DamagedFileError:
                return
            if half is None:
                continue
            self._lose(1)
            self.cut.add(number)
            place = count_lines(self.queue.files.data(number))
            shown = half[:200].decode("utf-8", "backslashreplace")
            self.done.append(f"{number}: line {place} is cut, {shown!r}; it was put into {number}{BROKEN}")
            write_durable((self.queue.directory / f"{number}{BROKEN}"), half + b"\n")
            meta = self.queue.files.meta(number)
            if meta.exists() and count_lines(meta) == place:
                self._keep_lines(meta, place - 1)
                self.made.add(number)
            self._keep_lines(self.queue.files.data(number), place - 1)
            reached("repair.queue.half_line")

    def _keep_lines(self, path: Path, count: int) -> None:
        """Keep the first lines of a file. It is written anew: other names of the old one keep what they show."""
        beside = self.queue.files.rescued
        with path.open("rb") as file, beside.open("wb") as out:
            out.writelines(islice(file, count))
            fsync_file(out)
        rename_durable(beside, path)

    def lines(self) -> None:
        """Lines of `undecided` and `handed_on` that cannot be read are set aside; the others stay."""
        for name in (NodeDirectory.undecided, NodeDirectory.handed_on):
            good, bad = _sorted_out((self.queue.directory / name), decode_line, self.stop)
            if bad:
                self._lose(len(bad))
                write_durable(self.queue.directory / (name + BROKEN), b"".join(bad))
                write_durable((self.queue.directory / name), b"".join(good))
                self.done.append(f"{name}: {len(bad)} lines cannot be read, and were put into {name}{BROKEN}")

    def metas(self) -> None:
        """Lines of meta that cannot be read become bare: the next intake would copy them, and no task could take them.

        Their URLs stay, as if people had queued them.
        """
        try:
            numbers = sorted(self.queue.own_metas())
        except DamagedFileError:
            return  # then no meta is anybody's
        for number in numbers:
            path = self.queue.files.meta(number)
            bad = sum(not _is_meta(line) for line in until_stopped(_raw_lines(path), self.stop))
            if not bad or count_lines(path) != count_lines(self.queue.files.data(number)):
                continue  # one that has other lines is set aside as a whole
            beside = self.queue.files.rescued
            with beside.open("wb") as out:
                out.writelines(line if _is_meta(line) else BARE_META + b"\n" for line in _raw_lines(path))
                fsync_file(out)
            rename_durable(beside, path)
            reached("repair.queue.meta")
            self.done.append(
                f"{path.name}: {bad} lines could not be read; their URLs are queued without what they said"
            )

    def scope(self) -> None:
        """Hosts of adopted URLs, if that file is damaged: those that can be read, and those of bare URLs in the queue.

        URLs without meta were put there by people, or were seeds: their hosts are in the scope by right.
        """
        path = self.queue.files.scope_added
        data = path.read_bytes() if path.exists() else b""
        if is_list_of_hosts(data):
            return
        hosts = whole_hosts(data)
        for number in self.queue.data_files():
            pairs = _pairs(self.queue.files.data(number), self.queue.files.meta(number))
            for url, meta in until_stopped(pairs, self.stop):
                if meta == BARE_META and url.startswith(b"http"):
                    hosts.add(host_of_line(url).decode("ascii", "replace"))
        write_durable(self.queue.directory / (NodeDirectory.scope_added + BROKEN), data)
        write_durable(path, scope_bytes(hosts))
        self.done.append(f"{NodeDirectory.scope_added}: could not be read; it has {len(hosts)} hosts now")
        reached("repair.queue.scope")

    def note(self) -> None:
        """A note of lost URLs that cannot be read says that there are some."""
        try:
            read_lost(self.queue.directory)
        except DamagedFileError as error:
            self.done.append(str(error))
            self._lose(1)

    def _append(self, pairs: Iterator[tuple[bytes, bytes]], source: str) -> int:
        """Make a data file of URLs, the last one; returns how many there were."""
        queue = self.queue
        number = max(queue.data_files(), default=-1) + 1
        count = 0
        beside, meta_beside = queue.files.rescued, queue.files.meta_of(queue.files.rescued)
        with beside.open("wb") as data, meta_beside.open("wb") as meta:
            for url, line in until_stopped(pairs, self.stop):
                data.write(url + b"\n")
                meta.write(line + b"\n")
                count += 1
            fsync_file(data)
            fsync_file(meta)
        fsync_dir(queue.directory)
        if count:
            rename_durable(meta_beside, queue.files.meta(number))
            rename_durable(beside, queue.files.data(number))
            self.done.append(f"{source}: {count} URLs of it are now data file {number}")
            self.made.add(number)
            reached("repair.queue.rescued")
        else:
            delete_durable(meta_beside)
            delete_durable(beside)
        return count


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(1 for _ in file)


def _raw_lines(path: Path) -> Iterator[bytes]:
    """Lines of a file with their newlines, none if it is not there."""
    if path.exists():
        with path.open("rb") as file:
            yield from file


def _is_meta(line: bytes) -> bool:
    try:
        decode_meta(b"", whole_line(line), "")
    except (DamagedFileError, ValueError):
        return False
    return True


def _whole_lines(path: Path) -> Iterator[bytes]:
    """Lines of a file, but not a last one without its end: whoever wrote that was killed, and it was not decided."""
    if path.exists():
        with path.open("rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    yield line[:-1]


def _pairs(path: Path, meta_path: Path) -> Iterator[tuple[bytes, bytes]]:
    """URLs with their meta; bare meta from where that is short or no meta."""
    metas = _whole_lines(meta_path)
    yield from zip(_whole_lines(path), _then_bare(metas), strict=False)


def _then_bare(metas: Iterator[bytes]) -> Iterator[bytes]:
    for meta in metas:
        try:
            decode_meta(b"", meta, "")
        except DamagedFileError:
            break
        yield meta
    yield from repeat(BARE_META)


def _outlinks(path: Path) -> Iterator[tuple[bytes, bytes]]:
    for line in _whole_lines(path):
        try:
            url, meta, _ = split_line(line)
        except DamagedFileError:
            continue
        yield url, meta


def _sorted_out(path: Path, read: Callable[[bytes], object], stop: Event | None) -> tuple[list[bytes], list[bytes]]:
    """Lines that can be read, and lines that cannot."""
    good: list[bytes] = []
    bad: list[bytes] = []
    if path.exists():
        with path.open("rb") as file:
            for line in until_stopped(file, stop):
                try:
                    read(whole_line(line))
                except (DamagedFileError, ValueError):
                    bad.append(line)
                else:
                    good.append(line)
    return good, bad
