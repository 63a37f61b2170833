"""A column of values through a format, row by row, and what becomes of rows that cannot be read or written.

Owns the policy (fail, null, divert) and the way from Python objects to Arrow; knows neither Spark nor any format.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

import pyarrow as pa

from pykafka_wire.errors import OptionError, PoisonError, ValueFormatError
from pykafka_wire.pickling import SentToWorkers
from pykafka_wire.values.arrow_conversion import fitting
from pykafka_wire.values.json.writing import plain

OnError = Literal["fail", "null", "divert"]
_POLICIES: Final = ("fail", "null", "divert")


class Format(Protocol):
    """One way of writing values. Stateless but for what its process has cached; picklable."""

    def decode(self, value: bytes) -> Any:
        """The Python object that the bytes stand for.

        Raises:
            PoisonError: they stand for none.
            RegistryError: the registry does not answer: nothing is said about the bytes.
        """

    def encode(self, value: Any) -> bytes:
        """The bytes of a Python object. Raises as :meth:`decode` does."""


def diverted(column_type: pa.DataType) -> pa.DataType:
    """The type of a column under ``on_error="divert"``."""
    return pa.struct([pa.field("value", column_type), pa.field("error", pa.string())])


@dataclass(frozen=True, slots=True, kw_only=True)
class Converter(SentToWorkers):
    """``converter(array)`` is the array decoded, or encoded where ``type`` is None; a null stays null.

    Attributes:
        type: of the decoded column.
        on_error: ``fail`` raises for the first row that is poison; ``null`` leaves it null; ``divert`` makes each row a
            struct of ``value`` and ``error``, one of them null.
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
            fitting(self.type)  # refuses types that no value can have, before any task runs

    def __call__(self, rows: Any) -> Any:  # Any: pyarrow has no types
        """The column, as long as ``rows``, a pa.Array.

        Raises:
            ValueFormatError: a row is poison, under ``on_error="fail"``.
            RegistryError: the registry does not answer, under every policy.
        """
        step = self._decoding() if self.type is not None else self._encoding(rows.type)
        found: list[Any] = []
        reasons: list[str | None] = []
        for row in rows.to_pylist():
            value, reason = None, None
            if row is not None:
                try:
                    value = step(row)
                except PoisonError as error:
                    reason = str(error)
                    if self.on_error == "fail":
                        raise self._failure(reason) from error
            found.append(value)
            reasons.append(reason)
        column = self._column(found, reasons)
        if self.on_error != "divert":
            return column
        return pa.StructArray.from_arrays([column, pa.array(reasons, pa.string())], fields=list(diverted(column.type)))

    def _column(self, found: list[Any], reasons: list[str | None]) -> Any:
        column_type = pa.binary() if self.type is None else self.type
        try:
            return pa.array(found, column_type)
        except (pa.ArrowException, ValueError, ArithmeticError):
            pass
        for nth, value in enumerate(found):  # one of them, or more: what Arrow does not take is poison like any other
            try:
                pa.array([value], column_type)
            except (pa.ArrowException, ValueError, ArithmeticError) as error:
                found[nth], reasons[nth] = None, f"a value that {column_type} cannot hold"
                if self.on_error == "fail":
                    raise self._failure(reasons[nth] or "") from error
        return pa.array(found, column_type)

    def _decoding(self) -> Callable[[Any], Any]:
        fit, decode = fitting(self.type), self.format.decode
        return lambda row: fit(decode(row))

    def _encoding(self, row_type: pa.DataType) -> Callable[[Any], Any]:
        encode = self.format.encode
        return lambda row: encode(plain(row, row_type))

    def _failure(self, reason: str) -> ValueFormatError:
        done = "encoded" if self.type is None else "decoded"
        return ValueFormatError(
            f"a value cannot be {done} as {type(self.format).__name__}: {reason}. on_error='divert' keeps the others, and "
            "tells of each that is broken, with its row, why."
        )
