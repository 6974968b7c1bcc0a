"""Certificates for servers and their clients."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Authority:
    """A certificate authority in a directory: ``ca.pem``, and what it signs as NAME.pem and NAME.key."""

    directory: Path
    name: str
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def path(self) -> Path:
        return self.directory / f"{self.name}.pem"

    def sign(self, name: str, days: tuple[int, int] = (-1, 1)) -> tuple[Path, Path]:
        """Certificate and key of ``name`` at loopback, good between days counted from today."""
        key = ec.generate_private_key(ec.SECP256R1())
        alternatives = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))])
        builder = _certificate(name, self.certificate.subject, key, days).add_extension(alternatives, critical=False)
        _write(self.directory, name, builder.sign(self.key, hashes.SHA256()), key)
        return self.directory / f"{name}.pem", self.directory / f"{name}.key"


def authority(directory: Path, name: str) -> Authority:
    """A new one."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = _certificate(name, subject, key, (-2, 2)).add_extension(x509.BasicConstraints(True, 0), critical=True)
    certificate = builder.sign(key, hashes.SHA256())
    _write(directory, name, certificate, key)
    return Authority(directory, name, key, certificate)


def _certificate(
    name: str, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: tuple[int, int]
) -> x509.CertificateBuilder:
    now = datetime.now(timezone.utc)
    return x509.CertificateBuilder(
        issuer,
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]),
        key.public_key(),
        x509.random_serial_number(),
        now + timedelta(days=days[0]),
        now + timedelta(days=days[1]),
    )


def _write(directory: Path, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    pem = serialization.Encoding.PEM
    (directory / f"{name}.pem").write_bytes(certificate.public_bytes(pem))
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (directory / f"{name}.key").write_bytes(key.private_bytes(pem, *plain))


@dataclass(frozen=True)
class Certificates:
    """PEM files of a CA, and certificate and key of a server and of a client that it signed."""

    ca: Path
    server: tuple[Path, Path]
    client: tuple[Path, Path]


def certificates(directory: Path) -> Certificates:
    """Fresh ones in a new directory; all authorities made so have the same name."""
    directory.mkdir()
    ours = authority(directory, "ca")
    return Certificates(ours.path, ours.sign("server"), ours.sign("client"))
