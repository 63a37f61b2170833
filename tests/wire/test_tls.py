"""TLS contexts out of settings: what they demand of a peer, what they show of themselves, and what stays off the disk."""

from __future__ import annotations

import os
import ssl
import tempfile
from pathlib import Path
from typing import Any

import pytest
import trustme

from pykafka_wire.wire.errors import SettingsError
from pykafka_wire.wire.security import tls
from pykafka_wire.wire.security.tls import context
from pykafka_wire.wire.settings import ClientSettings
from tests.wire.secured import pkcs8


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def settings(**options: str) -> ClientSettings:
    named = {f"ssl.{name.replace('_', '.')}": value for name, value in options.items()}
    return ClientSettings.from_options({"bootstrap.servers": "b:1", "security.protocol": "SSL", **named})


def trusting(authority: trustme.CA, **options: str) -> ssl.SSLContext:
    return context(settings(truststore_certificates=authority.cert_pem.bytes().decode(), **options))


def peer(certificate: trustme.LeafCert, authority: trustme.CA | None = None, **more: Any) -> ssl.SSLContext:
    """A broker's side; with an authority it demands a client's certificate."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(made)
    if authority is not None:
        authority.configure_trust(made)
        made.verify_mode = ssl.CERT_REQUIRED
    for name, value in more.items():
        setattr(made, name, value)
    return made


def shake(client: ssl.SSLContext, server: ssl.SSLContext, host: str = "broker.example") -> ssl.SSLObject:
    """The client's side after a handshake in memory. Raises what either side does."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname=host)
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(10):
        for side in (ours, theirs):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return ours


def test_a_certificate_of_the_authority_is_taken(authority: trustme.CA) -> None:
    assert shake(trusting(authority), peer(authority.issue_cert("broker.example"))).version() == "TLSv1.3"


def test_a_stranger_is_refused(authority: trustme.CA) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(trusting(authority), peer(trustme.CA().issue_cert("broker.example")))


def test_another_host_is_refused_unless_the_user_gives_that_up(authority: trustme.CA) -> None:
    elsewhere = peer(authority.issue_cert("elsewhere.example"))
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake(trusting(authority), elsewhere)
    lax = trusting(authority, endpoint_identification_algorithm="")
    assert lax.verify_mode is ssl.CERT_REQUIRED
    assert shake(lax, elsewhere).version()


def test_nothing_older_than_tls_1_2_is_spoken(authority: trustme.CA) -> None:
    assert trusting(authority).minimum_version is ssl.TLSVersion.TLSv1_2
    assert trusting(authority, enabled_protocols="TLSv1.3").minimum_version is ssl.TLSVersion.TLSv1_3
    assert trusting(authority, enabled_protocols="TLSv1.2").maximum_version is ssl.TLSVersion.TLSv1_2


def test_a_brokers_own_certificate_may_be_what_is_trusted() -> None:
    issued = trustme.CA().issue_cert("broker.example")
    leaf = issued.cert_chain_pems[0].bytes().decode()
    assert shake(context(settings(truststore_certificates=leaf)), peer(issued)).version()


