from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pykafka_wire.local import Java, ensure_java
from pykafka_wire.local.class_archive import class_archive, ensure_class_archive
from pykafka_wire.local.cluster import free_ports
from pykafka_wire.local.jars import KAFKA_VERSION, kafka_jars
from pykafka_wire.local.node import JavaLauncher

pytestmark = pytest.mark.usefixtures("java")


@pytest.fixture
def jars(tmp_path: Path) -> list[Path]:
    """Kafka's jars in a folder without an archive."""
    folder = tmp_path / "jars"
    folder.mkdir()
    for jar in kafka_jars():
        (folder / jar.name).symlink_to(jar)
    return sorted(folder.iterdir())


def run_without_arguments(jars: list[Path], archive: Path, folder: Path) -> tuple[str, str, int]:
    """What kafka.Kafka prints of its usage, to either stream, and how many classes came from the archive."""
    loaded = folder / "loaded.log"
    command = JavaLauncher(ensure_java(), jars, KAFKA_VERSION, folder, archive).tool(
        "kafka.Kafka", (), [f"-Xlog:class+load:file={loaded}"]
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done.stderr
    return done.stdout, done.stderr, loaded.read_text().count("shared objects file (top)")


def test_made_once_by_one_of_two_and_used(jars: list[Path], tmp_path: Path) -> None:
    java = ensure_java()
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(ensure_class_archive, java, jars, KAFKA_VERSION, free_ports(2)) for _ in range(2)]
    archives = {each.result() for each in asked}
    (archive,) = jars[0].parent.glob("classes-*.jsa")
    assert archives == {archive}
    made = archive.stat().st_mtime_ns
    assert ensure_class_archive(java, jars, KAFKA_VERSION, free_ports(2)) == archive
    assert archive.stat().st_mtime_ns == made
    assert [path.name for path in jars[0].parent.glob(".*")] == []

    out, error, shared = run_without_arguments(jars, archive, tmp_path)
    assert shared > 100
    # Where Java cannot take it, it goes on without, and prints the same.
    assert run_without_arguments([*jars[1:], jars[0]], archive, tmp_path) == (out, error, 0)
    assert run_without_arguments(jars, tmp_path / "missing", tmp_path) == (out, error, 0)


def test_an_attempt_that_failed_is_not_repeated(jars: list[Path], tmp_path: Path) -> None:
    home, attempts = tmp_path / "java", tmp_path / "attempts"
    (home / "bin").mkdir(parents=True)
    executable = home / "bin" / "java"
    executable.write_text(f"#!/bin/sh\necho one >>{attempts}\nexit 1\n")
    executable.chmod(0o755)
    java = Java(home=home, version=17, origin="the test")
    for _ in range(2):
        assert ensure_class_archive(java, jars, KAFKA_VERSION, free_ports(2)) is None
    assert attempts.read_text() == "one\n"


def test_a_cache_that_cannot_be_written_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    jars = [tmp_path / "file" / "kafka.jar"]  # not even root can make a file there
    assert ensure_class_archive(ensure_java(), jars, KAFKA_VERSION, free_ports(2)) is None


def test_each_java_has_its_own(jars: list[Path], tmp_path: Path) -> None:
    def of(release: str) -> Path:
        (tmp_path / "release").write_text(release)
        return class_archive(Java(home=tmp_path, version=17, origin="the test"), jars)

    assert of('JAVA_VERSION="17.0.15"') == of('JAVA_VERSION="17.0.15"') != of('JAVA_VERSION="17.0.16"')


def test_brokers_with_zookeeper_have_none(jars: list[Path]) -> None:
    assert ensure_class_archive(ensure_java(), jars, "2.8.2", free_ports(2)) is None
    assert list(jars[0].parent.glob("*.jsa")) == []
