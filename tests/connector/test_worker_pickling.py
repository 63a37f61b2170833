"""What a Spark worker does with what Spark has pickled: it finds the package, and keeps it out of its garbage collections."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import pykafka_wire

#: Writes the data source, as a class and as an instance, and a reader to files.
SENDER = """
import sys
from pyspark import cloudpickle
from pyspark.sql.types import BinaryType, StructField, StructType
from pykafka_wire import PykafkaWireDataSource

source = PykafkaWireDataSource({"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"})
reader = source.reader(StructType([StructField("value", BinaryType())]))
for name, sent in {"class": PykafkaWireDataSource, "source": source, "reader": reader}.items():
    with open(name, "wb") as file:
        file.write(cloudpickle.dumps(sent))
"""
#: Loads one of them, with more folders on the path, and prints from where.
RECEIVER = """
import pickle, sys
name, *folders = sys.argv[1:]
sys.path[1:1] = folders
found = pickle.load(open(name, "rb"))
print(type(found).__name__, sys.modules["pykafka_wire"].__file__)
"""
#: The same, while somebody puts another archive in the place of the one that was just checked.
RACING_RECEIVER = (
    """
import hashlib, os, sys
checked, real = sys.argv.pop(1), hashlib.sha256

def sha256(*content):
    digest = real(*content)
    os.replace(checked + ".other", checked)
    hashlib.sha256 = real
    return digest

hashlib.sha256 = sha256
"""
    + RECEIVER
)
KINDS = {"class": "ClassSentToWorkers", "source": "PykafkaWireDataSource", "reader": "KafkaBatchReader"}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as a zip, without the metadata of a wheel."""
    package = Path(pykafka_wire.__file__).parent
    base = tmp_path_factory.mktemp("zipped") / "pykafka_wire"
    return Path(shutil.make_archive(str(base), "zip", package.parent, package.name))


@pytest.fixture(autouse=True)
def spark_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the application that Spark names to its workers."""
    folder = tmp_path / "spark"
    folder.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{folder},/elsewhere")
    return folder


def run(
    python: Path, code: str, folder: Path, *arguments: object, path: object = ""
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(python), "-c", code, *map(str, arguments)],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(path)}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def sent(archive: Path, bare_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what a Python has pickled that had the package from ``original/pykafka_wire.zip``; now it is in ``files``."""
    folder = tmp_path_factory.mktemp("sent")
    (folder / "original").mkdir()
    done = run(bare_python, SENDER, folder, path=shutil.copy(archive, folder / "original"))
    assert done.returncode == 0, done.stderr
    (folder / "original").rename(folder / "files")
    return folder


@pytest.fixture
def original(sent: Path) -> Iterator[Path]:
    """The archive where it was when it was sent."""
    (sent / "original").mkdir()
    yield Path(shutil.copy(sent / "files" / "pykafka_wire.zip", sent / "original"))
    shutil.rmtree(sent / "original")


@pytest.mark.parametrize("kind", KINDS)
def test_a_sent_archive_is_found_where_it_was(
    kind: str, sent: Path, original: Path, bare_python: Path, spark_folder: Path
) -> None:
    done = run(bare_python, RECEIVER, sent, kind)
    assert done.stdout.startswith(f"{KINDS[kind]} {spark_folder}/"), done.stderr
    (copied,) = spark_folder.glob(f"*/{original.name}")
    assert copied.read_bytes() == original.read_bytes()
    assert copied.parent.stat().st_mode & 0o777 == 0o700


def test_an_archive_that_is_replaced_after_its_check_is_not_imported(
    sent: Path, original: Path, bare_python: Path
) -> None:
    with zipfile.ZipFile(f"{original}.other", "w") as other:
        other.writestr("pykafka_wire/__init__.py", "raise SystemExit('code of another archive ran')")
    done = run(bare_python, RACING_RECEIVER, sent, original, "source")
    assert done.returncode == 0, done.stderr
    assert not Path(f"{original}.other").exists()


@pytest.mark.parametrize("mode", [0o777, 0o750])
def test_a_folder_that_others_may_enter_is_not_used(
    mode: int, sent: Path, original: Path, bare_python: Path, spark_folder: Path
) -> None:
    assert run(bare_python, RECEIVER, sent, "source").returncode == 0
    (folder,) = spark_folder.iterdir()
    folder.chmod(mode)
    (folder / original.name).write_bytes(b"something else")
    done = run(bare_python, RECEIVER, sent, "source")
    assert f"{spark_folder}/" in done.stdout, done.stderr
    assert f"{folder}/" not in done.stdout


