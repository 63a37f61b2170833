"""Real brokers and a real Spark session for every test that asks for them.

Brokers: those that PYKAFKA_WIRE_TEST_BOOTSTRAP names, else a local cluster (pykafka_wire.testing). In CI (CI=true) a broker
test that is skipped fails; only those marked `docker` may be.
Local brokers are of the newest release, or of that which PYKAFKA_WIRE_TEST_KAFKA names (`make matrix`), which may also be a
broker that is not Apache Kafka (`make brokers`); tests that such brokers cannot serve are left out, and the report says why.
"""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from hypothesis import settings as hypothesis_settings

from pykafka_wire.local import (
    KafkaTools,
    LocalCluster,
    LocalRegistry,
    delta_jars,
    ensure_java,
    export_java_home,
    jvm_connector_jars,
    named_cluster,
    spark_avro_jars,
)
from pykafka_wire.local.registry import download_registry
from tests.broker_features import BROKERS, lacking
from tests.brokers.kfake import kfake
from tests.brokers.lacks import fails_for
from tests.brokers.mock_cluster import MockCluster, mock_cluster
from tests.forked_runners import forked_runners
from tests.quick_start import JVM_OPTIONS, QUICK_GROUPS, quick_spark
from tests.scheduling import FilesByServer, in_order, tell_scheduler
from tests.shared_servers import NAMES, SERVERS, SharedServers, fixtures_of, shared

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pykafka_wire.testing import TopicFactory
    from tests.wire.secured import Secured

pytest_plugins = ["pykafka_wire.testing"]

# How long an example takes says more of the machine than of the code.
hypothesis_settings.register_profile("no deadline", deadline=None)
hypothesis_settings.load_profile("no deadline")

ROOT = Path(__file__).resolve().parent.parent
CONF = ROOT / "conf"
BROKER_FIXTURES = {"kafka", "kafka_cluster", "topic"}.union(
    *(asking for name, asking in NAMES.items() if name != "registry_url")
)
#: A test with one of these markers is not for `make check`.
NOT_UNIT = ("broker", "spark", "docker", "long")
#: Brokers that are not Apache Kafka, by the name that PYKAFKA_WIRE_TEST_KAFKA has for them.
OTHER_BROKERS = {"kfake": kfake, "librdkafka": mock_cluster}


class ClusterFactory(Protocol):
    """Starts a cluster of the test's own; it is closed when the test ends. Arguments as LocalCluster's."""

    def __call__(self, nodes: int = 1, properties: Mapping[str, str] | None = None, **more: Any) -> LocalCluster: ...


def pytest_configure(config: pytest.Config) -> None:
    config.stash[SERVERS] = SharedServers()
    if config.getoption("numprocesses", None) and named_cluster() is not None:
        raise pytest.UsageError(
            "tests on named brokers share them, and some take topics of the same name: run them with WORKERS=0"
        )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the collector of garbage, which would search all modules and tests again and again: a quarter of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


#: Why tests were left out -> how many.
LEFT_OUT: pytest.StashKey[Counter[str]] = pytest.StashKey()


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None, object, object]:
    for item in items:
        _add_markers(item)
    chosen = yield  # -m and -k have chosen: what they leave out is not reported
    _leave_out(config, items)
    servers = config.stash[SERVERS]
    servers.plan(items)
    if hasattr(config, "workerinput"):
        in_order(items, servers)
        tell_scheduler(config, items, servers)
    return chosen


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    try:
        return (yield)
    finally:
        if nextitem is None or nextitem.path != item.path:
            servers = item.config.stash[SERVERS]
            servers.end_all_but(servers.needed(nextitem.path) if nextitem is not None else ())


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[SERVERS].end_all_but(())


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if config.getoption("dist") != "loadfile":
        return None
    return FilesByServer(config, log)


def _add_markers(item: pytest.Item) -> None:
    fixtures = set(fixtures_of(item))
    if fixtures & BROKER_FIXTURES:
        item.add_marker("broker")
    if "spark" in fixtures:
        item.add_marker("spark")
    own = item.get_closest_marker("timeout")
    if "registry_url" in fixtures and (own is None or own.args[0] < 1_800):
        item.add_marker(pytest.mark.timeout(1_800))  # the first one downloads the registry
    if "secured_kafka" in fixtures:
        item.add_marker(pytest.mark.needs("SCRAM users before the first start"))
    if "java" not in fixtures and not any(item.get_closest_marker(name) for name in NOT_UNIT):
        item.add_marker("unit")


