"""The environment of all measurements: a local Kafka, one Spark session with both connectors, topics made on demand.

Owns what is started, and ends it. Knows nothing of what is measured.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyspark
from certificates import Certificates
from confluent_kafka.admin import AdminClient, NewTopic
from datasets import QUIET, Filled, count_committed
from pyspark.sql import SparkSession

from pykafka_wire.local import LocalCluster, LocalRegistry
from pykafka_wire.local.jars import delta_jars, jvm_connector_jars, spark_avro_jars
from pykafka_wire.local.java import ensure_java, export_java_home
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.admin import LATEST, list_offsets
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import TopicPartition

_TIMEOUT_S = 60
#: The listener for TLS.
_TLS = "TLS"

#: Unix domain sockets take a delayed TCP acknowledgement of some 40 ms out of every Python task (Spark 4.1+).
UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled"
SPARK_CONF: Mapping[str, str] = {
    "spark.master": "local[2]",
    "spark.app.name": "pykafka-wire benchmarks",
    "spark.driver.memory": "3g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.numRecentProgressUpdates": "2000",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    UNIX_SOCKETS: "true",
}
#: One node; a benchmark's topics live for minutes.
BROKER_PROPERTIES: Mapping[str, str] = {
    "log.retention.ms": "-1",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "message.max.bytes": "2097152",
    # 15 s by default: how soon the cleaner looks again.
    "log.cleaner.backoff.ms": "1000",
}


class Rig:
    """A cluster, a session and the topics of one invocation. A context manager, which ends everything that it starts."""

    def __init__(self, bootstrap_servers: str | None = None) -> None:
        """With `bootstrap_servers` these brokers are used, and only the topics made on them are removed."""
        self._named = bootstrap_servers
        self._stack = contextlib.ExitStack()
        self._session: SparkSession | None = None
        self._conf: dict[str, str] = {}
        self._topics: set[str] = set()
        self._filled: dict[Filled, int] = {}
        self._numbers = itertools.count()
        self._registry_url = ""
        self.bootstrap_servers = ""
        #: None, and no options, where brokers were named.
        self.local: LocalCluster | None = None
        self.tls_options: Mapping[str, str] = {}
        self.work_dir = Path()

    def __enter__(self) -> Rig:
        with contextlib.ExitStack() as stack:
            self.work_dir = Path(tempfile.mkdtemp(prefix="pykafka-wire-bench-"))
            stack.callback(shutil.rmtree, self.work_dir, ignore_errors=True)
            export_java_home(ensure_java())
            os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
            if self._named:
                self.bootstrap_servers = self._named
            else:
                certificates = Certificates(self.work_dir)
                properties = {**BROKER_PROPERTIES, **certificates.broker_properties}
                cluster = LocalCluster(nodes=1, properties=properties, listeners={_TLS: "SSL"})
                self.local = stack.enter_context(cluster)
                self.bootstrap_servers = cluster.bootstrap_servers
                self.tls_options = {
                    "kafka.bootstrap.servers": cluster.bootstrap(_TLS),
                    **{f"kafka.{name}": value for name, value in certificates.client_settings.items()},
                }
            self.admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, **QUIET})
            stack.callback(self._drop_topics)
            stack.callback(self._stop_session)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # --- Spark ------------------------------------------------------------------------------------------------------

    def session(self, conf: Mapping[str, str] | None = None) -> SparkSession:
        """The one session; started anew only when `conf` differs, in the same JVM."""
        wanted = {
            **SPARK_CONF,
            "spark.local.dir": str(self.work_dir),
            "spark.sql.warehouse.dir": str(self.work_dir / "warehouse"),
            **(conf or {}),
        }
        if self._session is not None and wanted == self._conf:
            return self._session
        self._stop_session()
        self._session, self._conf = start_session(wanted), wanted
        # A failure arrives as an exception; a stopped query would log one, too.
        self._session.sparkContext.setLogLevel("FATAL")
        return self._session

    @contextlib.contextmanager
    def configured(self, conf: Mapping[str, str]) -> Iterator[SparkSession]:
        """The session with these settings; ended after a failure, and with it every job and query that still runs."""
        session = self.session(conf)
        try:
            yield session
        except Exception:
            self._stop_session()
            raise

    @property
    def spark(self) -> SparkSession:
        return self._session if self._session is not None else self.session()

    @property
    def jvm_pid(self) -> int:
        return int(self._gateway_jvm().java.lang.ProcessHandle.current().pid())

    @property
    def java_version(self) -> str:
        return str(self._gateway_jvm().java.lang.System.getProperty("java.version"))

    def _gateway_jvm(self) -> Any:  # Any: py4j has no types
        return self.spark.sparkContext._jvm

    def _stop_session(self) -> None:
        if self._session is not None:
            # Where workers of local-cluster mode keep their executors' jars and logs.
            kept = Path(pyspark.__file__).parent / "work" / self._session.sparkContext.applicationId
            self._session.stop()
            self._session = None
            shutil.rmtree(kept, ignore_errors=True)

    def fresh_dir(self, name: str) -> Path:
        """A path below the work folder that does not exist yet."""
        return self.work_dir / f"{name}-{next(self._numbers)}"

    # --- the schema registry ----------------------------------------------------------------------------------------

    @property
    def registry_url(self) -> str:
        """A local schema registry, started at the first request."""
        if not self._registry_url:
            self._registry_url = self._stack.enter_context(LocalRegistry()).url
        return self._registry_url

    # --- topics -----------------------------------------------------------------------------------------------------

    def topic(self, dataset: Filled) -> str:
        """The name of a topic that holds `dataset`; written at the first request."""
        if dataset not in self._filled:
            self.create_topic(dataset.topic, dataset.partitions, dataset.topic_config)
            self._filled[dataset] = dataset.fill(self)
        return dataset.topic

    def n_records(self, dataset: Filled) -> int:
        """The records that readers see in `dataset`'s topic."""
        self.topic(dataset)
        return self._filled[dataset]

    def create_topic(self, name: str, partitions: int, config: Mapping[str, str] | None = None) -> str:
        """`name`, once the topic exists, empty; one of this name that an item has left behind is dropped."""
        if name in self._topics:
            self.drop_topic(name)
        config = {"compression.type": "producer", **(config or {})}
        new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config)
        self.admin.create_topics([new], request_timeout=_TIMEOUT_S)[name].result()
        self._topics.add(name)
        self._await_leaders(name, partitions)
        return name

    def _await_leaders(self, name: str, partitions: int) -> None:
        """Waits until the broker serves a new topic, which is some milliseconds after the controller has made it.

        Java's producer, refused in between and not with the next batch, resends the first one until delivery.timeout.ms is
        over: it is out of order by then.
        """
        settings = ClientSettings.from_options({"bootstrap.servers": self.bootstrap_servers})
        with contextlib.closing(Cluster(settings)) as cluster:
            list_offsets(cluster, {TopicPartition(name, partition): LATEST for partition in range(partitions)})

    def drop_topic(self, name: str) -> None:
        self._topics.discard(name)
        self._filled = {dataset: n for dataset, n in self._filled.items() if dataset.topic != name}
        self.admin.delete_topics([name], request_timeout=_TIMEOUT_S)[name].result()

    def keep_only(self, datasets: set[Filled]) -> None:
        """Drops every topic that no later item reads."""
        for name in self._topics - {dataset.topic for dataset in datasets}:
            self.drop_topic(name)

    def count(self, topic: str) -> int:
        """The committed records of a topic, as the JVM connector counts them."""
        return count_committed(self.spark, self.bootstrap_servers, topic)

    def _drop_topics(self) -> None:
        if self._named:  # else they go with their cluster
            for name in list(self._topics):
                self.drop_topic(name)


def start_session(conf: Mapping[str, str]) -> SparkSession:
    """A session with both connectors, Delta and Spark's Avro functions."""
    jars = [*jvm_connector_jars(), *delta_jars(), *spark_avro_jars()]
    builder = SparkSession.builder.config("spark.jars", ",".join(map(str, jars)))
    for name, value in conf.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
