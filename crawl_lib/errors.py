"""The error tree. Each class says who must act; each message says what to do.

    KrakeError                      anything Krake raises on purpose
    |-- ConfigError                 the operator: correct the config file, option or argument that is named
    |-- SetupError                  the operator installs Krake again (`make setup`): a part is not compiled
    |-- InputError                  the operator: correct the input (seeds, file by hand) that is named
    |-- StorageError                Airflow retries; if it stays, the operator looks at the named store or path
    |   |-- TargetExistsError       no one for a rerun; else the operator chooses another name or deletes
    |   |-- PathNotFoundError       the operator: a folder or file that should be there is not
    |   |   `-- NoExportError       the operator exports first, or the next run does
    |   |-- NoRoomError             the operator makes room on the named disk or DFS; Airflow retries meanwhile
    |   |-- ScratchError            the operator makes `scratch.directory` of this machine writable
    |   `-- StorageAccessError      the operator: ticket, rights or certificate on the named server; Airflow retries
    |       `-- StorageRightsError  the operator gives the right on the named path
    |-- KeyStoreError               the operator looks at the named key server
    |   |-- KeyServerDownError      Airflow retries; maintenance repairs when the server is back
    |   |-- KeyServerFullError      Airflow retries; the operator makes room on the named server's disk
    |   |-- KeyServerReadOnlyError  Airflow retries; the operator makes the named server writable
    |   |-- KeyAccessError          the operator: correct user, password or rights on the named server
    |   |-- KeyTablesError          the operator: create or drop the key tables as the message says
    |   `-- DamagedKeysError        the operator: run the repair command that is named
    |-- SearchServerError           Airflow retries; if it stays, the operator looks at the OpenSearch of `push.url`
    |   `-- SearchAccessError       the operator: user, password, right or certificate for `push.url`; Airflow retries
    |-- QueueError                  the operator: run the repair command that is named
    |-- DamagedFileError            the operator: the named file is not what its format says
    |-- FewAnswersError             the operator looks at the network; nothing is lost, and a new run goes on
    |-- ProtocolError               the caller ends the process that said the line, and starts it again
    |-- OutputConflictError         the operator: an output of that name, made of other inputs, exists already
    |-- LockedError                 wait, or stop the holder that is named
    |-- BusyError                   the caller tries again after `retry_after_s`
    |-- StoppedError                 no one: the stage was asked to stop, wrote what it had, and resumes when run again
    `-- UrlError                    the caller counts a rejection; `reason` is its name

A failed fetch is not an error of this tree: it is an `Outcome` in a row of `pages`.
No exception of a foreign library (socket, pymysql, sqlite3, requests, pycurl, pyarrow) leaves the module that calls it.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def printable(text: str) -> str:
    """Return a text with each unprintable character escaped.

    A terminal then obeys nothing in it.
    """
    return (
        text
        if text.isprintable()
        else "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
    )


class KrakeError(Exception):
    """Base of everything Krake raises on purpose; the message is one line for the user, or one for each finding.

    `KrakeError(first, second)`: two findings.
    """

    def __str__(self) -> str:
        return "\n".join(self.lines)

    @property
    def lines(self) -> list[str]:
        """Findings, each in one printable line.

        Whatever a system, a library or a stranger said.
        """
        return [printable(" ".join(str(finding).splitlines())) for finding in self.args]


class ConfigError(KrakeError):
    """A config file or option is wrong. The operator corrects what the message names (file and key)."""


class SetupError(KrakeError):
    """A compiled part of Krake is missing or is not of these sources. The operator installs Krake again."""


class InputError(KrakeError):
    """Seeds or a file made by hand cannot be used. The operator corrects what the message names (file and line)."""


class StorageError(KrakeError):
    """A file store failed. Run again; if it stays, look at the store or path that the message names."""


class TargetExistsError(StorageError):
    """A rename or exclusive write found its target in place. It was not touched."""


class PathNotFoundError(StorageError):
    """A file or folder that was asked for is not there."""


class NoExportError(PathNotFoundError):
    """The newest export was asked for, but no export exists yet."""


class NoRoomError(StorageError):
    """Less room is free than the config's `watermarks` ask for, or a stage needs more than `scratch.max_bytes`.

    Nothing is half-written. The operator makes room, or allows more.
    """


class ScratchError(StorageError):
    """A folder in `scratch.directory` of this machine cannot be used. No file of the crawl is to blame.

    The operator makes the folder writable, or names another one.
    """


class StorageAccessError(StorageError):
    """A file store does not let us in, or is not trusted: no Kerberos ticket, no right, a certificate of a stranger.

    The message says what to do; a crawl that runs on a ticket goes on when that is renewed.
    """


class StorageRightsError(StorageAccessError):
    """A file store knows us, and a right is missing. Running again does not help before an administrator gives it."""


NOT_ABOUT_FILES = (NoRoomError, ScratchError, StorageAccessError)
"""Errors of this machine's room or of its rights: a check that meets one of these ends, and reports no damage."""


