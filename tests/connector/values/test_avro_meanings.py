"""A value keeps its meaning under any reader's schema, or is an error: a date is no timestamp, and a decimal is no text."""

from __future__ import annotations

import datetime
import io
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import fastavro
import pyarrow as pa
import pytest

from pykafka_wire.values.avro.format import Avro
from pykafka_wire.values.avro.types import TypeRules
from pykafka_wire.values.converter import read_column
from pykafka_wire.values.registry.address import Registry
from pykafka_wire.values.registry.framing import encode_frame
from tests.connector.values.scripted_registry import scripted_registry

pytestmark = pytest.mark.unit


@dataclass(frozen=True)
class Kind:
    """A type of Avro, a stored value, and its meaning: what the value is, and the value; None for a plain one."""

    schema: Any
    stored: Any
    meaning: tuple[str, Any] | None = None


def _logical(carrier: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": carrier, "logicalType": name, **more}


def _of_connect(carrier: str, name: str) -> dict[str, Any]:
    return {"type": carrier, "connect.name": name}


_MOMENT: Final = datetime.datetime(1970, 1, 1, 0, 0, 3)
_DECIMAL: Final = "decimal"
KINDS: Final = {
    "int": Kind("int", 3_000),
    "long": Kind("long", 3_000),
    "bytes": Kind("bytes", b"{"),
    "string": Kind("string", "12"),
    "date": Kind(_logical("int", "date"), 3_000, ("date", datetime.date(1978, 3, 20))),
    "time-millis": Kind(_logical("int", "time-millis"), 3_000, ("time", datetime.time(0, 0, 3))),
    "time-micros": Kind(_logical("long", "time-micros"), 3_000_000, ("time", datetime.time(0, 0, 3))),
    "timestamp-millis": Kind(_logical("long", "timestamp-millis"), 3_000, ("timestamp", _MOMENT)),
    "timestamp-micros": Kind(_logical("long", "timestamp-micros"), 3_000_000, ("timestamp", _MOMENT)),
    "local-timestamp-millis": Kind(_logical("long", "local-timestamp-millis"), 3_000, ("timestamp", _MOMENT)),
    "decimal": Kind(_logical("bytes", "decimal", precision=10, scale=2), b"{", (_DECIMAL, Decimal("1.23"))),
    "wider decimal": Kind(
        _logical("bytes", "decimal", precision=12, scale=4), b"\x30\x0c", (_DECIMAL, Decimal("1.23"))
    ),
    "Date": Kind(_of_connect("int", "io.debezium.time.Date"), 3_000, ("date", datetime.date(1978, 3, 20))),
    "Timestamp": Kind(_of_connect("long", "io.debezium.time.Timestamp"), 3_000, ("timestamp", _MOMENT)),
    "MicroTimestamp": Kind(_of_connect("long", "io.debezium.time.MicroTimestamp"), 3_000_000, ("timestamp", _MOMENT)),
    "MicroTime": Kind(_of_connect("long", "io.debezium.time.MicroTime"), 3_000_000, ("time", datetime.time(0, 0, 3))),
}


def _record(schema: Any, *, is_optional: bool) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "R",
        "fields": [{"name": "f", "type": ["null", schema] if is_optional else schema}],
    }


def _plain(value: Any) -> Any:
    """Return a time as Python has it, without a zone; a column of milliseconds has numbers."""
    if isinstance(value, int):
        return (datetime.datetime.min + datetime.timedelta(milliseconds=value)).time()
    return value.replace(tzinfo=None) if isinstance(value, datetime.datetime) else value


def _other(stored: str | bytes) -> bytes | str:
    """Return a text as its bytes, and bytes as their text."""
    return stored.encode() if isinstance(stored, str) else stored.decode()


def _encoded(kind: Kind, *, is_optional: bool) -> bytes:
    carrier = kind.schema if isinstance(kind.schema, str) else kind.schema["type"]
    out = io.BytesIO()
    fastavro.schemaless_writer(
        out, fastavro.parse_schema(_record(carrier, is_optional=is_optional)), {"f": kind.stored}
    )
    return out.getvalue()


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    answers = {
        f"/schemas/ids/{number}": {"schema": json.dumps(_record(kind.schema, is_optional=is_optional))}
        for number, (kind, is_optional) in enumerate(itertools.product(KINDS.values(), (False, True)), 1)
    }
    with scripted_registry(answers) as url:
        yield Registry(url)


@pytest.mark.parametrize("read_as", KINDS)
@pytest.mark.parametrize("is_optional", [False, True])
def test_a_value_keeps_its_meaning_or_is_an_error(registry: Registry, read_as: str, is_optional: bool) -> None:
    reader = KINDS[read_as]
    schema = json.dumps(_record(reader.schema, is_optional=is_optional))
    read = Avro(registry=registry, reader_schema=schema, rules=TypeRules(connect=True))
    n_read = 0
    for number, (name, written) in enumerate(KINDS.items()):
        frame = encode_frame(2 * number + 1 + is_optional, _encoded(written, is_optional=is_optional))
        found = read_column(read, read.column_type(), pa.array([frame]))
        (row,) = found.column.to_pylist()
        if found.reasons:
            assert written is not reader, (name, found.reasons)
            continue
        n_read += 1
        if reader.meaning is None:
            assert row["f"] == (written.stored if type(row["f"]) is type(written.stored) else _other(written.stored)), (
                name
            )
            assert written.meaning is None or written.meaning[0] != _DECIMAL or read_as == "bytes", name
        elif written.meaning is None:  # the reader's schema gives a plain number or plain bytes a meaning
            assert name != "string"
        else:
            assert (reader.meaning[0], _plain(row["f"])) == written.meaning, name
    assert n_read >= 1
