"""The certificate of a driver's channel: made for this process alone, and known to its tasks before they connect."""

import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from dagster_airbyte_proto.errors import ConfigError

_NAME = "airbyte-proto-driver"
# The key is in this process alone, and ends with it. The dates only have to bear clocks that differ.
_DAYS = 3650


class DriverIdentity(NamedTuple):
    """The proof of a driver: a context for its side of TLS, and the certificate, as text, for the other."""

    context: ssl.SSLContext
    certificate: str


def new_identity() -> DriverIdentity:
    """Makes a key and its certificate. Raises ConfigError if the package for it is missing."""
    try:
        from cryptography import x509  # An extra.
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ModuleNotFoundError as error:
        raise ConfigError(
            "opening the channel to executors",
            "the package cryptography is not installed",
            remedy='pip install "dagster_airbyte_proto[cluster]", or set run_on: driver.',
        ) from error
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, _NAME)])
    now = datetime.now(UTC)
    subject_key = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=_DAYS))
        .not_valid_after(now + timedelta(days=_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(subject_key, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(subject_key), critical=False)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # Python's ssl reads keys from files alone. This one is readable by us, and gone at once.
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "identity.pem"
        file.write_bytes(secret + certificate)
        context.load_cert_chain(file)
    return DriverIdentity(context, certificate.decode())


def trusting(certificate: str) -> ssl.SSLContext:
    """Returns a context that trusts one driver, and nobody else."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # The certificate is the name: no other has its key.
    context.load_verify_locations(cadata=certificate)
    return context
