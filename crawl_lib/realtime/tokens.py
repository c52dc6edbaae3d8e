"""Tokens and their rights. The file has only digests, and each token is shown once."""

import json
import secrets
import threading
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from crawl_lib.durable import write_durable
from crawl_lib.errors import ConfigError, os_errors

RIGHTS = ("submit", "read", "fetch", "metrics", "admin")
"""The rights of tokens: submit URLs, read documents and events, fetch without a trace, read metrics, delete rows."""
_TOKEN_BYTES = 32
_MODE = 0o600


@dataclass(frozen=True)
class Token:
    """A token as the file has it. `digest`: SHA-256 in hex. `urls_per_s`: None: as the config says."""

    name: str
    rights: tuple[str, ...]
    digest: str
    urls_per_s: float | None = None


class TokenFile:
    """The file of tokens. A running service reads a changed file at its next request."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._seen: tuple[int, int, int] | None = None
        self._by_digest: dict[str, Token] = {}
        self._lock = threading.Lock()

    def find(self, text: str) -> Token | None:
        """Return the token of a client's text.

        Raises ConfigError for a damaged file.
        """
        self._refresh()
        # A dictionary of digests: the time of the search says nothing of the tokens themselves.
        return self._by_digest.get(_digest(text))

    def all(self) -> list[Token]:
        """Return all tokens, by name. Raises ConfigError for a damaged file."""
        self._refresh()
        return sorted(self._by_digest.values(), key=lambda token: token.name)

    def add(self, name: str, rights: Iterable[str], urls_per_s: float | None = None) -> str:
        """Add a token with a new name; return its text.

        No file has the text. Raises ConfigError.
        """
        if any(token.name == name for token in self.all()):
            raise ConfigError(
                f"{self.path}: there is a token {name!r} already: choose another name, or remove it first"
            )
        given = tuple(dict.fromkeys(rights))
        unknown = [right for right in given if right not in RIGHTS]
        if unknown or not given:
            raise ConfigError(
                f"rights of a token are {', '.join(RIGHTS)}, not {', '.join(unknown) or 'none'}"
            )
        text = secrets.token_urlsafe(_TOKEN_BYTES)
        self._write([*self.all(), Token(name, given, _digest(text), urls_per_s)])
        return text

    def remove(self, name: str) -> None:
        """Remove a token. Raises ConfigError for an unknown name."""
        left = [token for token in self.all() if token.name != name]
        if len(left) == len(self.all()):
            raise ConfigError(f"{self.path}: there is no token {name!r}")
        self._write(left)

    def _write(self, tokens: Iterable[Token]) -> None:
        with os_errors(self.path, "cannot be written (realtime.tokens)", ConfigError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"tokens": [asdict(token) for token in tokens]}, indent=1)
        write_durable(self.path, text.encode() + b"\n")
        self.path.chmod(_MODE)

    def _refresh(self) -> None:
        try:
            status = self.path.stat()
        except FileNotFoundError:
            self._seen, self._by_digest = None, {}
            return
        seen = (status.st_ino, status.st_mtime_ns, status.st_size)
        with self._lock:
            if seen != self._seen:
                self._by_digest = {token.digest: token for token in self._read()}
                self._seen = seen

    def _read(self) -> list[Token]:
        with os_errors(self.path, "cannot be read (realtime.tokens)", ConfigError):
            data = self.path.read_bytes()
        try:
            return [_token(value) for value in json.loads(data)["tokens"]]
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{self.path}: is no file of tokens ({error}): delete the file, and make the tokens again by"
                " `krake realtime tokens --add`"
            ) from error


def _token(value: dict[str, Any]) -> Token:
    rate = value.get("urls_per_s")
    return Token(
        str(value["name"]),
        tuple(map(str, value["rights"])),
        str(value["digest"]),
        rate and float(rate),
    )


def _digest(text: str) -> str:
    # The tokens are random and long, so that no slow digest is needed.
    return sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
