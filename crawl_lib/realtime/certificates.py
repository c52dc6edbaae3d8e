"""Certificates of schedulers and fetchers: an own authority, files of each side, and contexts of TLS.

The folder `realtime.certificates` of the scheduler's machine has `ca.pem`, the key of the authority (`ca.key`), and for
each side one file with key and certificate: `scheduler.pem` and `<fetcher>.pem`. A fetcher's machine has a folder with
copies of `ca.pem` and its own `<fetcher>.pem`, and nothing else.

A scheduler's certificate is for clients only, a fetcher's for servers only and for one name. A fetcher in the hands of
an attacker is therefore no scheduler to other fetchers, and no other fetcher to a scheduler.
"""

import logging
import os
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from crawl_lib.durable import fsync_dir, fsync_file
from crawl_lib.errors import ConfigError, os_errors

AUTHORITY_FILE, AUTHORITY_KEY = "ca.pem", "ca.key"
SCHEDULER = "scheduler"
"""The name of the schedulers' certificate."""
AUTHORITY_DAYS = 3650
VALID_DAYS = 90
RENEW_DAYS = 30
"""A certificate with fewer days left is made again."""
_MODE = 0o600
_EARLIER = timedelta(hours=1)
"""Certificates are valid from this much earlier on: the clock of another machine may be slow."""
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Made:
    """A file of `make_certificates`. `until`: the end of the certificate. `is_new`: the file was written now."""

    path: Path
    until: datetime
    is_new: bool


@dataclass(frozen=True)
class _Authority:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def make_certificates(
    directory: Path,
    fetchers: Iterable[str],
    *,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> list[Made]:
    """Make missing certificates, and renew those with less than `RENEW_DAYS` left.

    Args:
        directory: The folder of the scheduler's machine (`realtime.certificates`).
        fetchers: The names of the fetchers.
        now: The clock.

    Returns all files with a certificate. Raises ConfigError for an unusable file or folder, and once the authority has
    no full term left: delete all files of the folder then, make them again, and copy them to all fetchers.
    """
    time = now()
    with os_errors(directory, "cannot be written (realtime.certificates)", ConfigError):
        directory.mkdir(parents=True, exist_ok=True)
        authority, is_new = _authority(directory, time)
        made = [Made(directory / AUTHORITY_FILE, authority.certificate.not_valid_after_utc, is_new)]
        if made[0].until < time + timedelta(days=VALID_DAYS):
            raise ConfigError(
                f"{made[0].path}: ends at {made[0].until:%Y-%m-%d}: delete all files of this folder, run"
                " `krake realtime certificates` again, and copy the new files to the fetchers"
            )
        sides = (SCHEDULER, *fetchers)
        return [
            *made,
            *(_renewed(directory / f"{name}.pem", name, authority, time) for name in sides),
        ]


def _authority(directory: Path, time: datetime) -> tuple[_Authority, bool]:
    path, key_path = directory / AUTHORITY_FILE, directory / AUTHORITY_KEY
    if path.exists() and key_path.exists():
        try:
            key = serialization.load_pem_private_key(key_path.read_bytes(), None)
            certificate = x509.load_pem_x509_certificate(path.read_bytes())
        except ValueError as error:
            raise ConfigError(
                f"{path}, {key_path}: are no certificate and key: put back the right files"
            ) from error
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return _Authority(certificate, key), False
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("Krake real time")
    builder = _builder(name, name, key.public_key(), time, timedelta(days=AUTHORITY_DAYS))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    certificate = builder.sign(key, hashes.SHA256())
    _write(key_path, _pem(key))
    _write(path, certificate.public_bytes(serialization.Encoding.PEM))
    return _Authority(certificate, key), True


def _renewed(path: Path, name: str, authority: _Authority, time: datetime) -> Made:
    until = _end_of(path, authority)
    if until is not None and until > time + timedelta(days=RENEW_DAYS):
        return Made(path, until, False)
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = authority.certificate.subject
    builder = _builder(_name(name), issuer, key.public_key(), time, timedelta(days=VALID_DAYS))
    purpose = (
        ExtendedKeyUsageOID.CLIENT_AUTH if name == SCHEDULER else ExtendedKeyUsageOID.SERVER_AUTH
    )
    for extension, is_critical in (
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_usage(signs_certificates=False), True),
        (x509.ExtendedKeyUsage([purpose]), False),
        (x509.SubjectAlternativeName([x509.DNSName(name)]), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), False),
    ):
        builder = builder.add_extension(extension, critical=is_critical)
    certificate = builder.sign(authority.key, hashes.SHA256())
    _write(path, _pem(key) + certificate.public_bytes(serialization.Encoding.PEM))
    return Made(path, certificate.not_valid_after_utc, True)


def _end_of(path: Path, authority: _Authority) -> datetime | None:
    """Return the end of a certificate.

    None: the file is missing, or the certificate has another authority.
    """
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        certificate.verify_directly_issued_by(authority.certificate)
    except FileNotFoundError:
        return None
    except Exception as error:  # of `cryptography`: InvalidSignature, ValueError, TypeError
        log.warning("%s is made again: %s", path, error or type(error).__name__)
        return None
    return certificate.not_valid_after_utc


def _builder(
    name: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    time: datetime,
    valid: timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(time - _EARLIER)
        .not_valid_after(time + valid)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, data: bytes) -> None:
    """Replace a file that other users may not read, at no moment."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _MODE), "wb") as file:
        file.write(data)
        fsync_file(file)
    temporary.replace(path)
    fsync_dir(path.parent)


# -- contexts of TLS ------------------------------------------------------------------------------------------------


class Identity:
    """One side of TLS: its certificate, and the authority of the other side. Renewed files count at once.

    A connection gets the context of the files at its start. While files cannot be used, as in the middle of a copy, the
    context of the earlier files stays in use.
    """

    def __init__(self, directory: Path, name: str) -> None:
        """Read nothing yet. `directory`: with `ca.pem` and `<name>.pem`."""
        self._authority, self._own = directory / AUTHORITY_FILE, directory / f"{name}.pem"
        self._purpose = ssl.PROTOCOL_TLS_CLIENT if name == SCHEDULER else ssl.PROTOCOL_TLS_SERVER
        self._seen: object = None
        self._context: ssl.SSLContext | None = None

    def context(self) -> ssl.SSLContext:
        """Return the context of the current files.

        Raises ConfigError, which names the unusable file.
        """
        try:
            seen = [
                (status.st_ino, status.st_mtime_ns, status.st_size)
                for status in map(Path.stat, self._files)
            ]
            if self._context is None or seen != self._seen:
                self._context, self._seen = self._read(), seen
        except OSError as error:  # SSLError is an OSError
            problem = f"{self._own}, {self._authority}: cannot be used: {error.strerror or error}"
            if self._context is None:
                raise ConfigError(
                    f"{problem}: run `krake realtime certificates`, and copy the files"
                ) from error
            log.warning("the earlier certificates stay in use: %s", problem)
        return self._context

    @property
    def _files(self) -> tuple[Path, Path]:
        return self._authority, self._own

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(self._purpose)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(self._authority)
        context.load_cert_chain(self._own)
        return context
