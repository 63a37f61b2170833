"""A release as users meet it: sdist and wheel, in empty environments. `make release-check`; `make deployments` sends the wheel.

What an environment gets comes from the package index, so this takes minutes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pykafka_wire.local import java as javas
from tests.connector.deployments.run import environment_with

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("program.py")
_TIMEOUT_S = 1200

pytestmark = [pytest.mark.long, pytest.mark.timeout(2 * _TIMEOUT_S)]


def run(*command: str | Path, code: int = 0, **more: Any) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=_TIMEOUT_S, **more)
    assert done.returncode == code, done.stdout[-3000:] + done.stderr[-6000:]
    return done.stdout + done.stderr


def clean_environment(python: Path, **more: str) -> dict[str, str]:
    """As after activating the environment of `python`, with nothing of ours."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_", "PYTHON"))}
    path = os.pathsep.join([str(python.parent), kept["PATH"]])
    return kept | {"PATH": path, "VIRTUAL_ENV": str(python.parent.parent), "SPARK_LOCAL_IP": "127.0.0.1"} | more


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the sdist, as a release is; tests/connector/test_packaging.py looks into both."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT)
    run(sys.executable, "-m", "twine", "check", "--strict", *sorted(folder.iterdir()))
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def with_spark(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment_with(tmp_path_factory.mktemp("with-spark"), f"{wheel}[spark]")


@pytest.fixture(scope="module")
def spark_alone(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Spark and what the package depends on, without the package."""
    python = environment_with(tmp_path_factory.mktemp("spark-alone"), f"{wheel}[spark]", "pyspark[connect]")
    run(python, "-m", "pip", "uninstall", "-q", "-y", "pykafka-wire")
    run(python, "-c", "import pykafka_wire", code=1, cwd=python.parent)
    return python


@pytest.fixture(scope="module")
def without_extras(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment_with(tmp_path_factory.mktemp("without-extras"), str(wheel))


def test_installed_with_spark_it_is_found_by_its_name(with_spark: Path, kafka: Any, topic: Any, tmp_path: Path) -> None:
    arguments = [kafka.bootstrap_servers, topic(2), "installed"]
    printed = run(with_spark, PROGRAM, *arguments, cwd=tmp_path, env=clean_environment(with_spark))
    assert "DONE 100" in printed


@pytest.mark.parametrize("home", sorted(javas.LINUX_JVMS.glob("*")) or [None], ids=lambda home: home and home.name)
def test_on_every_java_that_is_installed(
    home: Path | None, with_spark: Path, kafka: Any, topic: Any, tmp_path: Path
) -> None:
    found = home and not home.is_symlink() and javas.probe(home, "here")
    if not found or found.version < javas.MINIMUM:
        pytest.skip("no Java of its own, or too old for Spark 4")
    print(f"Java {found.version}")
    arguments = [kafka.bootstrap_servers, topic(2), "installed"]
    printed = run(with_spark, PROGRAM, *arguments, cwd=tmp_path, env=clean_environment(with_spark, JAVA_HOME=str(home)))
    assert "DONE 100" in printed


def test_a_pyspark_python_without_the_package_is_reported_by_spark(
    with_spark: Path, spark_alone: Path, wheel: Path, kafka: Any, topic: Any, tmp_path: Path
) -> None:
    """As docs/operations.md says. Spark looks data sources up, and builds them, in a process of that Python."""
    settings = {"cwd": tmp_path, "env": clean_environment(with_spark, PYSPARK_PYTHON=str(spark_alone)), "code": 1}
    arguments = [kafka.bootstrap_servers, topic()]
    assert "DATA_SOURCE_NOT_FOUND" in run(with_spark, PROGRAM, *arguments, "installed", **settings)
    registered = run(with_spark, PROGRAM, *arguments, "registered", **settings)
    assert "[PYKAFKA_WIRE_NOT_INSTALLED]" in registered and str(spark_alone) in registered


def test_without_extras_the_client_works_and_what_is_missing_is_named(
    without_extras: Path, kafka: Any, topic: Any, tmp_path: Path
) -> None:
    code = """
import sys
from pykafka_wire.wire.consumer import Consumer
from pykafka_wire.wire.record_producer import RecordProducer
servers, topic = sys.argv[1:]
with RecordProducer({"bootstrap.servers": servers, "compression.type": "zstd"}) as producer:
    producer.send(topic, b"a value", key=b"a key")
try:
    from pykafka_wire import PykafkaWireDataSource
except ImportError as error:
    print(error)
from pykafka_wire.values.registry.address import Registry
from pykafka_wire.values.registry.client import RegistryClient
try:
    RegistryClient(Registry("http://localhost:1")).latest("orders-value")
except Exception as error:
    print(error)
"""
    settings = {"cwd": tmp_path, "env": clean_environment(without_extras)}
    said = run(without_extras, "-c", code, kafka.bootstrap_servers, topic(), **settings)
    assert "[PYKAFKA_WIRE_SPARK_VERSION] pyspark is not installed. pip install 'pykafka-wire[spark]'" in said
    assert "[PYKAFKA_WIRE_NOT_INSTALLED]" in said and "pip install 'pykafka-wire[values]'" in said
    command = without_extras.with_name("pykafka-wire")
    assert "pip install 'pykafka-wire[cli]'" in run(command, "--help", code=1, **settings)


def test_an_ingest_names_all_that_lacks_before_it_starts(
    without_extras: Path, wheel: Path, kafka: Any, tmp_path: Path
) -> None:
    python = environment_with(tmp_path / "command", f"{wheel}[cli]")
    command = [
        python.with_name("pykafka-wire"),
        "ingest",
        "-b",
        kafka.bootstrap_servers,
        "--topics",
        "x",
        "--into",
        "./lake",
    ]
    settings = {"cwd": tmp_path, "env": clean_environment(python), "code": 1}
    said = run(*command, "--format", "json", **settings)
    assert "pip install 'pykafka-wire[delta]'" in said and "  pandas, for tasks" in said and "Traceback" not in said
    said = run(*command, "--registry", "http://localhost:1", "--ui", "0", "--metrics-port", "0", **settings)
    assert "pip install 'pykafka-wire[delta,ui,prometheus]'" in said, "urllib3 comes with the command"


def test_a_newcomer_lands_json_with_inferred_columns_by_the_wheel_alone(
    wheel: Path, kafka: Any, topic: Any, tmp_path: Path
) -> None:
    """Columns are inferred by Spark, and tasks write the rows, so that pandas must have been installed with the extra."""
    python = environment_with(tmp_path / "newcomer", f"{wheel}[delta,cli,ui]")
    command = python.with_name("pykafka-wire")
    settings = {"cwd": tmp_path, "env": clean_environment(python, PYKAFKA_WIRE_BOOTSTRAP=kafka.bootstrap_servers)}
    name = topic(2)
    run(command, "produce", name, '{"id": 1, "who": {"name": "Ann"}}', '{"id": 2, "who": {"name": "Bob"}}', **settings)
    asked = ["--topics", name, "--into", "./lake", "--format", "json"]
    printed = run(command, "ingest", *asked, "--once", "--ui", "0", **settings)
    assert "2 rows landed" in printed and "stopped" not in printed and "retrying" not in printed
    code = "import deltalake, sys; print(*deltalake.DeltaTable(sys.argv[1]).to_pyarrow_table()['who'].to_pylist())"
    landed = run(python, "-c", code, tmp_path / "lake" / name.replace("-", "_"), **settings)
    assert "{'name': 'Ann'}" in landed and "{'name': 'Bob'}" in landed


def test_with_the_extras_what_they_bring_works(
    without_extras: Path, wheel: Path, kafka: Any, topic: Any, tmp_path: Path
) -> None:
    python = environment_with(tmp_path / "extras", f"{wheel}[cli,pkcs12,values]")
    settings = {"cwd": tmp_path, "env": clean_environment(python)}
    name = topic(3)
    assert name in run(python.with_name("pykafka-wire"), "topics", "--bootstrap", kafka.bootstrap_servers, **settings)
    code = """
from pykafka_wire.values.optional_libraries import library
for name in ("jsonschema", "google.protobuf", "urllib3", "cryptography"):
    library(name, "a test")
"""
    run(python, "-c", code, **settings)
