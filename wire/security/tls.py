"""TLS contexts from Kafka's ``ssl.*`` settings: certificate and host name are checked by default.

Owns the loading of trusted certificates and of the client's key. :mod:`~pykafka_wire.wire.connection.connection` owns the
sockets, and passes the host name to check: the one in bootstrap.servers, or the one that a broker advertises. Formats: PEM as
value or file, and PKCS12 with the extra ``pkcs12``. The format is detected from a file's content, since Java's clients accept
PKCS12 under the type JKS too.
https://kafka.apache.org/documentation/#security_ssl
"""

from __future__ import annotations

import contextlib
import os
import re
import ssl
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final

from pykafka_wire.wire.errors import SettingsError
from pykafka_wire.wire.security.secret_references import resolve
from pykafka_wire.wire.settings import ClientSettings

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
#: The first bytes of Java's own key stores: JKS and JCEKS.
_JAVA_MAGIC: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
#: A PKCS12 store is a DER sequence.
_DER_SEQUENCE: Final = 0x30
#: Suites of TLS 1.2 by their IANA names, which are Java's: key exchange, cipher, mode, and a hash that some of OpenSSL's
#: names omit.
_SUITE: Final = re.compile(
    r"TLS_(?:(ECDHE|DHE)_)?(RSA|ECDSA|DSS)_WITH_(AES|CAMELLIA|ARIA|CHACHA20)_(128|256|POLY1305)(?:_(GCM|CBC|CCM))?_?(SHA\d*)?"
)


@dataclass(frozen=True, slots=True)
class _Store:
    """A trust store or key store with its references resolved: the cache key of :func:`_build`."""

    prefix: str
    kind: str | None
    location: str | None
    #: Modification time and size of the file: they change with its content.
    file_state: tuple[int, int]
    password: str | None = field(repr=False)
    certificates: str | None = field(repr=False)
    key: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)


def context(settings: ClientSettings) -> ssl.SSLContext:
    """Return a client's TLS context, cached until a store's file or a secret changes.

    Raises:
        SettingsError: a store, certificate or key cannot be read.
    """
    trust = _Store(
        "ssl.truststore",
        settings.ssl_truststore_type,
        settings.ssl_truststore_location,
        _file_state(settings.ssl_truststore_location),
        _resolve_secret(settings.ssl_truststore_password, "ssl.truststore.password"),
        _resolve_secret(settings.ssl_truststore_certificates, "ssl.truststore.certificates"),
    )
    identity = _Store(
        "ssl.keystore",
        settings.ssl_keystore_type,
        settings.ssl_keystore_location,
        _file_state(settings.ssl_keystore_location),
        _resolve_secret(settings.ssl_keystore_password, "ssl.keystore.password"),
        _resolve_secret(settings.ssl_keystore_certificate_chain, "ssl.keystore.certificate.chain"),
        _resolve_secret(settings.ssl_keystore_key, "ssl.keystore.key"),
        _resolve_secret(settings.ssl_key_password, "ssl.key.password"),
    )
    return _build(
        trust,
        identity,
        bool(settings.ssl_endpoint_identification_algorithm),
        settings.ssl_enabled_protocols,
        settings.ssl_cipher_suites,
    )


@lru_cache(maxsize=16)
def _build(
    trust: _Store, identity: _Store, check_hostname: bool, protocols: tuple[str, ...], suites: tuple[str, ...]
) -> ssl.SSLContext:
    ssl_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # certificates required, host names checked
    ssl_context.check_hostname = check_hostname
    versions = sorted(_VERSIONS[name] for name in protocols)
    ssl_context.minimum_version, ssl_context.maximum_version = versions[0], versions[-1]
    if suites:
        _set_cipher_suites(ssl_context, suites)
    _load_trust(ssl_context, trust)
    _load_identity(ssl_context, identity)
    return ssl_context


