"""Certificates for the broker's TLS listener, created for each invocation."""

from __future__ import annotations

from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key


class Certificates:
    """An authority and what it has signed for localhost, as files of `folder`."""

    def __init__(self, folder: Path) -> None:
        authority = trustme.CA()
        issued = authority.issue_cert("localhost", "127.0.0.1")
        # Kafka reads keys as PKCS#8 only.
        key = load_pem_private_key(issued.private_key_pem.bytes(), None)
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        self._broker, self._authority = folder / "broker.pem", folder / "authority.pem"
        self._broker.write_bytes(pem + b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        self._authority.write_bytes(authority.cert_pem.bytes())

    @property
    def broker_properties(self) -> dict[str, str]:
        return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self._broker)}

    @property
    def client_settings(self) -> dict[str, str]:
        return {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._authority),
        }
