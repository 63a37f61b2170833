"""Law: a table knows what it is. Its stored properties decide, never the settings of a later start, nor the order of names."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StringType, StructField, StructType

from pykafka_wire.errors import IngestError
from pykafka_wire.ingest import Table
from pykafka_wire.ingest.settings.model import FORMATS, KEY_FORMATS, MODES, REDEFINABLE
from pykafka_wire.ingest.tables.definition import (
    KEY_FORMAT_PROPERTY,
    definition_properties,
    key_format_to_note,
    redefined,
)
from pykafka_wire.ingest.tables.merging import check_kafka_columns
from pykafka_wire.ingest.tables.topic_table import COLUMNS_PROPERTY
from pykafka_wire.ingest_status import TableState
from tests.connector.ingest.conftest import Shop
from tests.connector.ingest.laws.generated import examples
from tests.connector.ingest.test_positions_of_tables import clean_history

TABLES = st.builds(
    Table,
    topic=st.just("t"),
    mode=st.sampled_from(MODES),
    format=st.sampled_from(FORMATS),
    where=st.none() | st.sampled_from(["id > 1", "true"]),
    types=st.sampled_from([(), ("a.B",), ("a.B", "a.C")]),
    redefine=st.lists(st.sampled_from(REDEFINABLE), unique=True).map(tuple),
    target_file_size=st.sampled_from(["1mb", "128mb"]),
)


@examples(1_000)
@given(TABLES, TABLES)
def test_a_start_that_contradicts_the_table_is_refused_unless_it_names_the_setting(made: Table, later: Table) -> None:
    differs = {
        "mode": made.mode != later.mode,
        "format": made.format != later.format,
        "where": (made.where, made.types) != (later.where, later.types),
    }
    contradicted = {setting for setting, is_other in differs.items() if is_other}
    properties = definition_properties(made)
    if contradicted <= set(later.redefine):
        # What the table is made of afterwards is what the later settings say.
        after = properties | redefined(properties, later, "lake.t")
        assert redefined(after, replace(later, redefine=()), "lake.t") == {}
    else:
        with pytest.raises(IngestError) as refused:
            redefined(properties, later, "lake.t")
        assert any(f'redefine = ["{setting}"]' in str(refused.value) for setting in contradicted - set(later.redefine))


def keyed(shop: Shop, **asked: Any) -> Table:
    columns = {"format": "json", "schema": "v INT", "key_format": "json", "key_schema": "id INT"}
    return Table(topic=rf"{shop.prefix}\.rows", **{**columns, **asked})


@pytest.mark.long
@pytest.mark.parametrize(("first", "second"), [("append", "upsert"), ("upsert", "append")])
def test_a_mode_that_differs_stops_the_table_until_the_change_is_asked_for(shop: Shop, first: Any, second: Any) -> None:
    topic = shop.create("rows")
    sent = [(1, 1), (2, 2), (1, 3)]

    def send(pairs: list[tuple[int, int]]) -> None:
        shop.send_json("rows", [{"v": v} for _, v in pairs], keys=[{"id": key} for key, _ in pairs])

    send(sent)
    shop.run(tables=[keyed(shop, mode=first)])
    before = shop.rows("rows", "v")
    send([(2, 4)])
    stopped = shop.run(tables=[keyed(shop, mode=second)]).statuses[topic]
    assert stopped.state is TableState.STOPPED
    assert f"was made with mode {first}, but the settings have mode {second}" in (stopped.error or "")
    assert shop.rows("rows", "v") == before
    landed = shop.run(tables=[keyed(shop, mode=second, redefine=("mode",))]).statuses[topic]
    assert landed.trouble is None
    assert (4,) in shop.rows("rows", "v")
    # From then on the table is what it became.
    assert shop.run(tables=[keyed(shop, mode=second)]).statuses[topic].trouble is None
    assert shop.run(tables=[keyed(shop, mode=first)]).statuses[topic].state is TableState.STOPPED


def test_a_topic_whose_table_has_another_topic_s_name_leaves_that_one_alone(shop: Shop) -> None:
    """The newcomer's name comes first in the alphabet."""
    old = shop.create("t_a", 1)
    shop.outside.produce(old, [shop.outside.Record(value=json.dumps({"v": 1}).encode(), partition=0)])
    asked = {"defaults": Table(topic=".*", format="json"), "registry": None}
    shop.run(**asked)
    new = shop.create("t-a", 1)
    assert new < old
    for topic, v in ((old, 2), (new, 3)):
        shop.outside.produce(topic, [shop.outside.Record(value=json.dumps({"v": v}).encode(), partition=0)])
    planned = {table.topic: table.mistake for table in shop.ingest(**asked).plan()}
    assert planned[old] is None
    assert f"already belongs to topic {old}:" in (planned[new] or "")
    statuses = shop.run(**asked).statuses
    assert (statuses[old].trouble, statuses[new].state) == (None, TableState.STOPPED)
    assert shop.rows("t_a", "v") == [(1,), (2,)]


