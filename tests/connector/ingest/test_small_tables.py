"""A small table is proved without Spark if, and only if, it has each record of its topic once, as a row or as a reject."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import OffsetSpec
from deltalake import write_deltalake
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import load_catalog

from pykafka_wire.ingest import Table
from pykafka_wire.ingest.proof.proof import Proof
from pykafka_wire.ingest.proof.small_tables import proof_of_small_table, proofs_of_small_tables
from pykafka_wire.ingest.settings.model import TABLE_FORMATS, Settings
from pykafka_wire.ingest.tables.files_table import FilesTable
from pykafka_wire.ingest.tables.format import SparkAlone
from pykafka_wire.ingest.tables.formats import format_of
from pykafka_wire.ingest.tables.position import Landed, new_attempt
from tests.connector.conftest import QUIET, Outside, Record
from tests.connector.ingest.written_files import written_files

pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]

#: Offsets of the topic's records. Partition 0 has an aborted transaction, and partition 1 has lost its first record.
RECORDS = [*((0, offset) for offset in (0, 1, 2, 6, 7)), *((1, offset) for offset in (1, 2, 3))]
ENDS = {0: 8, 1: 4}
FIRST_MS = 1_700_000_000_000
ROWS = pa.schema(
    [("n", pa.int32()), ("_kafka_partition", pa.int32()), ("_kafka_offset", pa.int64()),
     ("_kafka_timestamp", pa.timestamp("us", "UTC"))]
)  # fmt: skip
REJECTS = pa.schema(
    [("table", pa.string()), ("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()),
     ("timestamp", pa.timestamp("us", "UTC")), ("topic_id", pa.string())]
)  # fmt: skip
OTHER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"

Place = tuple[int, int]


@dataclass(frozen=True)
class Held:
    """What a table and its rejects have.

    Attributes:
        n_rows: how often each record is a row; once by default.
        other_rows: places that the topic has no record for.
        end: the table's position in partition 0.
        owner: the table that the rejects belong to.
        earlier_rejects: rejects of a deleted topic that had the same name.
        has_topic_ids: whether each reject has the id of its topic; an older version has written none.
    """

    n_rows: Mapping[Place, int] = field(default_factory=dict)
    rejects: tuple[Place, ...] = ()
    other_rows: tuple[Place, ...] = ()
    end: int = ENDS[0]
    owner: str = "{topic}"
    earlier_rejects: tuple[Place, ...] = ()
    has_topic_ids: bool = True

    @property
    def expected(self) -> list[Place]:
        return [(partition, offset) for partition, offset in RECORDS if partition or offset < self.end]

    @property
    def rows(self) -> list[Place]:
        once = [place for place in self.expected for _ in range(self.n_rows.get(place, place not in self.rejects))]
        return [*once, *self.other_rows]


def end_of(outside: Outside, topic: str) -> int:
    """Return the end offset of partition 0."""
    first = TopicPartition(topic, 0)
    return int(outside.admin.list_offsets({first: OffsetSpec.latest()})[first].result(30).offset)


@pytest.fixture(scope="module")
def full(outside: Outside, until: Any) -> Iterator[str]:
    """A topic with :data:`RECORDS`."""
    topic = "small-tables"
    outside.create(topic, 2)
    times = [FIRST_MS + number for number in range(10)]
    outside.produce(topic, [Record(value=b"1", partition=0, timestamp_ms=time) for time in times[:3]])
    producer = Producer({"bootstrap.servers": outside.servers, "transactional.id": topic, **QUIET})
    producer.init_transactions(30)
    producer.begin_transaction()
    for _ in range(2):
        producer.produce(topic, value=b"1", partition=0)
    producer.flush(30)
    producer.abort_transaction(30)
    until(lambda: end_of(outside, topic) == 6, what="the marker of the aborted transaction")
    outside.produce(topic, [Record(value=b"1", partition=0, timestamp_ms=time) for time in times[6:8]])
    outside.produce(topic, [Record(value=b"1", partition=1, timestamp_ms=time) for time in times[:4]])
    outside.age_out(topic, 1, 1)
    assert [
        (record.partition, record.offset) for record in outside.consume(topic, isolation_level="read_committed")
    ] == RECORDS
    yield topic
    outside.delete(topic)


@contextmanager
def settings_of(table_format: str, servers: str, topic: str) -> Iterator[Settings]:
    with TemporaryDirectory() as name:
        of_format: dict[str, Any] = {"into": f"{name}/lake"}
        if table_format == "iceberg":
            catalog = {"type": "sql", "uri": f"sqlite:///{name}/catalog.db", "warehouse": f"file://{name}/lake"}
            of_format = {"into": "lake.shop", "table_format": "iceberg", "catalog": catalog}
            load_catalog("lake", **catalog).create_namespace("shop")
        kafka = {"bootstrap.servers": servers}
        yield Settings(
            checkpoint=f"{name}/c", kafka=kafka, topics=topic, **of_format,
            defaults=Table(topic=".*", format="json", schema="n INT"),
        )  # fmt: skip


def id_of(outside: Outside, topic: str) -> str:
    described = outside.admin.describe_topics(TopicCollection([topic]))[topic].result(30).topic_id
    return str(described).replace("+", "-").replace("/", "_")


def store(given: Settings, topic: str, held: Held, topic_id: str = "") -> None:
    """Make the table with its position, by files as tasks write them; other programs write the rejects."""
    name = given.name_of(topic)
    _append(_files(given, name), given.defaults, topic, held, topic_id)
    own_id = topic_id if held.has_topic_ids and topic_id else None
    ids = [(own_id, place) for place in held.rejects] + [(OTHER_ID, place) for place in held.earlier_rejects]
    if ids:
        common = {"table": held.owner.format(topic=name), "topic": topic, "timestamp": FIRST_MS * 1000}
        rejects = pa.Table.from_pylist(
            [
                {**common, "partition": partition, "offset": offset, "topic_id": of_topic}
                for of_topic, (partition, offset) in ids
            ],
            REJECTS,
        )
        if not held.has_topic_ids and not held.earlier_rejects:
            rejects = rejects.drop_columns(["topic_id"])
        _files(given, given.rejects).create_of(rejects.schema, given.defaults, "q", None)
        if given.is_folder:
            write_deltalake(given.place(given.rejects), rejects, mode="append")
        else:
            load_catalog("lake", **given.catalog).load_table(f"shop.{given.rejects}").append(rejects)


def _files(given: Settings, name: str) -> FilesTable:
    nothing: Any = None  # a Spark session, which nothing here needs
    opened = format_of(given).open_table(nothing, given, name)
    files = format_of(given).open_files(nothing, given, given.defaults, opened, name)
    assert not isinstance(files, SparkAlone), files
    return files


def _append(files: FilesTable, table: Table, topic: str, held: Held, topic_id: str) -> None:
    begin = Landed(query="q", micro_batch=-1, topic=topic, topic_id=topic_id, end={0: 0, 1: 0}, attempt=new_attempt())
    files.create_of(ROWS, table, "q", begin)
    rows = [(1, partition, offset, (FIRST_MS + offset) * 1000) for partition, offset in held.rows]
    columns = (
        [pa.array(values, column.type) for values, column in zip(zip(*rows, strict=True), ROWS, strict=True)]
        if rows
        else []
    )
    batch = pa.RecordBatch.from_arrays(columns, schema=ROWS) if rows else pa.RecordBatch.from_pylist([], ROWS)
    written, layout = written_files(files, table, batch)
    end = {0: held.end, 1: ENDS[1]}
    files.append_files(written, layout, replace(begin, micro_batch=0, start=begin.end, end=end, sequence=1))


def proof_of(given: Settings, topic: str) -> Proof | None:
    """Return the table's proof by the settings of its ingest."""
    return proofs_of_small_tables(given, [topic]).get(topic)


