"""The error tree. Each class says who must act; each message says what to do.

    KrakeError                      anything Krake raises on purpose
    |-- ConfigError                 the operator: correct the named config file, option or argument
    |-- SetupError                  the operator installs Krake again (`make setup`): a part is not compiled
    |-- InputError                  the operator: correct the named input (seeds, file by hand)
    |-- StorageError                Airflow retries; if the error stays, the operator looks at the named store or path
    |   |-- TargetExistsError       no one for a rerun; else the operator chooses another name or deletes
    |   |-- PathNotFoundError       the operator: an expected folder or file is missing
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
    |   `-- DamagedKeysError        the operator: run the named repair command
    |-- SearchServerError           Airflow retries; if the error stays, the operator looks at `push.url`'s OpenSearch
    |   `-- SearchAccessError       the operator: user, password, right or certificate for `push.url`; Airflow retries
    |-- QueueError                  the operator: run the named repair command
    |-- DamagedFileError            the operator: the named file does not have its format
    |-- FewAnswersError             the operator looks at the network; nothing is lost, and a new run goes on
    |-- ProtocolError               the caller ends the process that said the line, and starts a new process
    |-- OutputConflictError         the operator: an output of this name, made of other inputs, exists already
    |-- LockedError                 wait, or stop the named holder
    |-- BusyError                   the caller tries again after `retry_after_s`
    |   |-- AwayError               the same; a server is away
    |-- StoppedError                no one: the stage was told to stop, kept finished work, and resumes when run again
    `-- UrlError                    the caller counts a rejection; `reason` is its name

A failed fetch is not an error of this tree: it is an `Outcome` in a row of `pages`.
No exception of a foreign library (socket, pymysql, sqlite3, requests, pycurl, pyarrow) leaves the module with the call.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def printable(text: str) -> str:
    """Return a text with each unprintable character escaped.

    A terminal then obeys nothing in the text.
    """
    return (
        text
        if text.isprintable()
        else "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
    )


class KrakeError(Exception):
    """Base of every error raised on purpose; the message is one line for the user, or one for each finding.

    `KrakeError(first, second)`: two findings.
    """

    def __str__(self) -> str:
        return "\n".join(self.lines)

    @property
    def lines(self) -> list[str]:
        """Findings, each in one printable line.

        Texts of systems and strangers are escaped.
        """
        return [printable(" ".join(str(finding).splitlines())) for finding in self.args]


class ConfigError(KrakeError):
    """A config file or option is wrong. The operator corrects the file and key named by the message."""


class SetupError(KrakeError):
    """A compiled part of Krake is missing, or was compiled from other sources. The operator installs Krake again."""


class InputError(KrakeError):
    """Seeds or a file made by hand cannot be used. The operator corrects the file and line named by the message."""


class StorageError(KrakeError):
    """A file store failed. Run again; if the error stays, look at the store or path named by the message."""


class TargetExistsError(StorageError):
    """A rename or exclusive write found an existing target. The target was not touched."""


class PathNotFoundError(StorageError):
    """A requested file or folder is missing."""


class NoExportError(PathNotFoundError):
    """The newest export was requested, and no export exists yet."""


class NoRoomError(StorageError):
    """Less room is free than the config's `watermarks` ask for, or a stage needs more than `scratch.max_bytes`.

    Nothing is half-written. The operator makes room, or allows more.
    """


class ScratchError(StorageError):
    """A folder in `scratch.directory` of this machine cannot be used. No file of the crawl is to blame.

    The operator makes the folder writable, or names another folder.
    """


class StorageAccessError(StorageError):
    """A file store does not let us in, or is not trusted: no Kerberos ticket, no right, a certificate of a stranger.

    The message gives the remedy; a crawl with a ticket goes on when the ticket is renewed.
    """


class StorageRightsError(StorageAccessError):
    """A file store knows us, and a right is missing. Running again does not help before an administrator acts."""


NOT_ABOUT_FILES = (NoRoomError, ScratchError, StorageAccessError)
"""Errors about the room or rights of this machine: a check ends with such an error, and reports no damage."""


class KeyStoreError(KrakeError):
    """A key server refused a request. The message names the server and the remedy."""


class KeyServerDownError(KeyStoreError):
    """A key server does not answer. Run again when the server is back; `krake fsck --repair` fills in missed keys."""


class KeyServerFullError(KeyStoreError):
    """A key server has no room to write. Nothing of the statement was done; run again when there is room."""


class KeyServerReadOnlyError(KeyStoreError):
    """A key server answers and takes no writes. Run again when the server is writable, or name its primary."""


class KeyAccessError(KeyStoreError):
    """A key server refuses the user, the password, or a right that Krake needs. Running again does not help."""


class KeyTablesError(KeyStoreError):
    """Key tables are missing, or exist already where new tables were to be created."""


class DamagedKeysError(KeyStoreError):
    """A key table is damaged, or has rows without a valid key. The message names the file and the repair command."""


class SearchServerError(KrakeError):
    """OpenSearch does not answer, or refuses a request. If the error stays, look at the server of `push.url`."""


class SearchAccessError(SearchServerError):
    """OpenSearch refuses the user, the password or a right, or is not trusted. See `push.url` and the user."""


class QueueError(KrakeError):
    """A node's queue directory contradicts itself. The message names the fault and the repair command."""


