"""Topics of which nine tenths are in tiered storage (KIP-405), on Apache Kafka with its own plugin for tests (`make tiered`)."""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from pykafka_wire.local import LocalCluster
from pykafka_wire.local.jars import KAFKA_VERSION
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.admin import EARLIEST_LOCAL, LATEST, LATEST_TIERED, list_offsets
from pykafka_wire.wire.fetch.range_read import fetch_ranges
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import OffsetRange, TopicPartition
from tests.brokers.tiered import LOCAL, TIERED, tiered_cluster
from tests.wire.range_reads import KEY_AND_VALUE, cluster_of, produce, whole

pytestmark = [pytest.mark.long, pytest.mark.broker]

#: Brokers of the second version serve one remote partition in each Fetch (KAFKA-14915).
VERSIONS: Final = (KAFKA_VERSION, "3.9.2")
PARTITIONS: Final = 8
#: Segments have 1 MiB, and the last one stays local: with twelve of them more than nine tenths are remote.
RECORDS: Final = 12_500
VALUE_BYTES: Final = 1_000
REMOTE, LOCALLY = "remote", "local"
COPIED_S: Final = 120.0


@pytest.fixture(scope="module", params=VERSIONS)
def tiered(
    request: pytest.FixtureRequest,
    java: None,
    tmp_path_factory: pytest.TempPathFactory,
    outside_of: Callable[[str], Any],
) -> Iterator[LocalCluster]:
    """A broker with the same records in a tiered topic, of which nine tenths are remote only, and in a local one."""
    with tiered_cluster(tmp_path_factory.mktemp("remote-store"), request.param) as brokers:
        outside = outside_of(brokers.bootstrap_servers)
        for topic, config in ((REMOTE, TIERED), (LOCALLY, LOCAL)):
            outside.create(topic, PARTITIONS, **config)
            values = (
                (partition, b"%d.%d." % (partition, i) + bytes(VALUE_BYTES))
                for i in range(RECORDS)
                for partition in range(PARTITIONS)
            )
            produce(brokers, topic, values)
        with cluster_of(brokers) as cluster:
            deadline = time.monotonic() + COPIED_S
            while min(_listed(cluster, REMOTE, EARLIEST_LOCAL)) < 0.9 * RECORDS:
                assert time.monotonic() < deadline, "the segments were not copied"
                time.sleep(0.2)
        yield brokers


def _listed(cluster: Cluster, topic: str, special: int) -> list[int]:
    places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    found = list_offsets(cluster, dict.fromkeys(places, special))
    return [found[tp].offset for tp in places]


def _hashes(frame: Any) -> list[tuple[int, int, int]]:
    rows = frame.selectExpr("partition", "offset", "xxhash64(value) AS h").collect()
    return sorted((row.partition, row.offset, row.h) for row in rows)


def test_offsets_tell_what_is_local_and_what_is_remote(tiered: LocalCluster) -> None:
    with cluster_of(tiered) as cluster:
        first_local, last_remote = _listed(cluster, REMOTE, EARLIEST_LOCAL), _listed(cluster, REMOTE, LATEST_TIERED)
        assert all(0.9 * RECORDS <= local <= remote + 1 for local, remote in zip(first_local, last_remote, strict=True))
        assert _listed(cluster, LOCALLY, EARLIEST_LOCAL) == [0] * PARTITIONS
        assert _listed(cluster, LOCALLY, LATEST_TIERED) == [-1] * PARTITIONS
        assert _listed(cluster, REMOTE, LATEST) == [RECORDS] * PARTITIONS


def test_doctor_reports_what_is_remote_only(tiered: LocalCluster) -> None:
    from click.testing import CliRunner

    from pykafka_wire.cli.app import commands

    shown = CliRunner().invoke(
        commands, ["--json", "doctor", "-b", tiered.bootstrap_servers, "--topic", REMOTE, "--topic", LOCALLY]
    )
    checks = [check for check in json.loads(shown.stdout)["checks"] if check["name"] == "tiered storage"]
    assert [check["where"] for check in checks] == [REMOTE]
    assert "9" in checks[0]["found"].partition(" %")[0]
    assert (
        f"of {PARTITIONS * RECORDS} offsets only in the remote store, in {PARTITIONS} partitions" in checks[0]["found"]
    )


