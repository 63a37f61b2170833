from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pykafka_wire.local import Java, ensure_java
from pykafka_wire.local.jars import ivy_jar
from pykafka_wire.local.spark_classes import SparkClasses

pytestmark = pytest.mark.usefixtures("java")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYKAFKA_WIRE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "classes"


def of_ivy(java: Java | None = None) -> SparkClasses:
    """The archive of a small program: Java knows nothing of Spark."""
    return SparkClasses(java or ensure_java(), Path("/spark"), [ivy_jar()])


def run(options: list[str], folder: Path) -> int:
    """Run the program with Java's options; return how many of its classes came from an archive of ours."""
    loaded = folder / "loaded.log"
    command = [ensure_java().executable, *options, f"-Xlog:class+load:file={loaded}"]
    done = subprocess.run(
        [*command, "-cp", ivy_jar(), "org.apache.ivy.Main", "-version"], capture_output=True, text=True
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert done.stdout.startswith("Apache Ivy"), "Java has printed something of its own"
    return loaded.read_text().count("shared objects file (top)")


def recorded(folder: Path) -> Path:
    """Record one run to its end; return its file."""
    classes = of_ivy()
    options = classes.options()
    assert run(options, folder) == 0
    classes.keep_class_path(str(ivy_jar()))
    return Path(options[0].partition("=")[2])


def test_the_second_start_uses_what_the_first_one_recorded(cache: Path, tmp_path: Path) -> None:
    recorded(tmp_path)
    assert run(of_ivy().options(), tmp_path) > 10
    assert run(of_ivy().options(), tmp_path) > 10
    assert sorted(path.suffix for path in cache.iterdir()) == ["", ".jsa"]


def test_two_starts_at_the_same_time_leave_one_archive(cache: Path, tmp_path: Path) -> None:
    other = of_ivy()
    options = other.options()
    recorded(tmp_path)
    assert run(of_ivy().options(), tmp_path) > 10
    run(options, tmp_path)  # the other one ends later
    other.keep_class_path(str(ivy_jar()))
    assert run(of_ivy().options(), tmp_path) > 10
    assert len(list(cache.glob("*.jsa"))) == 1 and not list(cache.glob(".*"))


def test_what_a_start_recorded_that_was_given_up_is_not_used(cache: Path, tmp_path: Path) -> None:
    run(of_ivy().options(), tmp_path)  # no class path is kept: Spark has not started
    whole = recorded(tmp_path).stat().st_size
    assert run(of_ivy().options(), tmp_path) > 10
    (archive,) = cache.glob("spark-*.jsa")
    assert archive.stat().st_size == whole


@pytest.mark.parametrize("kept", (0.3, 0.99))
def test_an_archive_that_was_cut_off_is_never_used(cache: Path, tmp_path: Path, kept: float) -> None:
    for _ in range(3):
        cut = recorded(tmp_path)
        cut.chmod(0o600)
        os.truncate(cut, int(cut.stat().st_size * kept))
        assert of_ivy().options() == [], "Java may be writing it"
        os.utime(cut, (0, 0))
    assert of_ivy().options() == [], "three runs have left none: the fourth one records none"
    assert sum(path.stat().st_size for path in cache.glob(".*.recorded")) == 0


@pytest.mark.parametrize("option", ("-Xshare:off", "-XX:-UseCompressedClassPointers"))
def test_a_java_that_cannot_record_starts_all_the_same(
    cache: Path, tmp_path: Path, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", option)
    for _ in range(4):
        assert of_ivy().options() == []
    assert len(list(cache.glob(".*"))) == 3


def test_other_jars_and_another_java_have_archives_of_their_own(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(ensure_java().executable)

    def archive(release: str, *jars: str) -> str:
        (tmp_path / "release").write_text(release)
        java = Java(home=tmp_path, version=17, origin="the test")
        return SparkClasses(java, Path("/spark"), [*map(Path, jars)]).options()[0].rpartition(".jsa")[0]

    assert archive("17.0.15", "delta.jar") == archive("17.0.15", "delta.jar")
    assert len({archive("17.0.15", "delta.jar"), archive("17.0.16", "delta.jar"), archive("17.0.15")}) == 3


def test_a_cache_that_cannot_be_written_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PYKAFKA_WIRE_CACHE", str(tmp_path / "file"))  # not even root can make a folder there
    assert of_ivy().options() == []
    of_ivy().keep_class_path(str(ivy_jar()))


#: A session as commands have it, which prints what Java was given.
PROGRAM = """
from pykafka_wire.cli.session import SessionStart
spark = SessionStart("test").session()
spark.range(3).write.format("delta").save({folder!r})
print(spark.conf.get("spark.driver.extraJavaOptions"), spark.read.format("delta").load({folder!r}).count())
"""


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_spark_starts_from_its_archive(cache: Path, tmp_path: Path) -> None:
    printed = []
    for number in range(2):
        program = PROGRAM.format(folder=str(tmp_path / f"table{number}"))
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        printed.append(done.stdout)
        for _ in range(600):  # Java writes the archive after Python's end
            if not list(cache.glob(".*")) or next(cache.glob(".*")).stat().st_size:
                break
            subprocess.run(["sleep", "0.2"], check=True)
    assert "ArchiveClassesAtExit" in printed[0] and "SharedArchiveFile" in printed[1]
    assert all(text.split()[-1] == "3" for text in printed)
