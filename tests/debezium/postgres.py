"""A real PostgreSQL for tests, in a folder of its own. Run, it installs Debian's package, or says what is missing."""

from __future__ import annotations

import json
import os
import pwd
import re
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
from tests.debezium.rules import Rule, rule_for

#: Debian's name, and the user that its package makes.
PACKAGE: Final = "postgresql"
USER: Final = "postgres"
DATABASE: Final = "postgres"
#: An initial database takes 2 s on an idle machine.
TIMEOUT_S: Final = 120.0
SETTINGS: Final = {
    "wal_level": "logical",
    "max_replication_slots": "20",
    "max_wal_senders": "20",
    # The folder is thrown away.
    "fsync": "off",
    "full_page_writes": "off",
    "timezone": "UTC",
    "lc_messages": "C",
}


def programs() -> Path | None:
    """The folder of PostgreSQL's programs, the newest of Debian's, else that of the PATH; None if there are none."""
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    found = str(versions[-1]) if versions else shutil.which("initdb")
    return None if found is None else Path(found).resolve().parent


class Postgres:
    """A server with logical decoding, on a free port of loopback, as a context manager. Clients need no password.

    Root may not run PostgreSQL: then it runs as the user of Debian's package.
    """

    #: The part of a topic's name between the prefix and the table.
    schema = "public"

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="pykafka-wire-postgres-"))
        (self.port,) = free_ports(1)
        self._watchdog = Watchdog(self.folder)
        found = programs()
        assert found is not None, f"PostgreSQL is missing: install Debian's package {PACKAGE}"
        self._programs = found
        self.folder.chmod(0o755)
        self._owner = USER if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name
        #: Each statement that was run, in order.
        self.statements: list[str] = []

    def __enter__(self) -> Postgres:
        data = self.folder / "data"
        data.mkdir(mode=0o700)
        if self._owner == USER:
            shutil.chown(data, USER)
        command = self._command(
            "initdb", "-D", str(data), "-U", USER, "-A", "trust", "-E", "UTF8", "--locale", "C.UTF-8"
        )
        made = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, cwd="/")
        assert made.returncode == 0, made.stdout + made.stderr
        settings = {**SETTINGS, "port": str(self.port), "listen_addresses": HOST, "unix_socket_directories": ""}
        options = [text for name, value in settings.items() for text in ("-c", f"{name}={value}")]
        process = SupervisedProcess(
            "PostgreSQL",
            self._command("postgres", "-D", str(data), *options),
            self.folder / "postgres.log",
            self._watchdog,
            ready="database system is ready to accept connections",
        )
        process.spawn()
        wait_ready([process], TIMEOUT_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._watchdog.close()

    def run(self, *statements: str) -> None:
        """Run statements, each in a transaction of its own unless it says otherwise."""
        self.statements += statements
        self._psql(";\n".join(statements) + ";\n")

    def connector(self, prefix: str, servers: str) -> Mapping[str, str]:
        """The settings of Debezium's connector that are this database's."""
        name = re.sub(r"\W", "_", prefix)
        return {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "plugin.name": "pgoutput",
            "database.hostname": HOST,
            "database.port": str(self.port),
            "database.user": USER,
            "database.password": "unused",
            "database.dbname": DATABASE,
            "slot.name": name,
            "publication.name": name,
            "provide.transaction.metadata": "true",
            "signal.data.collection": "public.debezium_signal",
            "publish.via.partition.root": "true",
            "message.key.columns": "public.keyed_by_setting:a,b",
            "table.exclude.list": "public.partitioned_.*",
        }

    def kinds(self, table: str) -> dict[str, str]:
        """The type of each column of a table, by its name; that of a domain is the one beneath."""
        described = self.rows(
            "WITH RECURSIVE typed AS (SELECT attnum, attname, atttypid AS type, atttypmod AS modifier FROM pg_attribute"
            f" WHERE attrelid = '\"{table}\"'::regclass AND attnum > 0 AND NOT attisdropped UNION ALL"
            " SELECT attnum, attname, typbasetype, typtypmod FROM typed JOIN pg_type ON oid = type WHERE typtype = 'd')"
            " SELECT attname AS name, format_type(type, modifier) AS kind FROM typed JOIN pg_type ON oid = type"
            " WHERE typtype <> 'd' ORDER BY attnum"
        )
        return {row["name"]: row["kind"] for row in described}

    def rule_for(self, kind: str, *, has_schema: bool, others: Mapping[str, Rule]) -> Rule:
        """The rule of a type."""
        return rule_for(kind, has_schema=has_schema, others=others)

    def rows(self, query: str, names: Sequence[str] = ()) -> list[dict[str, Any]]:
        """What a query returns, each value as JSON has it."""
        printed = self._psql(f"SELECT row_to_json(q) FROM ({query}) AS q;\n")
        return [json.loads(line) for line in printed.splitlines()]

    def _psql(self, text: str) -> str:
        command = [str(self._programs / "psql"), "-h", HOST, "-p", str(self.port), "-U", USER, "-d", DATABASE]
        command += ["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-f", "-"]
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=TIMEOUT_S)
        assert done.returncode == 0, f"{done.stderr}\n{text[-3000:]}"
        return done.stdout

    def _command(self, program: str, *arguments: str) -> list[str]:
        path = str(self._programs / program)
        return (
            [path, *arguments]
            if os.getuid()
            else ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--init-groups", path, *arguments]
        )


def _install() -> str:
    """Install the package where it is missing; one sentence that says why it could not be."""
    if programs() is not None:
        return ""
    if os.getuid() != 0 or shutil.which("apt-get") is None:
        return f"make debezium needs a PostgreSQL server: install Debian's package {PACKAGE}."
    for command in (["apt-get", "update", "-q"], ["apt-get", "install", "-qy", PACKAGE]):
        subprocess.run(command, check=True, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
    return "" if programs() is not None else f"PostgreSQL is missing after the installation of {PACKAGE}."


if __name__ == "__main__":
    sys.exit(_install() or None)
