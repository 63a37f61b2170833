from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from pykafka_wire.local import cache_dir, delta_jars
from pykafka_wire.local.jars import Coordinate, JarResolutionError, ivy_jar, kafka_jars, release, resolve, tool_jars

pytestmark = pytest.mark.usefixtures("java")
WIDGET = Coordinate("example.org", "widget", "1.0")
GADGET = Coordinate("example.org", "gadget", "2.0")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Maven repository in a folder, named to Ivy by a settings file, and an empty cache. widget needs gadget."""
    root = tmp_path / "maven"
    publish(root, GADGET, "")
    publish(
        root,
        WIDGET,
        f"<dependencies><dependency><groupId>{GADGET.group}</groupId><artifactId>{GADGET.artifact}</artifactId>"
        f"<version>{GADGET.version}</version></dependency></dependencies>",
    )
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="folder"/><resolvers>'
        f'<ibiblio name="folder" m2compatible="true" root="{root.as_uri()}/"/></resolvers></ivysettings>'
    )
    monkeypatch.setenv("PYKAFKA_WIRE_IVY_SETTINGS", str(settings))
    monkeypatch.setenv("PYKAFKA_WIRE_CACHE", str(tmp_path / "cache"))
    return root


def publish(root: Path, coordinate: Coordinate, dependencies: str) -> None:
    folder = root.joinpath(*coordinate.group.split("."), coordinate.artifact, coordinate.version)
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / f"{coordinate.artifact}-{coordinate.version}.jar", "w") as jar:
        jar.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\n")
    (folder / f"{coordinate.artifact}-{coordinate.version}.pom").write_text(
        "<project><modelVersion>4.0.0</modelVersion>"
        f"<groupId>{coordinate.group}</groupId><artifactId>{coordinate.artifact}</artifactId>"
        f"<version>{coordinate.version}</version>{dependencies}</project>"
    )


def names(jars: list[Path]) -> list[str]:
    return [jar.name for jar in jars]


def test_the_cache_is_outside_of_the_project_and_can_be_moved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PYKAFKA_WIRE_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_dir() == Path.home() / ".cache" / "pykafka-wire"
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    assert cache_dir() == Path.home() / ".cache" / "pykafka-wire"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_dir() == tmp_path / "pykafka-wire"
    monkeypatch.setenv("PYKAFKA_WIRE_CACHE", "~/elsewhere")
    assert cache_dir() == Path.home() / "elsewhere"


def test_dependencies_come_along_only_when_asked_for(repository: Path) -> None:
    assert names(resolve("with", [WIDGET], transitive=True)) == ["gadget-2.0.jar", "widget-1.0.jar"]
    assert names(resolve("without", [WIDGET], transitive=False)) == ["widget-1.0.jar"]


def test_a_resolved_set_needs_neither_network_nor_java_again(
    repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first = resolve("set", [WIDGET], transitive=True)
    repository.rename(tmp_path / "gone")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert resolve("set", [WIDGET], transitive=True) == first


def test_other_coordinates_under_the_same_name_are_another_set(repository: Path) -> None:
    assert names(resolve("set", [GADGET], transitive=True)) == ["gadget-2.0.jar"]
    assert names(resolve("set", [WIDGET], transitive=True)) == ["gadget-2.0.jar", "widget-1.0.jar"]


def test_a_missing_jar_is_named_with_the_remedy_and_leaves_no_folder(repository: Path) -> None:
    missing = Coordinate("example.org", "nothing", "9")
    with pytest.raises(JarResolutionError, match=r"could not get example\.org:nothing:9.*PYKAFKA_WIRE_IVY_SETTINGS"):
        resolve("set", [WIDGET, missing], transitive=True)
    assert list((cache_dir() / "jars").iterdir()) == []


def test_what_a_killed_download_left_is_never_used_and_removed(repository: Path) -> None:
    whole = resolve("set", [WIDGET], transitive=True)[0].parent
    left = whole.parent / f".{whole.name}.abc"
    whole.rename(left)  # as if it had been killed before it could publish
    (left / "widget-1.0.jar").unlink()
    assert names(resolve("set", [WIDGET], transitive=True)) == ["gadget-2.0.jar", "widget-1.0.jar"]
    assert not left.exists()


def test_of_several_processes_one_downloads_and_the_others_wait(repository: Path) -> None:
    program = (
        "import logging; logging.basicConfig()\n"
        "from pykafka_wire.local.jars import Coordinate, resolve\n"
        f"print(len(resolve('set', [Coordinate{tuple(WIDGET)!r}], transitive=True)))"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    ended = [process.communicate(timeout=120) for process in running]
    assert [out.strip() for out, _ in ended] == ["2", "2", "2"], ended
    assert sum("downloading" in error for _, error in ended) == 1


def test_kafka_comes_with_its_server_its_tools_and_a_logger() -> None:
    found = set(names(kafka_jars()))
    assert {"kafka_2.13-4.4.0.jar", "kafka-clients-4.4.0.jar"} <= found
    assert {"kafka-tools-4.3.1.jar", "kafka-clients-4.3.1.jar"} <= set(names(tool_jars()))
    assert any(name.startswith("log4j-slf4j-impl-") for name in found)
    assert not any(name.startswith("connect-") for name in found)


def test_delta_comes_alone() -> None:
    assert names(delta_jars()) == ["delta-spark_4.2_2.13-4.4.0.jar", "delta-storage-4.4.0.jar"]


def test_ivy_is_the_one_that_pyspark_ships() -> None:
    assert ivy_jar().parent.name == "jars"
    assert ivy_jar().parent.parent.name == "pyspark"


def test_versions_compare_by_their_numbers() -> None:
    assert release("2.5.1") < release("2.8.2") < release("3.10.0") < release("4.3.1")
