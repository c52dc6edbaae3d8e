"""An answer whose head libcurl does not recognise: an empty line or a byte order mark comes before its status line.

Browsers read such answers, and so do we, without a second request: libcurl passes them on raw, as HTTP/0.9. The head is
found here, and where the body ends, by the rules for a head that libcurl reads (RFC 9112, 6.3). An answer without any
status line, as in HTTP/0.9, is refused at the first bytes. The connection is never used again.
"""

import re

from crawl_lib.parse import Headers, parse_head

_MARK = b"\xef\xbb\xbf"
_PROTOCOL = b"HTTP/"
_BEFORE = re.compile(rb"(?:\xef\xbb\xbf|[ \t\r\n])*+")
_HEAD_END = re.compile(rb"\n\r?\n")
_SIZE = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?")
_MOST_LINE_BYTES = 1 << 14
NO_STATUS = "the answer has no status line"


class RawAnswer:
    """Finds head and body in the pieces of one answer.

    `head`: as sent by the server, with all bytes before the status line; b"" while it is not whole. `problem`: why the
    answer cannot be read, "" if nothing is wrong. `is_whole`: the head says where the body ends, and the body is whole.
    """

    def __init__(self) -> None:
        self.head = b""
        self.problem = ""
        self.is_whole = False
        self._came = bytearray()  # all heads, to the end of the final one
        self._head_start = self._start = self._searched = 0
        self._left: int | None = None
        self._chunks: _Chunks | None = None

    @property
    def head_bytes(self) -> int:
        """How many bytes of heads came."""
        return len(self._came)

    @property
    def is_short(self) -> bool:
        """Whether the head promises more body than came so far."""
        return not self.is_whole and (self._left is not None or self._chunks is not None)

    def take(self, piece: bytes) -> bytes:
        """Take a piece of the answer; returns what is of the body."""
        if not self.head:
            self._came += piece
            piece = self._rest()
        if not self.head or self.problem or self.is_whole:
            return b""
        if self._chunks is not None:
            end = self._chunks.end_in(piece)
            self.is_whole = end is not None
            return piece[:end]
        if self._left is not None:
            piece = piece[: self._left]
            self._left -= len(piece)
            self.is_whole = not self._left
        return piece

    def _rest(self) -> bytes:
        """Find the final answer's head, and return the bytes after it.

        Heads of interim answers are skipped.
        """
        while True:
            before = _BEFORE.match(self._came, self._start)
            self._start = before.end() if before else self._start
            begin = bytes(self._came[self._start : self._start + len(_PROTOCOL)])
            if begin.upper() != _PROTOCOL:
                if not (_MARK.startswith(begin) or _PROTOCOL.startswith(begin.upper())):
                    self.problem = NO_STATUS
                return b""
            found = _HEAD_END.search(self._came, max(self._start, self._searched))
            self._searched = len(self._came) - 2
            if found is None:
                return b""
            end = found.end()
            headers = parse_head(bytes(self._came[self._start : end]))
            if not 100 <= headers.status < 200:
                break
            self._head_start = self._start = self._searched = end
        self.head, rest = bytes(self._came[self._head_start : end]), bytes(self._came[end:])
        del self._came[end:]
        self._read(headers)
        return rest

    def _read(self, headers: Headers) -> None:
        if not headers.status:
            self.problem = NO_STATUS
        codings = ",".join(headers.all("transfer-encoding")).lower().split(",")
        lengths = {
            text.strip() for value in headers.all("content-length") for text in value.split(",")
        }
        if headers.status in (204, 304):
            self.is_whole = True
        elif codings[-1].strip() == "chunked":
            self._chunks = _Chunks()
        elif lengths and codings == [""]:
            (length, *others) = lengths
            if others or not (length.isascii() and length.isdigit() and len(length) <= 15):
                self.problem = f"Content-Length: {', '.join(sorted(lengths))}"
                return
            self._left = int(length)
            self.is_whole = not self._left


class _Chunks:
    """Finds the end of a chunked body in pieces (RFC 9112, 7.1). The object keeps at most one line."""

    def __init__(self) -> None:
        self._line = b""
        self._left = 0
        self._is_trailer = self._is_lost = False

    def end_in(self, piece: bytes) -> int | None:
        """Return where the body ends in the next piece.

        None: the body goes on, or its chunks are malformed.
        """
        at = 0
        while at < len(piece) and not self._is_lost:
            if self._left:
                step = min(self._left, len(piece) - at)
                self._left -= step
                at += step
                continue
            line_end = piece.find(b"\n", at) + 1
            self._line += piece[at : line_end or len(piece)]
            self._is_lost = len(self._line) > _MOST_LINE_BYTES
            if not line_end:
                break
            at = line_end
            line, self._line = self._line.strip(), b""
            if self._is_trailer and not line:
                return at
            if line and not self._is_trailer:
                self._begin(line)
        return None

    def _begin(self, line: bytes) -> None:
        size = _SIZE.fullmatch(line)
        self._is_lost = size is None
        self._left = int(size[1], 16) if size else 0
        self._is_trailer = size is not None and not self._left
