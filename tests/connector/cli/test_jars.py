"""``jars``: what Spark needs for Delta, and work without a network."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pykafka_wire.local import cache_dir, delta_jars

#: Starts Spark with Delta as commands do, and writes and reads a table.
PROGRAM = """
import sys
from pykafka_wire.cli.session import session
spark = session("test")
spark.range(3).write.format("delta").save(sys.argv[1])
print("rows", spark.read.format("delta").load(sys.argv[1]).count())
"""


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The cache as another machine has it: Delta's jars alone."""
    (folder,) = {jar.parent for jar in delta_jars()}
    shutil.copytree(folder, tmp_path / "cache" / folder.relative_to(cache_dir()))
    return tmp_path / "cache"


@pytest.fixture
def without_repositories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No jar can be downloaded."""
    file = tmp_path / "ivysettings.xml"
    file.write_text(
        '<ivysettings><settings defaultResolver="none"/><resolvers><filesystem name="none">'
        f'<artifact pattern="{tmp_path}/nothing/[artifact]-[revision].[ext]"/></filesystem></resolvers></ivysettings>'
    )
    monkeypatch.setenv("PYKAFKA_WIRE_IVY_SETTINGS", str(file))


@pytest.mark.spark
def test_a_cache_that_was_copied_is_used_without_a_network(
    copied: Path,
    without_repositories: None,
    command: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("PYKAFKA_WIRE_CACHE", str(tmp_path / "empty"))
    said = command("jars", code=1).stderr
    assert "could not get io.delta:" in said and "PYKAFKA_WIRE_IVY_SETTINGS" in said
    monkeypatch.setenv("PYKAFKA_WIRE_CACHE", str(copied))
    found = json.loads(command("jars", "--json").stdout)
    assert found["folder"] == str(copied) and len(found["jars"]) == 2
    assert all(Path(jar).is_relative_to(copied) for jar in found["jars"])
    assert "PYKAFKA_WIRE_CACHE" in command("jars").stdout


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_spark_starts_with_delta_where_there_is_no_network_at_all(copied: Path, tmp_path: Path) -> None:
    """In a network namespace of its own, which has the loopback device alone."""
    alone = ["unshare", "--user", "--map-root-user", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    environment = {**os.environ, "PYKAFKA_WIRE_CACHE": str(copied), "SPARK_LOCAL_IP": "127.0.0.1"}
    unreachable = "import socket; socket.create_connection(('192.0.2.1', 80), 3)"
    probe = subprocess.run([*alone, sys.executable, "-c", unreachable], capture_output=True, text=True)
    assert "Network is unreachable" in probe.stderr, probe.stderr
    done = subprocess.run(
        [*alone, sys.executable, "-c", PROGRAM, str(tmp_path / "table")],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert "rows 3" in done.stdout, done.stderr