def _set_cipher_suites(ssl_context: ssl.SSLContext, suites: tuple[str, ...]) -> None:
    """Limit the suites of TLS 1.2. Java lists those of TLS 1.3 with them; Python's ssl cannot choose among these."""
    tls13 = [name for name in suites if re.fullmatch(r"TLS_(?!.*_WITH_).*", name)]
    tls12 = [_openssl_name(name) for name in suites if name not in tls13]
    try:
        if not tls12:
            ssl_context.minimum_version = ssl.TLSVersion.TLSv1_3
        else:
            ssl_context.set_ciphers(":".join(tls12))
            if not tls13:
                ssl_context.maximum_version = ssl.TLSVersion.TLSv1_2
    except (ssl.SSLError, ValueError) as error:
        raise SettingsError(
            "{setting} is {suites}, and OpenSSL supports none of them.",
            setting="ssl.cipher.suites",
            remedy="See `openssl ciphers -stdname` for the names.",
            suites=",".join(suites),
        ) from error


def _openssl_name(name: str) -> str:
    """Return OpenSSL's name of a TLS 1.2 suite, from its IANA name; any other name unchanged."""
    match = _SUITE.fullmatch(name)
    if match is None:
        return name
    exchange, authentication, cipher, size, mode, digest = match.groups()
    parts = [exchange, authentication] if exchange else []
    if size == "POLY1305":
        return "-".join([*parts, cipher, size])
    parts.append(f"{cipher}{size}")
    if mode in ("GCM", "CCM"):
        parts.append(mode)
    return "-".join([*parts, *([digest] if digest and mode != "CCM" else [])])


def _load_trust(ssl_context: ssl.SSLContext, store: _Store) -> None:
    with _naming_the_setting(store):
        if store.certificates:
            ssl_context.load_verify_locations(cadata=_pem(store.certificates))
        elif store.location:
            content = _content(store)
            if content[0] == _DER_SEQUENCE:
                ssl_context.load_verify_locations(cadata=_pkcs12(store, content)[2])
            else:
                ssl_context.load_verify_locations(cadata=content.decode("ascii", "ignore"))
        else:
            ssl_context.load_default_certs()
            return
    # As in Java, every certificate in the store is trusted: a root, an intermediate authority, or a broker's own.
    ssl_context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def _load_identity(ssl_context: ssl.SSLContext, store: _Store) -> None:
    if store.key or store.certificates:
        missing = "ssl.keystore.key" if not store.key else "ssl.keystore.certificate.chain"
        if not (store.key and store.certificates):
            raise SettingsError(
                "{setting} is missing: a client needs both its certificate and its key.", setting=missing
            )
        with _naming_the_setting(store):
            _load_pem(ssl_context, f"{_pem(store.key)}\n{_pem(store.certificates)}\n", _key_password(store))
    elif store.location:
        with _naming_the_setting(store):
            content = _content(store)
            if content[0] == _DER_SEQUENCE:
                key, chain, _ = _pkcs12(store, content)
                if not key or not chain:
                    raise ValueError("it contains no private key with a certificate")
                _load_pem(ssl_context, f"{key}\n{chain}\n", _key_password(store))
            else:
                ssl_context.load_cert_chain(store.location, password=_key_password(store))


def _load_pem(ssl_context: ssl.SSLContext, pem: str, password: Callable[[], str]) -> None:
    """Load a key and certificates. Python's ssl reads keys from files only: this uses a file in memory if the system has
    them, else a temporary file that only this user can read, and deletes it."""
    content = pem.encode()
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("pykafka-wire", os.MFD_CLOEXEC)
        try:
            with open(descriptor, "wb", closefd=False) as memory:
                memory.write(content)
            path = Path(f"/proc/self/fd/{descriptor}")
            if path.exists():
                ssl_context.load_cert_chain(path, password=password)
                return
        finally:
            os.close(descriptor)
    descriptor, name = tempfile.mkstemp(suffix=".pem")  # mode 0600
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
        ssl_context.load_cert_chain(name, password=password)
    finally:
        with contextlib.suppress(OSError):
            Path(name).unlink()