def proof_by_place(given: Settings, topic: str) -> Proof | None:
    """Return the table's proof by its folder alone."""
    place = given.place(given.name_of(topic))
    if not given.is_folder:
        place = (
            load_catalog("lake", **given.catalog).load_table(place.partition(".")[2]).location().removeprefix("file://")
        )
    return proof_of_small_table(place, {f"kafka.{name}": value for name, value in given.kafka.items()}, None)


PLACES = st.sampled_from([*RECORDS, (0, 3), (1, 0), (0, 9), (2, 0)])
HELD = st.builds(
    Held,
    n_rows=st.dictionaries(st.sampled_from(RECORDS), st.sampled_from([0, 1, 2]), max_size=2),
    rejects=st.lists(PLACES, max_size=3, unique=True).map(tuple),
    other_rows=st.lists(PLACES.filter(lambda place: place not in RECORDS), max_size=1).map(tuple),
    end=st.sampled_from([8, 8, 7, 6, 3]),
    earlier_rejects=st.lists(PLACES, max_size=2, unique=True).map(tuple),
    has_topic_ids=st.booleans(),
)


@pytest.mark.parametrize("table_format", TABLE_FORMATS)
def test_a_table_is_proved_if_it_equals_its_topic(table_format: str, outside: Outside, full: str) -> None:
    @settings(max_examples=15 if table_format == "delta" else 8)
    @given(held=HELD)
    @example(held=Held())
    @example(held=Held(end=6, rejects=((0, 1), (1, 3))))
    @example(held=Held(n_rows={(0, 1): 2}))
    @example(held=Held(n_rows={(0, 1): 0}, earlier_rejects=((0, 1),)))
    @example(held=Held(earlier_rejects=((1, 2),)))
    @example(held=Held(rejects=((0, 1),), has_topic_ids=False))
    def check(held: Held) -> None:
        rejects = [place for place in held.rejects if place[1] < {0: held.end, 1: ENDS[1]}.get(place[0], 0)]
        is_equal = Counter([*held.rows, *rejects]) == Counter(held.expected)
        with settings_of(table_format, outside.servers, full) as asked:
            store(asked, full, held, id_of(outside, full))
            proofs = [find(asked, full) for find in (proof_of, proof_by_place)]
        for proof in proofs:
            assert (proof is not None) == is_equal
            if proof is None:
                continue
            assert proof.is_right and proof.comparison is not None
            assert proof.comparison.n_expected == len(held.expected)
            assert (proof.n_rejected, proof.n_absent, proof.lag) == (len(rejects), 1, ENDS[0] - held.end)
            assert proof.until == {0: held.end, 1: ENDS[1]}

    check()