def test_workers_share_the_copy_and_mend_a_damaged_one(
    sent: Path, original: Path, bare_python: Path, spark_folder: Path
) -> None:
    assert run(bare_python, RECEIVER, sent, "source").returncode == 0
    (copied,) = spark_folder.glob("*/*")
    copied.write_bytes(b"damaged")
    assert f"{copied}/" in run(bare_python, RECEIVER, sent, "source").stdout
    assert [*spark_folder.glob("*/*")] == [copied]


@pytest.mark.parametrize("folder", ["files", "files/streaming_job"])
def test_a_sent_archive_is_found_in_sparks_files(
    folder: str, sent: Path, bare_python: Path, spark_folder: Path
) -> None:
    """On another machine, in the folder that Spark puts on the path, or in its parent, if Spark's folder does not exist."""
    done = run(bare_python, RECEIVER, sent, "source", sent / folder)
    assert f" {spark_folder}/" in done.stdout, done.stderr


def test_another_file_of_that_name_is_not_used(sent: Path, original: Path, bare_python: Path) -> None:
    with original.open("ab") as file:
        file.write(b"more")
    done = run(bare_python, RECEIVER, sent, "source")
    assert "[PYKAFKA_WIRE_NOT_INSTALLED] The Python of this Spark worker has no package pykafka_wire" in done.stderr
    assert str(bare_python) in done.stderr and "--py-files" in done.stderr


@pytest.mark.usefixtures("original")
def test_a_sent_archive_comes_before_an_installed_package(sent: Path, spark_folder: Path) -> None:
    done = run(Path(sys.executable), RECEIVER, sent, "reader")
    assert f" {spark_folder}/" in done.stdout, done.stderr


def test_an_installed_package_does_where_the_archive_is_missing(sent: Path) -> None:
    done = run(Path(sys.executable), RECEIVER, sent, "reader")
    assert pykafka_wire.__file__ in done.stdout, done.stderr


def test_a_worker_with_another_version_is_reported(sent: Path, bare_python: Path, tmp_path: Path) -> None:
    package = shutil.copytree(Path(pykafka_wire.__file__).parent, tmp_path / "pykafka_wire")
    module = package / "__init__.py"
    text = module.read_text().replace(f'"{pykafka_wire.__version__}"', '"0.0.9"')
    module.write_text(text)
    done = run(bare_python, RECEIVER, sent, "reader", path=tmp_path)
    assert f"[PYKAFKA_WIRE_VERSION_MISMATCH] The driver has pykafka-wire {pykafka_wire.__version__}" in done.stderr
    assert f"this Spark worker 0.0.9, in {module}" in done.stderr
    assert run(bare_python, RECEIVER, sent, "class", path=tmp_path).returncode == 0, (
        "a name and options are of any version"
    )


def test_a_class_of_a_users_own_is_sent_as_any_other() -> None:
    from pyspark import cloudpickle

    from pykafka_wire import PykafkaWireDataSource

    class Orders(PykafkaWireDataSource):
        @classmethod
        def name(cls) -> str:
            return "orders"

    assert pickle.loads(cloudpickle.dumps(Orders)).name() == "orders"


@pytest.mark.parametrize("kept", ["1", ""])
def test_only_a_worker_that_spark_keeps_is_spared_collections(kept: str) -> None:
    code = """
        import gc, pickle
        from pyspark import cloudpickle
        from pyspark.sql.types import BinaryType, StructField, StructType
        from pykafka_wire.options.source import parse_source_options
        from pykafka_wire.source.batch_reader import KafkaBatchReader

        options = parse_source_options({"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"}, "batch")
        reader = KafkaBatchReader(options, StructType([StructField("value", BinaryType())]))
        sent = cloudpickle.dumps(reader)
        assert not gc.get_freeze_count()
        pickle.loads(sent)
        frozen = gc.get_freeze_count()
        pickle.loads(sent)
        assert gc.get_freeze_count() == frozen, "done once, or each task would leave its garbage behind"
        print(frozen)
    """
    # Spark sets it for workers that are kept for the next task, after each of which its daemon collects.
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_REUSE_WORKER"}
    if kept:
        environment["SPARK_REUSE_WORKER"] = kept
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment,
    )
    assert found.returncode == 0, found.stderr
    assert (int(found.stdout) > 10_000) is bool(kept)
