"""A column of values through a format, in columns or row by row, and what happens to rows that cannot be read or written.

Owns the policy (fail, null, divert) and the way from Python values to Arrow; knows neither Spark nor any format.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pykafka_wire.errors import ConnectorError, OptionError, PoisonError, ValueFormatError
from pykafka_wire.values.arrow_conversion import conversion_to, from_arrow
from pykafka_wire.wire.records.arrays import to_arrow
from pykafka_wire.wire.records.arrays import validity as validity_of
from pykafka_wire.worker_pickling import SentToWorkers

OnError = Literal["fail", "null", "divert"]
_POLICIES: Final = ("fail", "null", "divert")
#: A reason may name a schema's fields or a document's keys, which have no limit of their own.
_MAX_REASON: Final = 500


@runtime_checkable
class Columnar(Protocol):
    """A format that decodes whole columns."""

    def decoder(self, column_type: pa.DataType) -> Callable[[bytes], Any]:
        """For the rows that are left: see :class:`Format`."""

    def decode_column(self, rows: Any, column_type: pa.DataType) -> tuple[Any, npt.NDArray[np.bool_]]:
        """The values of a pa.BinaryArray in an array of ``column_type``, and bool[n]: which rows are left to be decoded one by one.

        Elements of rows that are left, and of nulls, mean nothing.

        Raises:
            RegistryError: the registry does not answer.
        """


class Format(Protocol):
    """One way of writing values. Stateless but for what its process has cached; picklable."""

    def decoder(self, column_type: pa.DataType) -> Callable[[bytes], Any]:
        """Returns a function from bytes to a value that ``pa.array(…, column_type)`` takes.

        The function raises:
            PoisonError: the bytes stand for no such value.
            RegistryError: the registry does not answer, which says nothing about the bytes.
        """

    def encode(self, value: Any) -> bytes:
        """The bytes of a Python value. Raises as a decoder does."""


def diverted_type(column_type: pa.DataType) -> pa.DataType:
    """The type of a column under ``on_error="divert"``."""
    return pa.struct([pa.field("value", column_type), pa.field("error", pa.string())])


@dataclass(frozen=True, slots=True, kw_only=True)
class Converter(SentToWorkers):
    """``converter(array)`` is the array decoded, or encoded where ``type`` is None; a null stays null.

    Attributes:
        type: of the decoded column.
        on_error: ``fail`` raises for the first row that cannot be converted; ``null`` leaves it null; ``divert`` makes each
            row a struct of ``value`` and ``error``, one of them null.
    """

    format: Format
    type: pa.DataType | None
    on_error: OnError = "fail"

    def __post_init__(self) -> None:
        if self.on_error not in _POLICIES:
            raise OptionError(f"on_error is {self.on_error!r} and must be one of {', '.join(_POLICIES)}.")
        if self.type is None and self.on_error == "null":
            raise OptionError("on_error='null' would write tombstones for rows that cannot be encoded: fail or divert.")
        if self.type is not None:
            conversion_to(self.type)  # refuses types that no value can have, before any task runs

    def __call__(self, rows: Any) -> Any:  # Any: pyarrow has no types
        """The column, as long as ``rows``, a pa.Array.

        Raises:
            ValueFormatError: a row cannot be converted, under ``on_error="fail"``.
            RegistryError: the registry does not answer, under every policy.
        """
        if self.type is not None and isinstance(self.format, Columnar) and pa.types.is_binary(rows.type):
            column, reasons = self._in_columns(self.format, rows)
        else:
            convert = self.format.decoder(self.type) if self.type is not None else self._encoding(rows.type)
            column, reasons = self._row_by_row(rows, convert)
        if self.on_error != "divert":
            return column
        fields = list(diverted_type(column.type))
        return pa.StructArray.from_arrays([column, pa.array(reasons, pa.string())], fields=fields)

    def _in_columns(self, value_format: Columnar, rows: Any) -> tuple[Any, list[str | None]]:
        """The decoded column, and the reason for each row that cannot be read. Only rows that are left are read one by one."""
        column, left = value_format.decode_column(rows, self.type)
        reasons: list[str | None] = [None] * len(rows)
        alone = np.flatnonzero(left)
        if not len(alone) and not rows.null_count:
            return column, reasons
        others, found = self._row_by_row(rows.take(to_arrow(alone)), value_format.decoder(self.type))
        for row, reason in zip(alone.tolist(), found, strict=True):
            reasons[row] = reason
        sources = np.arange(len(rows))
        sources[alone] = len(rows) + np.arange(len(alone))
        validity = pa.py_buffer(np.packbits(validity_of(rows), bitorder="little"))
        order = pa.Array.from_buffers(pa.int64(), len(rows), [validity, pa.py_buffer(sources)])
        return pa.concat_arrays([column, others]).take(order), reasons

    def _row_by_row(self, rows: Any, convert: Callable[[Any], Any]) -> tuple[Any, list[str | None]]:
        found: list[Any] = []
        reasons: list[str | None] = []
        for row in _values(rows):
            value, reason = None, None
            if row is not None:
                try:
                    value = convert(row.read() if type(row) is _Unread else row)
                except ConnectorError:  # the registry, a library, an option: not the value
                    raise
                except Exception as error:
                    reason = _reason(error)
                    if self.on_error == "fail":
                        raise self._failure(reason) from error
            found.append(value)
            reasons.append(reason)
        return self._column(found, reasons), reasons

    def _column(self, found: list[Any], reasons: list[str | None]) -> Any:
        column_type = pa.binary() if self.type is None else self.type
        try:
            return pa.array(found, column_type)
        except Exception:  # Arrow does not accept one of them, or more: each is tried alone
            pass
        for row, value in enumerate(found):
            try:
                pa.array([value], column_type)
            except Exception as error:
                found[row], reasons[row] = None, f"a value that {column_type} cannot hold"[:_MAX_REASON]
                if self.on_error == "fail":
                    raise self._failure(reasons[row] or "") from error
        return pa.array(found, column_type)

    def _encoding(self, row_type: pa.DataType) -> Callable[[Any], Any]:
        encode = self.format.encode
        return lambda row: encode(from_arrow(row, row_type))

    def _failure(self, reason: str) -> ValueFormatError:
        done = "encoded" if self.type is None else "decoded"
        return ValueFormatError(
            f"a value cannot be {done} as {type(self.format).__name__}: {reason}. on_error='divert' keeps the other rows, and "
            "puts the reason beside each row that fails."
        )


@dataclass(frozen=True, slots=True)
class _Unread:
    """A row whose Python value is still to be made, since some row of its column has none."""

    scalar: Any  # pyarrow's

    def read(self) -> Any:
        try:
            return self.scalar.as_py()
        except (ArithmeticError, ValueError) as error:
            raise PoisonError(
                "Python has no such value: a timestamp outside the years 1 to 9999, or below microseconds"
            ) from error


def _values(rows: Any) -> list[Any]:
    try:
        found: list[Any] = rows.to_pylist()
        return found
    except Exception:  # a timestamp of the year 10000, for instance, which Spark has and Python does not
        return [_Unread(row) if row.is_valid else None for row in rows]


def _reason(error: Exception) -> str:
    if isinstance(error, PoisonError):
        # A key of a JSON document may hold half of a surrogate pair, which no string column can.
        return str(error)[:_MAX_REASON].encode("utf-8", "backslashreplace").decode()
    if isinstance(error, (RecursionError, MemoryError)):
        return "it is nested too deep or too large"
    return f"an unexpected {type(error).__name__}"