def test_the_proof_says_until_when_the_table_is_complete(outside: Outside, full: str) -> None:
    with settings_of("delta", outside.servers, full) as asked:
        store(asked, full, Held(end=7))
        proof = proof_of(asked, full)
    assert proof is not None
    assert proof.complete_until == datetime.fromtimestamp((FIRST_MS + 6) / 1000, timezone.utc)


@pytest.mark.parametrize(
    "change",
    [
        {"defaults": Table(topic=".*", format="json", schema="n INT", mode="upsert")},
        {"defaults": Table(topic=".*", format="json", schema="n INT", where="n > 0")},
        {"prefix": "other_"},
    ],
    ids=["upsert", "where", "prefix"],
)
def test_spark_compares_a_table_that_the_settings_describe_otherwise(
    change: dict[str, Any], outside: Outside, full: str
) -> None:
    with settings_of("delta", outside.servers, full) as asked:
        store(asked, full, Held())
        assert proof_of(asked, full) is not None
        assert proof_of(replace(asked, **change), full) is None


def test_spark_compares_a_table_with_rejects_under_an_older_name(outside: Outside, full: str) -> None:
    with settings_of("delta", outside.servers, full) as asked:
        store(asked, full, Held(rejects=((0, 1),), owner="old"))
        assert proof_of(asked, full) is None