class KeyStoreError(KrakeError):
    """A key server refused a request. The message names the server and what to do."""


class KeyServerDownError(KeyStoreError):
    """A key server does not answer. Run again when it is back; `krake fsck --repair` fills what it missed."""


class KeyServerFullError(KeyStoreError):
    """A key server has no room to write. Nothing of the statement was done; run again when there is room."""


class KeyServerReadOnlyError(KeyStoreError):
    """A key server answers and takes no writes. Run again when it is writable, or name its primary in the config."""


class KeyAccessError(KeyStoreError):
    """A key server refuses the user, the password, or a right that Krake needs. Running again does not help."""


class KeyTablesError(KeyStoreError):
    """Key tables are missing, or exist where new ones were to be created."""


class DamagedKeysError(KeyStoreError):
    """A key table is damaged, or has rows that are no keys. The message names the file and the repair command."""


class SearchServerError(KrakeError):
    """OpenSearch does not answer, or refuses a request. If the error stays, look at the server of `push.url`."""


class SearchAccessError(SearchServerError):
    """OpenSearch refuses the user, the password or a right, or is not trusted. See `push.url` and the user."""


class QueueError(KrakeError):
    """A node's queue directory contradicts itself. The message says what is wrong and which command repairs it."""


class DamagedFileError(KrakeError):
    """A file is not what its format says. The message names the file and the place."""


class FewAnswersError(KrakeError):
    """Too few URLs of an iteration were answered at all. It is committed; the message says how to go on."""


class ProtocolError(KrakeError):
    """Another process said a line that is malformed, too long or of another version. The message quotes the line."""


class OutputConflictError(KrakeError):
    """An output of that name exists already and was made of other inputs. Nothing was overwritten."""


class LockedError(KrakeError):
    """Another process holds a directory's lock; the message names it."""


class BusyError(KrakeError):
    """Too many requests wait, and this one was not begun. The caller may try again after `retry_after_s`."""

    def __init__(self, message: str, retry_after_s: int = 1) -> None:
        """Say what is busy. `retry_after_s`: seconds after which trying again makes sense."""
        super().__init__(message)
        self.retry_after_s = retry_after_s


class StoppedError(KrakeError):
    """A stage was asked to stop. What it had is durable; run it again to go on."""


class UrlError(KrakeError):
    """A text is not a URL that Krake crawls. `reason` is the rejection's name, to be counted."""

    def __init__(self, reason: str, url: str) -> None:
        shown = url if len(url) <= 200 else f"{url[:200]}..."
        super().__init__(f"{reason}: {shown!r}")
        self.reason = reason
        self.url = url


SQLITE_ERRORS = (sqlite3.Error, UnicodeDecodeError)
"""What SQLite raises; the second where its message quotes a damaged schema, whose bytes are no text."""


@contextmanager
def sqlite_errors(path: Path, remedy: str) -> Iterator[None]:
    """Turn an error of SQLite into StorageError.

    It names the file and what to do.
    """
    try:
        yield
    except SQLITE_ERRORS as error:
        raise StorageError(f"{path}: {error}; {remedy}") from error


def os_error(
    error: OSError, path: Path | str, problem: str = "", kind: type[KrakeError] = StorageError
) -> KrakeError:
    """Return Krake's error for a system's refusal.

    It names the path, what could not be done with it, and the system's reason. Without a `problem`, `path` is a folder,
    or another file; the one that the system names is said instead, if any.
    """
    where = f"{path}: {problem}" if problem else error.filename or path
    return kind(f"{where}: {error.strerror or error}")


@contextmanager
def os_errors(
    path: Path | str, problem: str = "", kind: type[KrakeError] = StorageError
) -> Iterator[None]:
    """Within, an OSError becomes an error of ours; see `os_error`."""
    try:
        yield
    except OSError as error:
        raise os_error(error, path, problem, kind) from error
