"""Values of several types that no column is asked for: which of them count as another type, and which are null."""

from __future__ import annotations

import json

import pyarrow as pa

from pykafka_wire.values.avro.format import Avro
from pykafka_wire.values.converter import read_column
from pykafka_wire.values.record_types import RecordType, RecordTypes

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}


def test_a_type_without_a_name_is_another_type_and_null_is_none() -> None:
    union = json.dumps(["null", "long", ORDER, {"type": "array", "items": "long"}])
    order = Avro(reader_schema=union, record="Order")
    types = RecordTypes(types=(("Order", RecordType("Order", order)),))
    rows = pa.array([b"\x04\x02", b"\x00", b"\x02\x0a", b"\x06\x00", None], pa.binary())
    found = read_column(types, pa.struct([("Order", order.column_type())]), rows)
    assert found.column.to_pylist() == [{"Order": {"id": 1}}, None, None, None, None]
    assert sorted(row for rows in found.others for row in rows.tolist()) == [2, 3]
    assert not found.reasons
