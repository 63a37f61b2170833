"""A catalog of Iceberg's REST protocol: the server of Iceberg's own compatibility tests, over a database in SQLite."""

from __future__ import annotations

import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pykafka_wire.local.cluster import free_ports
from pykafka_wire.local.jars import Coordinate, classpath, resolve
from pykafka_wire.local.java import ensure_java
from tests.quick_start import JVM_OPTIONS

#: Iceberg's newest; there is no runtime for Spark 4.2.
RUNTIME: Final = Coordinate("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", "1.12.0")
#: The newest release whose server is on Maven Central.
_SERVER: Final = "1.10.1"
_SERVER_JARS: Final = (
    Coordinate("org.apache.iceberg", "iceberg-open-api", _SERVER, "test-fixtures"),
    Coordinate("org.apache.iceberg", "iceberg-core", _SERVER, "tests"),
)
_LIBRARIES: Final = (
    Coordinate("org.apache.iceberg", "iceberg-core", _SERVER),
    Coordinate("org.eclipse.jetty", "jetty-servlet", "11.0.26"),
    Coordinate("org.xerial", "sqlite-jdbc", "3.50.3.0"),
    Coordinate("org.apache.hadoop", "hadoop-client-runtime", "3.4.1"),
)
_READY_S: Final = 120.0


def runtime_jar() -> Path:
    """Iceberg's runtime for Spark 4.1."""
    (found,) = resolve(f"iceberg-runtime-{RUNTIME.version}", [RUNTIME], transitive=False)
    return found


@contextmanager
def rest_catalog(folder: Path) -> Iterator[str]:
    """The URL of a catalog whose tables are in ``folder``."""
    jars = resolve(f"iceberg-rest-{_SERVER}", _SERVER_JARS, transitive=False)
    jars += resolve(f"iceberg-rest-libraries-{_SERVER}", _LIBRARIES, transitive=True)
    (port,) = free_ports(1)
    given = {
        "CATALOG_CATALOG__IMPL": "org.apache.iceberg.jdbc.JdbcCatalog",
        "CATALOG_URI": f"jdbc:sqlite:{folder}/catalog.db",
        "CATALOG_WAREHOUSE": f"file://{folder}/warehouse",
        "CATALOG_REST_PORT": str(port),
    }
    program = "org.apache.iceberg.rest.RESTCatalogServer"
    command = [str(ensure_java().executable), *JVM_OPTIONS, "-cp", classpath(jars), program]
    with (folder / "catalog.log").open("wb") as log:
        server = subprocess.Popen(command, env={**os.environ, **given}, stdout=log, stderr=log)
        try:
            url = f"http://127.0.0.1:{port}"
            deadline = time.monotonic() + _READY_S
            while True:
                try:
                    urllib.request.urlopen(f"{url}/v1/config", timeout=5).close()
                    break
                except (urllib.error.URLError, OSError):
                    text = (folder / "catalog.log").read_text(errors="replace")[-3000:]
                    assert server.poll() is None and time.monotonic() < deadline, text
                    time.sleep(0.2)
            yield url
        finally:
            server.terminate()
            server.wait(30)
