"""TLS, a SCRAM user and permissions for a local cluster, and the client's settings that go with them.

Owns: the broker settings, the certificate (made by Java's keytool), the user ``alice``, and what she may do: create, read and
write every topic, but delete none. The plaintext listener stays for the brokers themselves, on loopback.
Must not know: how a cluster is started.

https://kafka.apache.org/documentation/#security
"""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pykafka_wire.local.cluster import LocalCluster
from pykafka_wire.local.jars import KAFKA_VERSION
from pykafka_wire.local.java import ensure_java
from pykafka_wire.local.process import LocalClusterError
from pykafka_wire.local.settings import EXTERNAL

#: Before, StorageTool creates no users and the tool for permissions has another name.
OLDEST_RELEASE: Final = (4,)
USER: Final = "alice"
_MECHANISM: Final = "SCRAM-SHA-512"
_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule required"
_LISTENER: Final = f"listener.name.{EXTERNAL.lower()}"
_VALID_DAYS: Final = 365
#: keytool takes a second; it must not hang.
_KEYTOOL_TIMEOUT_S: Final = 120
_ACCESS: Final = ("-storetype", "PKCS12", "-storepass:env", "STORE_PASSWORD", "-alias", "broker")
_ACL_TOOL: Final = "org.apache.kafka.tools.AclCommand"


class SecuredListener:
    """Makes a cluster's external listener demand TLS and a password::

    secured = SecuredListener()
    with secured.cluster(nodes=1) as cluster:
        secured.allow(cluster)
        print(secured.client_settings(cluster))
    """

    def __init__(self) -> None:
        self._password = secrets.token_urlsafe(16)
        self._store_password = secrets.token_urlsafe(16)

    def cluster(
        self, nodes: int = 1, properties: Mapping[str, str] | None = None, version: str = KAFKA_VERSION
    ) -> LocalCluster:
        """Return a cluster with the listener and the user, to be started."""
        return LocalCluster(
            nodes,
            properties,
            version,
            listeners={EXTERNAL: "SASL_SSL"},
            format_arguments=["--add-scram", f"{_MECHANISM}=[name={USER},password={self._password}]"],
            prepare=self._prepare,
        )

    def _prepare(self, folder: Path) -> dict[str, str]:
        """Create the certificate in the cluster's folder; the broker settings. Raises LocalClusterError if keytool fails."""
        store = folder / "broker.p12"
        access = ["-keystore", str(store), *_ACCESS]
        self._keytool(
            "-genkeypair", *access, "-keyalg", "EC", "-groupname", "secp256r1", "-dname", "CN=localhost",
            "-ext", "san=dns:localhost,ip:127.0.0.1", "-ext", "bc:c", "-validity", str(_VALID_DAYS),
        )  # fmt: skip
        self._keytool("-exportcert", "-rfc", *access, "-file", str(folder / "ca.pem"))
        return {
            f"{_LISTENER}.ssl.keystore.type": "PKCS12",
            f"{_LISTENER}.ssl.keystore.location": str(store),
            f"{_LISTENER}.ssl.keystore.password": self._store_password,
            f"{_LISTENER}.ssl.key.password": self._store_password,
            f"{_LISTENER}.sasl.enabled.mechanisms": _MECHANISM,
            f"{_LISTENER}.{_MECHANISM.lower()}.sasl.jaas.config": f"{_MODULE};",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            # The brokers and the controller, by the plaintext listener.
            "super.users": "User:ANONYMOUS",
        }

    def allow(self, cluster: LocalCluster) -> None:
        """Let the user create, read and write every topic, in any group and transaction. Takes a second or two.

        Raises:
            LocalClusterError: Kafka refused it.
        """
        every = ["--topic", "*", "--group", "*", "--transactional-id", "*"]
        cluster.tool(_ACL_TOOL, "--add", "--allow-principal", f"User:{USER}", "--producer", "--consumer", *every)

    def client_settings(self, cluster: LocalCluster) -> Mapping[str, str]:
        """Return what a client needs, by Kafka's names."""
        return {
            "bootstrap.servers": cluster.external_bootstrap_servers,
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(cluster.folder / "ca.pem"),
            "sasl.mechanism": _MECHANISM,
            "sasl.jaas.config": f'{_MODULE} username="{USER}" password="{self._password}";',
        }

    def _keytool(self, *arguments: str) -> None:
        tool = ensure_java().executable.with_name("keytool")
        try:
            subprocess.run(
                [str(tool), *arguments], env={"STORE_PASSWORD": self._store_password}, check=True, capture_output=True,
                text=True, timeout=_KEYTOOL_TIMEOUT_S,
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError) as error:
            printed = getattr(error, "stdout", None) or error
            raise LocalClusterError(f"{tool} did not create the broker's certificate: {printed}") from error
