"""A certificate authority of our own, and what it signs: made anew for each test run, valid for a
day.
"""

import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = dt.timedelta(days=1)


class Authority:
    """Signs certificates; its own is `path`."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        self.path = folder / f"{name}.pem"
        own = _builder(self._name, self._name, self._key).add_extension(
            x509.BasicConstraints(True, 0), critical=True
        )
        key_id = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        signed = own.add_extension(key_id, critical=False).add_extension(usage, critical=True)
        self.path.write_bytes(
            signed.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        )

    def certify(self, host: str, expired: bool = False) -> tuple[Path, Path]:
        """Return the files of a certificate for a host name or address, and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        try:
            name: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
        except ValueError:
            name = x509.DNSName(host)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = _builder(_name(host), self._name, key, -DAY if expired else DAY)
        builder = builder.add_extension(x509.SubjectAlternativeName([name]), critical=False)
        signed = builder.add_extension(issuer, critical=False).sign(self._key, hashes.SHA256())
        paths = self._folder / f"{host}-{expired}.crt", self._folder / f"{host}-{expired}.key"
        paths[0].write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        form = serialization.PrivateFormat.PKCS8
        paths[1].write_bytes(
            key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
        )
        return paths


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    valid: dt.timedelta = DAY,
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 2 * DAY)
        .not_valid_after(now + valid)
    )
