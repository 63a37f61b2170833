"""Avro's logical types to Python values and back, exactly, and in UTC whatever the time zone of the machine.

fastavro's own ones round a decimal to its precision, and read a time without a zone as one of the machine's zone. So schemas
are given to fastavro with logical types under names of our own, for which these functions are registered; a uuid, and a
logical type that is not valid, count as the type beneath, as the specification wants it.
https://avro.apache.org/docs/1.12.0/specification/#logical-types
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable
from decimal import Context, Decimal
from functools import lru_cache
from typing import Any, Final

from pykafka_wire.errors import PoisonError
from pykafka_wire.values import numbers
from pykafka_wire.values.optional_libraries import library

_PREFIX: Final = "pykafka-wire-"
_UTC: Final = datetime.timezone.utc
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=_UTC)
_LOCAL_EPOCH: Final = datetime.datetime(1970, 1, 1)
_FIRST_DAY: Final = datetime.date(1970, 1, 1)
_MICROSECOND: Final = datetime.timedelta(microseconds=1)
_DAY_MICROS: Final = 86_400_000_000
#: Spark's decimals have 38 digits at most, Arrow's 76, a number of 128 bytes 308. A schema's precision must not size an allocation.
_MAX_PRECISION: Final = 1_000
_MAX_DECIMAL_BYTES: Final = 128
_DECIMALS: Final = Context(prec=_MAX_PRECISION)

Reader = Callable[[Any, Any, Any], Any]
Writer = Callable[[Any, Any], Any]


def renamed(schema: Any) -> Any:
    """A schema's JSON with the logical types that are read and written here under their names of our own."""
    if isinstance(schema, list):
        return [renamed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: each if name == "default" else renamed(each) for name, each in schema.items()}
    logical = found.pop("logicalType", None)
    if isinstance(logical, str) and (logical != "decimal" or _is_valid_decimal(found)):
        name = f"{_PREFIX}{logical}"
        if isinstance(found.get("type"), str) and f"{found['type']}-{name}" in _registered():
            found["logicalType"] = name
    return found


def _is_valid_decimal(schema: dict[str, Any]) -> bool:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    return type(precision) is int and type(scale) is int and 0 < precision <= _MAX_PRECISION and 0 <= scale <= precision


@lru_cache(maxsize=1)
def _registered() -> frozenset[str]:
    """Registers the functions with fastavro, once in a process, under names that no other schema uses."""
    fastavro = library("fastavro", "Avro")
    readers: dict[str, Reader] = {}
    writers: dict[str, Writer] = {}
    for unit, micros, parts in (("millis", 1_000, 1), ("micros", 1, 1), ("nanos", 1, 1_000)):
        for name, epoch in ((f"timestamp-{unit}", _EPOCH), (f"local-timestamp-{unit}", _LOCAL_EPOCH)):
            readers[f"long-{_PREFIX}{name}"] = _timestamp_reader(epoch, micros, parts)
            writers[f"long-{_PREFIX}{name}"] = _timestamp_writer(micros, parts)
    for name, micros in ((f"int-{_PREFIX}time-millis", 1_000), (f"long-{_PREFIX}time-micros", 1)):
        readers[name] = _time_reader(micros)
        writers[name] = _time_writer(micros)
    readers[f"int-{_PREFIX}date"], writers[f"int-{_PREFIX}date"] = _read_date, _write_date
    readers[f"bytes-{_PREFIX}decimal"] = readers[f"fixed-{_PREFIX}decimal"] = _read_decimal
    writers[f"bytes-{_PREFIX}decimal"] = writers[f"fixed-{_PREFIX}decimal"] = _write_decimal
    readers[f"fixed-{_PREFIX}uuid"], writers[f"fixed-{_PREFIX}uuid"] = _read_uuid, _write_uuid
    fastavro.read.LOGICAL_READERS.update(readers)
    fastavro.write.LOGICAL_WRITERS.update(writers)
    return frozenset(readers)


def _timestamp_reader(epoch: datetime.datetime, micros: int, parts: int) -> Reader:
    """For a unit of ``micros`` microseconds, or of which one microsecond has ``parts``."""

    def read(data: int, writer_schema: Any = None, reader_schema: Any = None) -> datetime.datetime:
        return epoch + datetime.timedelta(microseconds=data * micros // parts)

    return read


def _timestamp_writer(micros: int, parts: int) -> Writer:
    def write(data: Any, schema: Any) -> Any:
        if not isinstance(data, datetime.datetime):
            return data
        # A time without a zone is written as UTC's, as it is read.
        since = data - _EPOCH if data.tzinfo is not None else data - _LOCAL_EPOCH
        return since // _MICROSECOND * parts // micros

    return write


def _time_reader(micros: int) -> Reader:
    def read(data: int, writer_schema: Any = None, reader_schema: Any = None) -> datetime.time:
        if not 0 <= data * micros < _DAY_MICROS:
            raise PoisonError("a time that is not in a day")
        return (_LOCAL_EPOCH + datetime.timedelta(microseconds=data * micros)).time()

    return read


def _time_writer(micros: int) -> Writer:
    def write(data: Any, schema: Any) -> Any:
        if not isinstance(data, datetime.time):
            return data
        return (datetime.datetime.combine(_FIRST_DAY, data) - _LOCAL_EPOCH) // _MICROSECOND // micros

    return write


def _read_date(data: int, writer_schema: Any = None, reader_schema: Any = None) -> datetime.date:
    return _FIRST_DAY + datetime.timedelta(days=data)


def _write_date(data: Any, schema: Any) -> Any:
    if isinstance(data, datetime.datetime):
        raise PoisonError("a timestamp where a date is expected")
    return (data - _FIRST_DAY).days if isinstance(data, datetime.date) else data


def _read_decimal(data: bytes, writer_schema: Any, reader_schema: Any = None) -> Decimal:
    # Whole, though it may have more digits than its schema's precision: the column's type decides what it holds.
    if len(data) > _MAX_DECIMAL_BYTES:  # to make a decimal of a million bytes takes minutes
        raise PoisonError("a decimal with more digits than any type holds")
    return Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-writer_schema.get("scale", 0), _DECIMALS)


def _write_decimal(data: Any, schema: Any) -> Any:
    if isinstance(data, bool) or not isinstance(data, (Decimal, int)):
        return data
    scale: int = schema.get("scale", 0)
    unscaled = int(numbers.rescaled(Decimal(data), schema["precision"], scale).scaleb(scale, _DECIMALS))
    if "size" in schema:
        return unscaled.to_bytes(schema["size"], "big", signed=True)
    return unscaled.to_bytes((unscaled.bit_length() + 8) // 8, "big", signed=True)


def _read_uuid(data: bytes, writer_schema: Any = None, reader_schema: Any = None) -> uuid.UUID:
    return uuid.UUID(bytes=data)


def _write_uuid(data: Any, schema: Any) -> Any:
    return uuid.UUID(data).bytes if isinstance(data, str) else data