def _key_password(store: _Store) -> Callable[[], str]:
    # Without a callback OpenSSL would ask at the terminal.
    def password() -> str:
        if store.key_password is None:
            raise SettingsError("the client's key is encrypted, and {setting} is missing.", setting="ssl.key.password")
        return store.key_password

    return password


def _pkcs12(store: _Store, content: bytes) -> tuple[str, str, str]:
    """Return ``(key, chain, trusted certificates)`` of a PKCS12 store, as PEM; the key under the store's key password, if any."""
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError as error:
        raise SettingsError(
            "{setting} is a PKCS12 store, which requires the package cryptography.",
            setting=f"{store.prefix}.location",
            remedy="pip install 'pykafka-wire[pkcs12]' on every machine that runs the query, or convert the store to PEM.",
        ) from error
    pem = serialization.Encoding.PEM
    loaded = pkcs12.load_pkcs12(content, store.password.encode() if store.password is not None else None)
    key = ""
    if loaded.key is not None:
        plain, form = serialization.NoEncryption(), serialization.PrivateFormat.PKCS8
        key = loaded.key.private_bytes(pem, form, plain).decode()
    certificates = [loaded.cert.certificate.public_bytes(pem).decode()] if loaded.cert is not None else []
    others = [certificate.certificate.public_bytes(pem).decode() for certificate in loaded.additional_certs]
    return key, "".join(certificates + others), "".join(others or certificates)


def _content(store: _Store) -> bytes:
    """Return the content of a store's file; raises SettingsError for a format that only Java reads."""
    assert store.location is not None
    content = Path(store.location).read_bytes()
    if not content:
        raise ValueError("it is empty")
    if content.startswith(_JAVA_MAGIC) or (store.kind == "JKS" and content[0] != _DER_SEQUENCE):
        converted = Path(store.location).with_suffix(".p12")
        raise SettingsError(
            "{setting} is a JKS store, which only Java reads.",
            setting=f"{store.prefix}.location",
            remedy="Convert it: keytool -importkeystore -srckeystore {location} -destkeystore {converted} "
            "-deststoretype PKCS12; then set {setting} to {converted}.",
            location=store.location,
            converted=converted,
        )
    return content


@contextlib.contextmanager
def _naming_the_setting(store: _Store) -> Iterator[None]:
    """Turn any error of reading a store into one that names the setting, and shows none of the content."""
    try:
        yield
    except SettingsError:
        raise
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        if isinstance(error, ssl.SSLError):
            reason = (error.reason or str(error)).replace("_", " ").lower()
        else:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise SettingsError(
            "{setting} ({content}) cannot be read: {reason}.",
            setting=f"{store.prefix}.*" if store.certificates else f"{store.prefix}.location",
            remedy="Check that it is PEM or PKCS12, complete, and that its password is right.",
            content="PEM" if store.certificates else store.location,
            reason=reason,
        ) from error


def _file_state(location: str | None) -> tuple[int, int]:
    if location is None:
        return (0, 0)
    with contextlib.suppress(OSError):
        status = Path(location).stat()
        return status.st_mtime_ns, status.st_size
    return (0, 0)


def _resolve_secret(value: str | None, setting: str) -> str | None:
    return None if value is None else resolve(value, setting)


def _pem(text: str) -> str:
    """Return PEM with the line breaks that OpenSSL needs: an option or a properties file has blanks or ``\n`` instead."""
    text = text.replace("\\n", "\n").strip()

    def block(match: re.Match[str]) -> str:
        return f"-----BEGIN {match[1]}-----\n" + "\n".join(match[2].split()) + f"\n-----END {match[1]}-----\n"

    if re.search(r"^(Proc-Type|DEK-Info):", text, re.MULTILINE):
        return text  # the traditional encrypted format has header lines
    return re.sub(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", block, text, flags=re.DOTALL)
