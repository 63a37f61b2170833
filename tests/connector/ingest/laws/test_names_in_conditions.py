"""A name in a condition is one of the columns that the documentation lists, or else the field of the value with that name.

Fields have the names of the source's other columns, and generated ones. The oracle: the list in docs/ingest-several-tables.md.
Spark analyses the conditions, and no record is read.
"""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql.types import BooleanType

from pykafka_wire.datasource import PykafkaWireDataSource
from pykafka_wire.ingest.files.conditions import ReadField
from pykafka_wire.ingest.records.contracts import _condition, _with_fields
from pykafka_wire.ingest.records.ranges import TopicRange
from pykafka_wire.ingest.records.reader import TableReaders
from pykafka_wire.ingest.records.table_schemas import ValueSchema
from pykafka_wire.ingest.records.topic_source import open_source
from pykafka_wire.ingest.settings.model import Destination, Settings, Table
from tests.connector.ingest.laws.generated import examples

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

#: What a condition sees beside the value's fields.
COLUMNS: Final = frozenset(("key", "value", "headers", "topic", "partition", "offset", "timestamp"))
NAMES: Final = st.one_of(
    st.sampled_from(("timestampType", "TIMESTAMPTYPE", "valueError", "keyError", "topics", "offsets")),
    st.text("abXY_1", min_size=1, max_size=6),
).filter(lambda name: name.lower() not in COLUMNS)


@example(name="timestampType")
@given(name=NAMES)
@examples(4)
def test_a_name_in_a_condition_is_a_documented_column_or_a_field(spark: Any, name: str) -> None:
    spark.dataSource.register(PykafkaWireDataSource)
    table = Table(topic="t", format="json", schema=f"`{name}` BOOLEAN, other INT", where=f"`{name}`")
    settings = Settings(checkpoint="/c", kafka={"bootstrap.servers": "b:1"}, topics="t", into="/lake", tables=(table,))
    reader = TableReaders(settings).of(Destination(topic="t", name="t", table=table))
    topic_range = TopicRange(topic="t", topic_id="", start={0: 0}, end={0: 5000})
    read = reader.plan(spark, topic_range, ValueSchema(format="json"), None)
    wide = _with_fields(reader.rows(spark, read))
    (seen,) = wide.select(_condition(wide, "where", f"`{name}`")).schema
    assert seen.dataType == BooleanType() and wide.schema[name].dataType == BooleanType()
    contract = reader.task_contract(spark, open_source(read.options).schema)
    assert contract is not None and contract.where == ReadField(("value", name))
