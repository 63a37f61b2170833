"""A real MariaDB for tests, in a folder of its own. Run, it installs Debian's package, or says what is missing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pykafka_wire.local.cluster import free_ports
from pykafka_wire.local.process import SupervisedProcess, Watchdog, wait_ready
from pykafka_wire.local.settings import HOST
from tests.debezium.mariadb_rules import rule_for
from tests.debezium.rules import Rule

#: Debian's name, and the user that its package makes.
PACKAGE: Final = "mariadb-server"
USER: Final = "mysql"
DATABASE: Final = "shop"
TIMEOUT_S: Final = 120.0
SETTINGS: Final = {
    "log-bin": "binlog",
    "binlog-format": "ROW",
    "binlog-row-image": "FULL",
    # Else the log has no names of columns, nor which numbers are unsigned.
    "binlog-row-metadata": "FULL",
    "server-id": "1",
    "character-set-server": "utf8mb4",
    "default-time-zone": "+00:00",
    # Zero dates and values that do not fit their column are taken, as many old databases do.
    "sql-mode": "NO_ENGINE_SUBSTITUTION",
    # The folder is thrown away.
    "innodb-flush-log-at-trx-commit": "0",
    "innodb-buffer-pool-size": "32M",
}
#: Of this harness's own sessions: names are quoted as PostgreSQL quotes them.
_ANSI: Final = "SET sql_mode = 'ANSI_QUOTES,NO_ENGINE_SUBSTITUTION'"


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")


class MariaDB:
    """A server with a row-based binary log, on a free port of loopback, as a context manager."""

    schema = DATABASE

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="pykafka-wire-mariadb-"))
        (self.port,) = free_ports(1)
        self._watchdog = Watchdog(self.folder)
        found = _program("mariadbd")
        assert found is not None, f"MariaDB is missing: install Debian's package {PACKAGE}"
        self._server = found
        self.folder.chmod(0o755)
        #: Each statement that was run, in order.
        self.statements: list[str] = []

    def __enter__(self) -> MariaDB:
        data = self.folder / "data"
        data.mkdir()
        if os.getuid() == 0:
            shutil.chown(data, USER)
        owner = [f"--user={USER}"] if os.getuid() == 0 else []
        places = [f"--datadir={data}", *owner]
        command = ["mariadb-install-db", "--no-defaults", "--auth-root-authentication-method=normal", *places]
        made = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, cwd="/")
        assert made.returncode == 0, made.stdout + made.stderr
        options = [f"--{name}={value}" for name, value in SETTINGS.items()]
        options += [f"--port={self.port}", f"--bind-address={HOST}", f"--socket={data}/socket"]
        process = SupervisedProcess(
            "MariaDB",
            [self._server, "--no-defaults", *places, *options],
            self.folder / "mariadb.log",
            self._watchdog,
            ready="ready for connections",
        )
        process.spawn()
        wait_ready([process], TIMEOUT_S)
        # Of both kinds of hosts: the server has a user without a name for its own.
        users = "".join(
            f"CREATE USER 'debezium'@'{host}' IDENTIFIED BY 'debezium'; GRANT ALL ON *.* TO 'debezium'@'{host}';"
            for host in ("localhost", "%")
        )
        self._client(f"CREATE DATABASE {DATABASE}; {users}", database="")
        return self

    def __exit__(self, *_: object) -> None:
        self._watchdog.close()

    def connector(self, prefix: str, servers: str) -> Mapping[str, str]:
        """The settings of Debezium's connector that are this database's."""
        return {
            "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
            "database.hostname": HOST,
            "database.port": str(self.port),
            "database.user": "debezium",
            "database.password": "debezium",
            "database.server.id": "4711",
            "database.ssl.mode": "disable",
            "database.include.list": DATABASE,
            "connection.timeZone": "UTC",
            "bigint.unsigned.handling.mode": "precise",
            "schema.history.internal.kafka.bootstrap.servers": servers,
            "schema.history.internal.kafka.topic": f"schemahistory.{prefix}",
            "include.schema.changes": "true",
            "signal.data.collection": f"{DATABASE}.debezium_signal",
        }

    def run(self, *statements: str) -> None:
        """Run statements, each in a transaction of its own."""
        self.statements += statements
        self._client(";\n".join(statements) + ";\n")

    def kinds(self, table: str) -> dict[str, str]:
        """The type of each column of a table, by its name."""
        query = (
            "SELECT column_name AS name, column_type AS kind FROM information_schema.columns "
            f"WHERE table_schema = '{DATABASE}' AND table_name = '{table}' ORDER BY ordinal_position"
        )
        return {row["name"]: row["kind"] for row in self.rows(query, ["name", "kind"])}

    def rule_for(self, kind: str, *, has_schema: bool, others: Mapping[str, Rule]) -> Rule:
        """The rule of a type."""
        return rule_for(kind, has_schema=has_schema)

    def rows(self, query: str, names: Sequence[str]) -> list[dict[str, Any]]:
        """What a query returns, whose columns have these names, each value as JSON has it."""
        members = ", ".join(f"'{name}', q.\"{name}\"" for name in names)
        printed = self._client(f"SELECT JSON_OBJECT({members}) FROM ({query}) AS q;\n")
        return [json.loads(line) for line in printed.splitlines()]

    def _client(self, text: str, *, database: str = DATABASE) -> str:
        command = ["mariadb", "--no-defaults", "-h", HOST, "-P", str(self.port), "-u", "root", "--batch", "--raw"]
        command += ["--skip-column-names", "--default-character-set=utf8mb4", f"--init-command={_ANSI}", database]
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=TIMEOUT_S)
        assert done.returncode == 0, f"{done.stderr}\n{text[-3000:]}"
        return done.stdout


def _install() -> str:
    """Install the package where it is missing; one sentence that says why it could not be."""
    if _program("mariadbd") is not None:
        return ""
    if os.getuid() != 0 or shutil.which("apt-get") is None:
        return f"make debezium needs a MariaDB server: install Debian's package {PACKAGE}."
    for command in (["apt-get", "update", "-q"], ["apt-get", "install", "-qy", "--no-install-recommends", PACKAGE]):
        subprocess.run(command, check=True, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
    return "" if _program("mariadbd") is not None else f"MariaDB is missing after the installation of {PACKAGE}."


if __name__ == "__main__":
    sys.exit(_install() or None)