def _leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Removes the tests that the brokers cannot serve."""
    left_out = config.stash.setdefault(LEFT_OUT, Counter())
    kept = []
    for item in items:
        needed = [feature for marker in item.iter_markers("needs") for feature in marker.args]
        reasons = lacking(needed)
        other = fails_for(BROKERS, item.nodeid, fixtures_of(item))
        reasons += [other] if other else []
        if reasons:
            left_out[reasons[0]] += 1
            config.hook.pytest_deselected(items=[item])
        else:
            kept.append(item)
    items[:] = kept


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left out"] = dict(session.config.stash.get(LEFT_OUT, Counter()))


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_testnodedown(node: Any) -> None:
    # Each worker collects, and leaves out, the same.
    node.config.stash[LEFT_OUT] = Counter(getattr(node, "workeroutput", {}).get("left out", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    left_out = config.stash.get(LEFT_OUT, Counter())
    if left_out:
        terminalreporter.section(
            f"left out on {BROKERS if BROKERS in OTHER_BROKERS else f'brokers of Kafka {BROKERS}'}"
        )
        for reason, n_tests in sorted(left_out.items()):
            terminalreporter.line(f"{n_tests:4} tests need {reason}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    must_run = item.get_closest_marker("broker") is not None and item.get_closest_marker("docker") is None
    if report.skipped and must_run and not hasattr(report, "wasxfail") and os.environ.get("CI") == "true":
        report.outcome = "failed"
        report.longrepr = (
            f"{item.nodeid}: a broker test must not be skipped in CI: {call.excinfo and call.excinfo.value}"
        )
    return report


@pytest.fixture(scope="session", autouse=True)
def _quick_start(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whatever starts Spark, here or in a program of a test's own, starts it soon."""
    os.environ.update(quick_spark(tmp_path_factory.mktemp("quick")))


@pytest.fixture(scope="session")
def java(request: pytest.FixtureRequest) -> None:
    """Java 17 or newer for PySpark and the brokers. A download takes minutes: it is announced past pytest's capture."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        export_java_home(ensure_java())


@pytest.fixture(scope="session")
def kafka_options() -> Mapping[str, Any]:
    """Of the session's brokers: one node, shared by all tests."""
    properties = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500", **QUICK_GROUPS}
    return {"properties": properties, "version": BROKERS, "jvm_options": JVM_OPTIONS}


if BROKERS in OTHER_BROKERS and named_cluster() is None:

    @pytest.fixture(scope="session")
    def kafka() -> Iterator[KafkaTools]:
        """The session's brokers."""
        with OTHER_BROKERS[BROKERS]() as others:
            yield others


if BROKERS == "librdkafka":

    @pytest.fixture
    def topic(kafka: MockCluster) -> TopicFactory:
        """Creates topics of fresh names, which stay: mock brokers create them by a call of their own."""

        def create(
            partitions: int = 1,
            config: Mapping[str, str] | None = None,
            *,
            name: str | None = None,
            cluster: KafkaTools | None = None,
        ) -> str:
            chosen = name or f"t-{uuid.uuid4().hex[:12]}"
            kafka.create(chosen, partitions)
            return chosen

        return create


@pytest.fixture
def kafka_tv1(request: pytest.FixtureRequest) -> LocalCluster:
    """A broker that speaks the first transaction protocol, looks for timed-out transactions every half second, and judges
    quotas by the last second, not the last ten."""
    properties = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500", "quota.window.num": "2"}
    both = not lacking(["second transaction protocol"])
    first = ["--feature", "transaction.version=1"] if both else []
    brokers = LocalCluster(1, properties, version=BROKERS, format_arguments=first, jvm_options=JVM_OPTIONS)
    return shared(request, lambda: brokers)


@pytest.fixture(params=["TV1", pytest.param("TV2", marks=pytest.mark.needs("second transaction protocol"))])
def transaction_version_brokers(request: pytest.FixtureRequest) -> tuple[str, KafkaTools]:
    """The name of a transaction protocol, and brokers that speak it."""
    return request.param, request.getfixturevalue("kafka_tv1" if request.param == "TV1" else "kafka")