@examples(100)
@given(
    prefix=st.sampled_from(["_kafka_", "K_"]),
    lacking=st.sets(st.sampled_from(["key", "partition", "offset", "timestamp"])),
    is_noted=st.booleans(),
    is_adopted=st.booleans(),
    merges=st.booleans(),
)
def test_a_table_needs_each_column_by_which_the_rows_of_records_are_found(
    prefix: str, lacking: set[str], is_noted: bool, is_adopted: bool, merges: bool
) -> None:
    """A table that has had no key yet needs none. Without changes, the place of a record is enough."""
    held = StructType([StructField("v", StringType())])
    for name in sorted({"key", "partition", "offset", "timestamp"} - lacking):
        held = held.add(prefix + name, StringType())
    topic_columns = ["v", *([f"{prefix}key".lower()] if is_noted else [])]
    properties = None if is_adopted else {COLUMNS_PROPERTY: json.dumps(topic_columns)}
    needed = lacking if is_noted or is_adopted else lacking - {"key"}
    needed = needed if merges else needed & {"partition", "offset"}
    with pytest.raises(IngestError) if needed else nullcontext() as raised:
        check_kafka_columns(held, properties, prefix, "t", merges=merges)
    if raised is not None:
        assert all((f"{prefix}{name}," in str(raised.value)) == (name in needed) for name in lacking)


@examples(200)
@given(
    held=st.none() | st.sampled_from(KEY_FORMATS), later=st.sampled_from(KEY_FORMATS), key=st.none() | st.integers(0, 9)
)
def test_the_format_of_keys_stays_where_another_format_gives_a_record_another_key(
    held: str | None, later: str, key: int | None
) -> None:
    """The oracle: JSON, Avro and Protobuf decode a key to the same values; as text and as bytes, a key is something else."""

    def meaning(key_format: str) -> Any:
        return key if key_format in ("json", "avro", "protobuf") else f"{key} in {key_format}"

    properties = {} if held is None else {KEY_FORMAT_PROPERTY: held}
    is_other = held is not None and key is not None and meaning(held) != meaning(later)
    with pytest.raises(IngestError, match=f'key_format = "{held}"') if is_other else nullcontext():
        noted = key_format_to_note(properties, later, "t", "topic", has_keys=key is not None)
        kept = (properties | noted)[KEY_FORMAT_PROPERTY]
        assert key is None or meaning(kept) == meaning(later)


@pytest.mark.long
def test_a_table_finds_its_rows_by_the_keys_with_which_it_was_made(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    asked = {"mode": "upsert", "format": "json", "schema": "v INT"}
    topics = {name: shop.create(name) for name in ("texts", "documents", "pairs", "records")}

    def tables(**more: Any) -> dict[str, Any]:
        every = ({"topic": rf".*\.{name}", **asked, **columns} for name, columns in more.items())
        return {"tables": [Table(**each) for each in every]}

    def send(v: int) -> None:
        for name in ("texts", "documents"):
            shop.send_json(name, [{"v": v}], keys=["a"])
        shop.send_json("pairs", [{"v": v}], keys=[{"a": 1, "b": 2}])
        shop.send_json("records", [{"v": v}])

    pair = {"key_format": "json", "key_schema": "a INT, b INT"}
    made = tables(
        texts={"key_format": "string"}, documents={"key_format": "json"}, pairs=pair, records={"mode": "append"}
    )
    send(1)
    shop.run(**made).close()
    send(2)
    later = tables(
        texts={}, documents={"key_format": "string"}, pairs={**pair, "key_schema": "a INT"}, records={"mode": "append"}
    )
    statuses = shop.run(**later).statuses
    for name, former in (("texts", "string"), ("documents", "json")):
        assert f'Set key_format = "{former}"' in str(statuses[topics[name]].error)
        assert shop.rows(name, "v") == [(1,)]
    assert f"Topic {topics['pairs']}: keys have the columns a, but earlier keys have a, b." in caplog.text
    statuses = shop.run(**made, prefix="k_").statuses
    assert "_records by the columns k_partition, k_offset, which the table lacks" in str(
        statuses[topics["records"]].error
    )
    statuses = shop.run(**made).statuses
    assert [statuses[topics[name]].error for name in ("texts", "documents", "records")] == [None] * 3
    assert [shop.rows(name, "v") for name in ("texts", "documents", "records")] == [[(2,)], [(2,)], [(1,), (2,)]]


@pytest.mark.long
def test_a_table_of_changes_without_a_column_of_kafka_s_is_stopped_instead_of_doubling_its_rows(shop: Shop) -> None:
    shop.create("rows")
    mapped = {"delta.checkpointInterval": "2", "delta.columnMapping.mode": "name"}
    asked = {"tables": [keyed(shop, mode="upsert", properties=mapped)]}
    shop.send_json("rows", [{"v": 1}, {"v": 2}], keys=[{"id": 1}, {"id": 2}])
    shop.run(**asked).close()
    clean_history(shop, "rows")
    shop.send_json("rows", [{"v": 3}, None], keys=[{"id": 1}, {"id": 2}])
    (status,) = shop.run(**asked, prefix="k_").statuses.values()
    assert "k_offset" in str(status.error) and "the setting prefix" in str(status.error)
    assert shop.rows("rows", "v") == [(1,), (2,)]
    table = f"delta.`{shop.folder}/lake/{shop.prefix}_rows`"
    shop.spark.sql(f"ALTER TABLE {table} RENAME COLUMN _kafka_key TO id")
    (status,) = shop.run(**asked).statuses.values()
    assert "by the columns _kafka_key, which the table lacks" in str(status.error)
    shop.spark.sql(f"ALTER TABLE {table} RENAME COLUMN id TO _kafka_key")
    (status,) = shop.run(**asked).statuses.values()
    assert (status.error, shop.rows("rows", "v")) == (None, [(3,)])
