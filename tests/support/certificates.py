"""Certificates for servers of the tests: an authority of one's own, and what it signed."""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_BEGAN: Final = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
_ENDS: Final = dt.datetime(2120, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True)
class Issued:
    """A certificate and its key, as files."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates, and leaves them in a folder that any account may read, as servers run as others than we do."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        made = self._about(self._name, self._key).add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        self.certificate = self._written(f"{name}.pem", made.sign(self._key, hashes.SHA256()))

    def issue(self, name: str, *addresses: str, owner: int = -1, group: int = -1) -> Issued:
        """Sign a certificate for these addresses; its key is readable for its owner alone."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        about = self._about(_named(name), key).add_extension(x509.SubjectAlternativeName(names), False)
        certificate = self._written(f"{name}.pem", about.sign(self._key, hashes.SHA256()))
        written = self._folder / f"{name}.key"
        written.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        written.chmod(0o600)
        os.chown(written, owner, group)
        return Issued(certificate, written)

    def _about(self, name: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(_BEGAN)
            .not_valid_after(_ENDS)
        )

    def _written(self, name: str, certificate: x509.Certificate) -> Path:
        written = self._folder / name
        written.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        written.chmod(0o644)
        return written


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