def test_an_authority_in_a_file_with_remarks(authority: trustme.CA, tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_bytes("# Unsere Behörde\n".encode() + authority.cert_pem.bytes())
    made = context(settings(truststore_location=str(path)))
    assert shake(made, peer(authority.issue_cert("broker.example"))).version()


def test_a_store_that_changes_is_read_again(authority: trustme.CA, tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(path)
    made = settings(truststore_location=str(path))
    first = context(made)
    assert context(made) is first
    authority.cert_pem.write_to_path(path)
    os.utime(path, ns=(1, 1))
    assert shake(context(made), peer(authority.issue_cert("broker.example"))).version()


@pytest.mark.parametrize("separator", ["\n", "\\n", " "])
@pytest.mark.parametrize("in_memory", [True, False])
def test_a_key_given_as_a_value_never_stays_on_disk(
    authority: trustme.CA, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, separator: str, in_memory: bool
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    tls._build.cache_clear()
    if not in_memory:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    elif not hasattr(os, "memfd_create"):
        pytest.skip("this system has no files in memory")
    modes = []
    make = tempfile.mkstemp

    def watched(*arguments: Any, **more: Any) -> Any:
        descriptor, name = make(*arguments, **more)
        modes.append(Path(name).stat().st_mode & 0o777)
        return descriptor, name

    monkeypatch.setattr(tempfile, "mkstemp", watched)
    issued = authority.issue_cert("client.example")
    chain = "".join(blob.bytes().decode() for blob in issued.cert_chain_pems)
    made = trusting(
        authority,
        keystore_key=pkcs8(issued).decode().replace("\n", separator),
        keystore_certificate_chain=chain.replace("\n", separator),
    )
    assert shake(made, peer(authority.issue_cert("broker.example"), authority)).version()
    assert modes == ([] if in_memory else [0o600])
    assert list(tmp_path.iterdir()) == []


def test_secrets_by_reference(authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    issued = authority.issue_cert("client.example")
    (tmp_path / "key.pem").write_bytes(pkcs8(issued))
    monkeypatch.setenv("THE_CHAIN", "".join(blob.bytes().decode() for blob in issued.cert_chain_pems))
    made = trusting(authority, keystore_key=f"file:{tmp_path / 'key.pem'}", keystore_certificate_chain="env:THE_CHAIN")
    assert shake(made, peer(authority.issue_cert("broker.example"), authority)).version()


@pytest.mark.parametrize("missing", ["ssl.keystore.key", "ssl.keystore.certificate.chain"])
def test_key_and_certificate_go_together(authority: trustme.CA, missing: str) -> None:
    issued = authority.issue_cert("client.example")
    both = {"keystore_key": pkcs8(issued).decode(), "keystore_certificate_chain": "x"}
    del both[missing.removeprefix("ssl.").replace(".", "_")]
    with pytest.raises(SettingsError) as caught:
        context(settings(**both))
    assert caught.value.setting == missing


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"ssl\.truststore\.location \(.*nowhere\) cannot be read: No such file"):
        context(settings(truststore_location=str(tmp_path / "nowhere")))


@pytest.mark.parametrize("content", [b"", b"canary", b"\x30\x82canary", b"-----BEGIN CERTIFICATE-----\ncanary\n"])
@pytest.mark.parametrize("store", ["truststore", "keystore"])
def test_a_file_that_is_no_store_is_refused_and_not_shown(tmp_path: Path, store: str, content: bytes) -> None:
    (tmp_path / "store").write_bytes(content)
    with pytest.raises(SettingsError, match=rf"ssl\.{store}\.location .* cannot be read") as caught:
        context(settings(**{f"{store}_location": str(tmp_path / "store")}))
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("store", ["truststore", "keystore"])
@pytest.mark.parametrize(
    ("content", "kind"), [(b"\xfe\xed\xfe\xed\0\0", ""), (b"\xce\xce\xce\xce", "PEM"), (b"x", "JKS")]
)
def test_a_java_key_store_is_refused_with_the_command(tmp_path: Path, store: str, content: bytes, kind: str) -> None:
    path = tmp_path / "store.jks"
    path.write_bytes(content)
    with pytest.raises(SettingsError) as caught:
        context(settings(**{f"{store}_location": str(path), f"{store}_type": kind}))
    assert f"keytool -importkeystore -srckeystore {path} -destkeystore {tmp_path / 'store.p12'}" in str(caught.value)


@pytest.mark.parametrize(
    ("iana", "openssl"),
    [
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_256_GCM_SHA384", "DHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384", "ECDHE-RSA-AES256-SHA384"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ],
)
def test_suites_by_javas_names(authority: trustme.CA, iana: str, openssl: str) -> None:
    made = trusting(authority, cipher_suites=iana)
    assert openssl in [each["name"] for each in made.get_ciphers()]
    assert made.maximum_version is ssl.TLSVersion.TLSv1_2
    older = [each["name"] for each in made.get_ciphers() if each["protocol"] != "TLSv1.3"]
    assert older == [openssl]


def test_suites_of_both_versions_allow_both(authority: trustme.CA) -> None:
    both = trusting(authority, cipher_suites="TLS_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256")
    assert both.maximum_version is not ssl.TLSVersion.TLSv1_2
    modern = trusting(authority, cipher_suites="TLS_AES_128_GCM_SHA256")
    assert modern.minimum_version is ssl.TLSVersion.TLSv1_3


def test_an_unknown_cipher_suite_is_rejected(authority: trustme.CA) -> None:
    with pytest.raises(SettingsError, match=r"ssl\.cipher\.suites is TLS_NO_WITH_SUCH"):
        trusting(authority, cipher_suites="TLS_NO_WITH_SUCH")