class DamagedFileError(KrakeError):
    """A file does not have its format. The message names the file and the place."""


class FewAnswersError(KrakeError):
    """Too few URLs of an iteration were answered at all. The iteration is committed; the message says how to go on."""


class ProtocolError(KrakeError):
    """Another process said a malformed, too long or foreign line. The message quotes the line."""


class OutputConflictError(KrakeError):
    """An output of this name exists already and was made of other inputs. Nothing was overwritten."""


class LockedError(KrakeError):
    """Another process holds a directory's lock; the message names the process."""


class BusyError(KrakeError):
    """Too many requests wait, and this request was not begun. The caller may try again after `retry_after_s`."""

    def __init__(self, message: str, retry_after_s: int = 1) -> None:
        """Say what is busy. `retry_after_s`: seconds after which trying again makes sense."""
        super().__init__(message)
        self.retry_after_s = retry_after_s


class AwayError(BusyError):
    """A server that the request needs is away. The caller may try again after `retry_after_s`."""


class StoppedError(KrakeError):
    """A stage was told to stop. Finished work is durable; a new run goes on."""


class UrlError(KrakeError):
    """A text is not a URL for Krake. `reason` is the name under which the rejection is counted."""

    def __init__(self, reason: str, url: str) -> None:
        shown = url if len(url) <= 200 else f"{url[:200]}..."
        super().__init__(f"{reason}: {shown!r}")
        self.reason = reason
        self.url = url


SQLITE_ERRORS = (sqlite3.Error, UnicodeDecodeError)
"""Errors of SQLite; the second comes where SQLite's message quotes a damaged schema, whose bytes are no text."""


@contextmanager
def sqlite_errors(path: Path, remedy: str) -> Iterator[None]:
    """Turn an error of SQLite into StorageError.

    The message names the file and the remedy.
    """
    try:
        yield
    except SQLITE_ERRORS as error:
        raise StorageError(f"{path}: {error}; {remedy}") from error


def os_error(
    error: OSError, path: Path | str, problem: str = "", kind: type[KrakeError] = StorageError
) -> KrakeError:
    """Return Krake's error for a system's refusal.

    The message names the path, the problem, and the system's reason. Without a `problem`, the system may have refused
    `path` or a file below `path`: the file named by the system, if any, takes the place of `path`.
    """
    where = f"{path}: {problem}" if problem else error.filename or path
    # Some of asyncio's errors have no text.
    return kind(f"{where}: {error.strerror or str(error) or type(error).__name__}")


@contextmanager
def os_errors(
    path: Path | str, problem: str = "", kind: type[KrakeError] = StorageError
) -> Iterator[None]:
    """Turn an OSError within the block into an error of ours; see `os_error`."""
    try:
        yield
    except OSError as error:
        raise os_error(error, path, problem, kind) from error
