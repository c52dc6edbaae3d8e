"""The file `scope`: the hosts of a crawl, a line each, in order."""

import re
from collections.abc import Iterable

_HOST_LINE = re.compile(rb"[!-~]+\n")


class ScopeFile:
    """The content of a file `scope`. Equal hosts give equal bytes."""

    @staticmethod
    def data_of(hosts: Iterable[str]) -> bytes:
        """Return the file of some hosts."""
        return "".join(f"{host}\n" for host in sorted(hosts)).encode()

    @staticmethod
    def is_whole(data: bytes) -> bool:
        """Say whether bytes may be a complete file.

        An empty file is complete.
        """
        return all(_HOST_LINE.fullmatch(line) for line in data.splitlines(keepends=True))

    @staticmethod
    def hosts_of(data: bytes) -> set[str]:
        """Return the valid hosts in a file, which may be damaged."""
        return {
            line[:-1].decode("ascii")
            for line in data.splitlines(keepends=True)
            if _HOST_LINE.fullmatch(line)
        }