@pytest.fixture
def secured_kafka(java: None, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Secured:
    """One broker with a listener for each way of securing one."""
    from tests.wire.secured import secured

    return shared(request, lambda: secured(tmp_path_factory.mktemp("secured")))


@pytest.fixture
def registry_url(java: None, request: pytest.FixtureRequest) -> str:
    """A real schema registry, Apicurio's, that speaks Confluent's API. A download is announced past pytest's capture."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        download_registry()
    return shared(request, LocalRegistry).url


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[ClusterFactory]:
    """Starts clusters of the test's own: `kafka_cluster(nodes=2, properties={…})`; nodes may be killed at will."""
    started: list[LocalCluster] = []
    options = () if request.node.get_closest_marker("long") else JVM_OPTIONS

    def start(nodes: int = 1, properties: Mapping[str, str] | None = None, **more: Any) -> LocalCluster:
        cluster = LocalCluster(nodes, properties, **{"version": BROKERS, "jvm_options": options, **more})
        cluster.start()
        started.append(cluster)
        return cluster

    yield start
    for cluster in started:
        cluster.close()


@pytest.fixture(scope="session")
def spark(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A classic session, local[2], with Delta, conf/'s settings, and to compare with the JVM connector and from_avro."""
    from pyspark.sql import SparkSession

    folder = tmp_path_factory.mktemp("spark")
    # spark-defaults.conf and log4j2.properties are found there, as they would be on a user's machine.
    os.environ["SPARK_CONF_DIR"] = str(CONF)
    builder = SparkSession.builder.master("local[2]").appName("pykafka-wire tests")
    for name, value in {
        **read_spark_conf(CONF / "spark-delta.conf"),
        "spark.jars": ",".join(map(str, [*delta_jars(), *jvm_connector_jars(), *spark_avro_jars()])),
        "spark.driver.memory": "2g",
        # Java begins with a small heap, which grows by collections of the whole heap: they took a tenth of the processor time.
        "spark.driver.extraJavaOptions": "-Xms1g -Xmn400m",
        # Each sort and each aggregation of a task takes a page, of 32 MB by default, which Java fills with zeros.
        "spark.buffer.pageSize": "1m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "1",
        # Else the JVM connector's producers ask for the tests' deleted topics every second, and warn of each.
        "spark.kafka.producer.cache.timeout": "2s",
        "spark.kafka.producer.cache.evictorThreadRunInterval": "2s",
        # To plan again after each stage, and to format plans as text, takes longer than the ten rows of a test.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.ui.explainMode": "simple",
        "spark.sql.session.timeZone": "UTC",
        # Compiling an expression pays off after many rows, which tests do not have. Programs of the tests' own run as users do.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }.items():
        builder = builder.config(name, value)
    with forked_runners() as python:
        # The session and its JVM remember one program, else Spark starts each daemon twice.
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = python
        session = builder.getOrCreate()
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        yield session
        session.stop()


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an sdist and the wheel that was built from it."""
    source = tmp_path_factory.mktemp("source")
    names = (
        "pyproject.toml",
        "setup.cfg",
        "setup.py",
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "DESIGN.md",
        "MANIFEST.in",
    )
    for name in names:
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, source / name)
    for folder in ("connector", "wire"):
        shutil.copytree(ROOT / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__"))
    into = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(into), str(source)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    return into


@pytest.fixture(scope="session")
def wheel(built: Path) -> Path:
    (found,) = built.glob("*.whl")
    return found


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has what this one has, but not pykafka-wire."""
    from tests.connector.deployments.bare_python import bare_python

    return bare_python(tmp_path_factory.mktemp("bare"))


@pytest.fixture(scope="session")
def standalone(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The master's URL of a Spark standalone cluster with two workers."""
    from tests.connector.deployments.standalone import standalone_cluster

    with standalone_cluster(tmp_path_factory.mktemp("standalone")) as url:
        yield url


def read_spark_conf(path: Path) -> dict[str, str]:
    """The settings in a Spark configuration file: a name, blanks, a value."""
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    return {name: value.strip() for name, value in (line.split(None, 1) for line in lines if line and line[0] != "#")}
