"""Certificates of authorities made for a test."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """An authority with its own certificate in `<directory>/<name>.pem`."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._certificate = self._signed(
            self._name, self._key, x509.BasicConstraints(ca=True, path_length=0)
        )
        self.file = self._written(
            f"{name}.pem", self._certificate.public_bytes(serialization.Encoding.PEM)
        )

    def server(self, address: str) -> tuple[Path, Path]:
        """The files of a certificate for an address, and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "server")])
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
        certificate = self._signed(name, key, names)
        private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        return (
            self._written("server.pem", certificate.public_bytes(serialization.Encoding.PEM)),
            self._written("server.key", private),
        )

    def _signed(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, extension: x509.ExtensionType
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
        )
        builder = builder.serial_number(x509.random_serial_number()).not_valid_before(
            now - timedelta(days=1)
        )
        builder = builder.not_valid_after(now + timedelta(days=1)).add_extension(
            extension, critical=False
        )
        return builder.sign(self._key, hashes.SHA256())

    def _written(self, name: str, data: bytes) -> Path:
        path = self._directory / name
        path.write_bytes(data)
        return path