def test_topics_describe_shows_what_is_local_and_what_is_remote(tiered: LocalCluster) -> None:
    from click.testing import CliRunner

    from pykafka_wire.cli.app import commands

    def described(topic: str, *more: str) -> str:
        return CliRunner().invoke(commands, [*more, "topics", "describe", "-b", tiered.bootstrap_servers, topic]).stdout

    for row in json.loads(described(REMOTE, "--json"))["by_partition"]:
        assert (
            0 == row["earliest"] < 0.9 * RECORDS <= row["earliest local"] <= row["latest tiered"] + 1 <= row["latest"]
        )
    assert {row["earliest local"] for row in json.loads(described(LOCALLY, "--json"))["by_partition"]} == {None}
    text = described(REMOTE)
    assert "earliest local" in text
    assert f"of {PARTITIONS * RECORDS} offsets only in the remote store, in {PARTITIONS} partitions" in text
    assert "earliest local" not in described(LOCALLY)


def test_a_batch_and_available_now_have_the_same_rows(
    tiered: LocalCluster, spark: Any, queries_of: Callable[[str], Any]
) -> None:
    options = {"kafka.bootstrap.servers": tiered.bootstrap_servers}
    reader = spark.read.format("pykafka-wire").options(**options)
    expected = _hashes(reader.option("subscribe", LOCALLY).load())
    assert len(expected) == PARTITIONS * RECORDS
    assert _hashes(reader.option("subscribe", REMOTE).load()) == expected
    queries = queries_of(tiered.bootstrap_servers)
    queries.run(subscribe=REMOTE)
    assert _hashes(spark.read.parquet(str(queries.table))) == expected


def read_in_task(servers: str, ranges: list[OffsetRange]) -> int:
    """The number of records that one task reads."""
    with Cluster(ClientSettings.from_options({"bootstrap.servers": servers})) as cluster:
        return sum(chunk.records.n_records for chunk in fetch_ranges(cluster, ranges, columns=KEY_AND_VALUE))


def test_tasks_do_not_crawl_on_remote_ranges(tiered: LocalCluster, capsys: pytest.CaptureFixture[str]) -> None:
    """Many remote partitions of one leader, by one task and by four at the same time, beside the local topic."""
    rates: dict[tuple[str, int], float] = {}
    with cluster_of(tiered) as cluster:
        ranges = {topic: whole(cluster, topic) for topic in (REMOTE, LOCALLY)}
    for topic in (LOCALLY, REMOTE, LOCALLY, REMOTE):
        for n_tasks in (1, 4):
            shares = [(tiered.bootstrap_servers, ranges[topic][i::n_tasks]) for i in range(n_tasks)]
            with multiprocessing.get_context("spawn").Pool(n_tasks) as pool:
                pool.starmap(read_in_task, [(tiered.bootstrap_servers, [])] * n_tasks, chunksize=1)  # imports
                started = time.monotonic()
                n_read = sum(pool.starmap(read_in_task, shares, chunksize=1))
                took_s = time.monotonic() - started
            assert n_read == PARTITIONS * RECORDS
            rates[topic, n_tasks] = max(rates.get((topic, n_tasks), 0.0), n_read * VALUE_BYTES / took_s / 1e6)
    with capsys.disabled():
        for n_tasks in (1, 4):
            remote, local = rates[REMOTE, n_tasks], rates[LOCALLY, n_tasks]
            print(
                f"\n{n_tasks} tasks: remote {remote:.0f} MB/s, local {local:.0f} MB/s, ratio {remote / local:.2f}",
                end="",
            )
        print()
    assert rates[REMOTE, 1] > rates[LOCALLY, 1] / 50
    assert rates[REMOTE, 4] > rates[REMOTE, 1] / 2
