"""Errors of MySQL, MariaDB, PyMySQL and sockets, translated at this border into the error tree."""

import re
import ssl
import struct

import pymysql
from pymysql.constants import CR, ER

from crawl_lib.errors import (
    KeyAccessError,
    KeyServerDownError,
    KeyServerFullError,
    KeyServerReadOnlyError,
    KeyStoreError,
    KeyTablesError,
)
from crawl_lib.keys.server import MAKE, MAKE_SLOTS, SLOT_TABLE, TABLES_EXIST

_MALFORMED = (IndexError, struct.error)
"""Error of PyMySQL for a packet that ends too early."""
FOREIGN = (pymysql.MySQLError, OSError, RuntimeError, UnicodeError, *_MALFORMED)
"""All that PyMySQL raises: RuntimeError for a login method it cannot do, UnicodeError for a host that is no name."""

CONTENTION = frozenset({ER.LOCK_DEADLOCK, 1020})
"""Another writer came between: nothing was done, do it again. 1020: MariaDB 11, a row changed since the snapshot."""

LOST = frozenset(
    {
        CR.CR_CONNECTION_ERROR,
        CR.CR_CONN_HOST_ERROR,
        CR.CR_UNKNOWN_HOST,
        CR.CR_SERVER_GONE_ERROR,
        CR.CR_SERVER_LOST,
        CR.CR_MALFORMED_PACKET,
        0,  # PyMySQL's InterfaceError for a connection that it closed itself
        ER.CON_COUNT_ERROR,
        ER.SERVER_SHUTDOWN,
        ER.NET_READ_ERROR,
        ER.NET_READ_INTERRUPTED,
        ER.NET_ERROR_ON_WRITE,
        ER.NET_WRITE_INTERRUPTED,
        ER.QUERY_INTERRUPTED,
        ER.LOCK_WAIT_TIMEOUT,
        1927,  # MariaDB ER_CONNECTION_KILLED
        1969,  # MariaDB ER_STATEMENT_TIMEOUT
        2055,  # CR_SERVER_LOST_EXTENDED
    }
)
"""The server does not answer, or not in time."""

_GRANT = "an administrator runs GRANT ALL ON {database}.* TO '{user}'"
_LOGIN = "check key_storage.user and the password (KRAKE_KEY_STORAGE_PASSWORD or Airflow connection krake_keys)"
_READ_ONLY = (
    KeyServerReadOnlyError,
    "is read-only ({text}): make it writable, or name its primary in key_storage.servers",
)
_NO_ROOM = (KeyServerFullError, "has no room ({text}): make room on its disk, then run again")
_NO_SPACE_LEFT = re.compile(r"\b(?:errno|error):? 28\b|No space left on device", re.IGNORECASE)
"""How an engine passes on ENOSPC, under whichever number: `Got error 28 "No space left on device" from storage`."""


class NoDatabaseError(KeyTablesError):
    """The database is not there, or the user may not see it."""


ADVICE: dict[int, tuple[type[KeyStoreError], str]] = {
    ER.NO_SUCH_TABLE: (KeyTablesError, "has no key table in database {database}: " + MAKE),
    ER.TABLE_EXISTS_ERROR: (KeyTablesError, TABLES_EXIST),
    ER.BAD_DB_ERROR: (NoDatabaseError, "has no database {database}: " + MAKE),
    ER.DBACCESS_DENIED_ERROR: (
        NoDatabaseError,
        "user {user} may not use database {database}: "
        + _GRANT.replace("GRANT", "CREATE DATABASE {database}; GRANT"),
    ),
    ER.ACCESS_DENIED_ERROR: (KeyAccessError, "refuses user {user}: " + _LOGIN),
    1698: (  # MariaDB ER_ACCESS_DENIED_NO_PASSWORD_ERROR: the account logs in by another plugin than a password
        KeyAccessError,
        "refuses user {user} with a password: " + _LOGIN,
    ),
    ER.TABLEACCESS_DENIED_ERROR: (KeyAccessError, "{text}: " + _GRANT),
    ER.COLUMNACCESS_DENIED_ERROR: (KeyAccessError, "{text}: " + _GRANT),
    ER.OPTION_PREVENTS_STATEMENT: _READ_ONLY,
    1792: _READ_ONLY,  # ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION
    1836: _READ_ONLY,  # ER_READ_ONLY_MODE
    CR.CR_SSL_CONNECTION_ERROR: (
        KeyAccessError,
        "offers no encryption, but key_storage.tls asks for TLS: give the server a certificate",
    ),
    ER.DISK_FULL: _NO_ROOM,
    ER.RECORD_FILE_FULL: _NO_ROOM,
}
"""Advice to the operator, by the server's error number. Every other error is passed on with its number."""


def translate(server: str, user: str, database: str, error: Exception) -> KeyStoreError:
    """Return Krake's error for one of PyMySQL or a socket.

    It names the server and the remedy, never the password.
    """
    code = code_of(error)
    said = error.args[1] if len(error.args) > 1 else error
    text = " ".join(str(said).split())
    text = "its packet is malformed" if isinstance(error, _MALFORMED) else text
    known = (
        _NO_ROOM if _NO_SPACE_LEFT.search(text) else ADVICE.get(code) if code is not None else None
    )
    if code == ER.NO_SUCH_TABLE and SLOT_TABLE in text:
        return KeyTablesError(
            f"{server}: has no table of turns in database {database}: {MAKE_SLOTS}"
        )
    cause = getattr(error, "original_exception", error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return KeyAccessError(
            f"{server}: the server's certificate is not trusted ({cause.verify_message}): give its authority in"
            " key_storage.ca_file, and name the server in key_storage.servers as the certificate does"
        )
    if known is not None:
        kind, advice = known
        return kind(f"{server}: {advice.format(text=text, user=user, database=database)}")
    if is_lost(error):
        return KeyServerDownError(
            f"{server}: does not answer ({text}): start it, or look at the network"
        )
    return KeyStoreError(f"{server}: {text} (error {code})")


def code_of(error: Exception) -> int | None:
    """Return the error number; None for a foreign error."""
    first = error.args[0] if error.args else None
    return first if isinstance(error, pymysql.MySQLError) and isinstance(first, int) else None


def is_lost(error: Exception) -> bool:
    """Say whether the server does not answer, not even with a refusal."""
    return isinstance(error, (OSError, *_MALFORMED)) or code_of(error) in LOST
