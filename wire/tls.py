"""TLS contexts from Kafka's ``ssl.*`` settings: certificate and host name are checked unless a user says otherwise.

Owns how trust and identity are loaded; sockets are :mod:`~pykafka_wire.wire.transport`'s. PEM as value or as file, and
PKCS12 with the extra ``pkcs12``. https://kafka.apache.org/documentation/#security_ssl
"""

from __future__ import annotations

import contextlib
import logging
import ssl
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Final

from pykafka_wire.wire.errors import SettingsError
from pykafka_wire.wire.sasl import resolve_secret
from pykafka_wire.wire.settings import ClientSettings

logger = logging.getLogger(__name__)

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_JKS_REMEDY: Final = (
    "convert it with: keytool -importkeystore -srckeystore {location} -destkeystore store.p12 -deststoretype PKCS12, "
    "then set {prefix}.type to PKCS12 and {prefix}.location to store.p12"
)


@lru_cache(maxsize=16)
def context(settings: ClientSettings) -> ssl.SSLContext:
    """A client's TLS context; one per settings, so that sessions are resumed.

    Raises:
        SettingsError: a store, certificate or key cannot be read, or a protocol version is not offered.
    """
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    wanted = sorted(_VERSIONS[name] for name in settings.ssl_enabled_protocols if name in _VERSIONS)
    if not wanted:
        raise SettingsError(
            f"ssl.enabled.protocols is {','.join(settings.ssl_enabled_protocols)}: use TLSv1.2, TLSv1.3 or both.",
            setting="ssl.enabled.protocols",
        )
    made.minimum_version, made.maximum_version = wanted[0], wanted[-1]
    if settings.ssl_cipher_suites:
        try:
            made.set_ciphers(":".join(settings.ssl_cipher_suites))
        except ssl.SSLError as error:
            raise SettingsError(
                "ssl.cipher.suites names no cipher of OpenSSL's.", setting="ssl.cipher.suites"
            ) from error
    if not settings.ssl_endpoint_identification_algorithm:
        logger.warning("ssl.endpoint.identification.algorithm is empty: host names of brokers are not checked")
        made.check_hostname = False
    _load_trust(made, settings)
    _load_identity(made, settings)
    return made


def _load_trust(made: ssl.SSLContext, settings: ClientSettings) -> None:
    prefix = "ssl.truststore"
    try:
        if settings.ssl_truststore_certificates:
            made.load_verify_locations(cadata=_pem(settings.ssl_truststore_certificates))
        elif settings.ssl_truststore_location:
            _refuse_jks(settings.ssl_truststore_type, settings.ssl_truststore_location, prefix)
            if settings.ssl_truststore_type == "PKCS12":
                made.load_verify_locations(cadata=_pkcs12(settings, prefix)[2])
            else:
                made.load_verify_locations(cafile=settings.ssl_truststore_location)
        else:
            made.load_default_certs()
    except (OSError, ssl.SSLError, ValueError) as error:
        raise SettingsError(f"{prefix} cannot be read: {_reason(error)}.", setting=prefix) from error


def _load_identity(made: ssl.SSLContext, settings: ClientSettings) -> None:
    prefix = "ssl.keystore"
    password = settings.ssl_key_password and resolve_secret(settings.ssl_key_password, "ssl.key.password")
    try:
        if settings.ssl_keystore_key or settings.ssl_keystore_certificate_chain:
            chain = _pem(
                resolve_secret(settings.ssl_keystore_certificate_chain or "", "ssl.keystore.certificate.chain")
            )
            key = _pem(resolve_secret(settings.ssl_keystore_key or "", "ssl.keystore.key"))
            _load_pem(made, f"{key}\n{chain}\n", password)
        elif settings.ssl_keystore_location:
            _refuse_jks(settings.ssl_keystore_type, settings.ssl_keystore_location, prefix)
            if settings.ssl_keystore_type == "PKCS12":
                key, chain, _ = _pkcs12(settings, prefix)
                _load_pem(made, f"{key}\n{chain}\n", None)
            else:
                made.load_cert_chain(settings.ssl_keystore_location, password=password)
    except (OSError, ssl.SSLError, ValueError) as error:
        raise SettingsError(f"{prefix} cannot be read: {_reason(error)}.", setting=prefix) from error


def _load_pem(made: ssl.SSLContext, pem: str, password: str | None) -> None:
    """Python's ssl takes keys from files only: one that nobody else can read, gone as soon as it was read."""
    with tempfile.NamedTemporaryFile("w", suffix=".pem", delete=False) as file:  # mode 0600
        file.write(pem)
    try:
        made.load_cert_chain(file.name, password=password)
    finally:
        with contextlib.suppress(OSError):
            Path(file.name).unlink()


def _pkcs12(settings: ClientSettings, prefix: str) -> tuple[str, str, str]:
    """``(key, chain, trusted certificates)`` of a PKCS12 store, as PEM."""
    try:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12
    except ImportError as error:
        raise SettingsError(
            f"{prefix}.type is PKCS12, which needs the package cryptography: pip install 'pykafka-wire[pkcs12]'.",
            setting=f"{prefix}.type",
        ) from error
    field = prefix.replace(".", "_")
    location, secret = getattr(settings, f"{field}_location"), getattr(settings, f"{field}_password")
    password = resolve_secret(secret, f"{prefix}.password").encode() if secret else None
    store = pkcs12.load_pkcs12(Path(location).read_bytes(), password)
    key = (
        store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        if store.key is not None
        else ""
    )
    certificates = [c.certificate.public_bytes(Encoding.PEM).decode() for c in store.additional_certs]
    own = [store.cert.certificate.public_bytes(Encoding.PEM).decode()] if store.cert is not None else []
    return key, "".join(own + certificates), "".join(certificates or own)


def _refuse_jks(kind: str, location: str, prefix: str) -> None:
    if kind == "JKS":
        raise SettingsError(
            f"{prefix}.type is JKS, which only Java reads: {_JKS_REMEDY.format(location=location, prefix=prefix)}.",
            setting=f"{prefix}.type",
        )


def _pem(text: str) -> str:
    # A properties file or an option has the lines of a PEM joined by spaces or by a literal \n.
    return text.replace("\\n", "\n").strip()


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or getattr(error, "reason", None) or str(error)
