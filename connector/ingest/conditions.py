"""Conditions and columns in Spark's SQL that tasks evaluate without Spark: those that mean the same to Arrow.

Spark itself resolves them: what is translated is Catalyst's tree, in which names are resolved and casts are explicit, and constants
are what Spark makes of them. The set is closed: columns and fields, constants, comparisons of two values of one type, IN, AND, OR,
NOT, IS NULL, and casts that lose nothing. Everything else is Spark's to evaluate. Nothing in the set can fail for a row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: Types of values that are compared, by Spark's names, as a read has them.
_TYPES: Final = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_DECIMAL: Final = re.compile(r"decimal\((\d+),(\d+)\)")
#: Integers, by the digits that they may have.
_DIGITS: Final = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}
#: Those that a DOUBLE has exactly.
_EXACT_IN_DOUBLE: Final = (pa.int8(), pa.int16(), pa.int32(), pa.float32())
_CATALYST: Final = "org.apache.spark.sql.catalyst.expressions."


class NotSimpleError(Exception):
    """An expression is Spark's to evaluate."""


@dataclass(frozen=True, slots=True)
class ReadField:
    """A column of a read, or the path of a field in it, which is null where its parent is."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SqlConstant:
    """One value of pyarrow's."""

    value: pa.Scalar


@dataclass(frozen=True, slots=True)
class SqlCall:
    """A function of :data:`_FUNCTIONS` with its operands, or a cast to ``type``."""

    function: str
    operands: tuple[Expression, ...]
    type: pa.DataType | None = None


Expression: TypeAlias = ReadField | SqlConstant | SqlCall


class BatchFields:
    """The columns of a batch, and their fields, by their paths."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self._flat: dict[tuple[str, ...], list[pa.Array]] = {}

    def __getitem__(self, path: tuple[str, ...]) -> pa.Array:
        *above, name = path
        if not above:
            return self._batch[name]
        parent = tuple(above)
        if parent not in self._flat:
            self._flat[parent] = self[parent].flatten()
        return self._flat[parent][self[parent].type.get_field_index(name)]

    def evaluate(self, expression: Expression) -> pa.Array:
        """Return the value of an expression in each row."""
        value = self._value(expression)
        return pa.repeat(value, self._batch.num_rows) if isinstance(value, pa.Scalar) else value

    def _value(self, expression: Expression) -> Any:  # Any: an array of pyarrow's, or a scalar
        if isinstance(expression, ReadField):
            return self[expression.path]
        if isinstance(expression, SqlConstant):
            return expression.value
        operands = [self._value(operand) for operand in expression.operands]
        if expression.type is not None:
            return pc.cast(operands[0], expression.type)
        return _FUNCTIONS[expression.function](*operands)


# Spark compares a NaN as the largest number, equal to itself; both of them take -0.0 for 0.0.


def _equal(one: Any, other: Any) -> Any:
    equal = pc.equal(one, other)
    if not pa.types.is_floating(one.type):
        return equal
    return pc.or_kleene(equal, pc.and_kleene(pc.is_nan(one), pc.is_nan(other)))


def _less(one: Any, other: Any) -> Any:
    less = pc.less(one, other)
    if not pa.types.is_floating(one.type):
        return less
    return pc.or_kleene(less, pc.and_kleene(pc.is_nan(other), pc.invert(pc.is_nan(one))))


def _equal_null_safe(one: Any, other: Any) -> Any:
    return pc.coalesce(_equal(one, other), pc.and_(pc.is_null(one), pc.is_null(other)))


def _is_in(value: Any, *items: Any) -> Any:
    return reduce(pc.or_kleene, (_equal(value, item) for item in items))


_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "EqualTo": _equal,
    "EqualNullSafe": _equal_null_safe,
    "LessThan": _less,
    "LessThanOrEqual": lambda one, other: pc.invert(_less(other, one)),
    "GreaterThan": lambda one, other: _less(other, one),
    "GreaterThanOrEqual": lambda one, other: pc.invert(_less(one, other)),
    "In": _is_in,
    "And": pc.and_kleene,
    "Or": pc.or_kleene,
    "Not": pc.invert,
    "IsNull": pc.is_null,
    "IsNotNull": pc.is_valid,
}
_COMPARISONS: Final = frozenset(("EqualTo", "EqualNullSafe", "In"))
_ORDERINGS: Final = frozenset(("LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual"))


# Catalyst's trees. Any: objects of the JVM.


def translated(frame: DataFrame, columns: Sequence[Column], names: Mapping[str, Expression]) -> list[Expression]:
    """Return what columns of a DataFrame are in tasks; in a classic session.

    Args:
        names: what the DataFrame's columns are in tasks, by their names in lower case.

    Raises:
        NotSimpleError: one of them is Spark's to evaluate.
        AnalysisException: one of them does not fit the DataFrame.
    """
    if not columns:
        return []
    aliased = [column.alias(f"column{number}") for number, column in enumerate(columns)]
    made: Any = frame.select(*aliased)
    if not hasattr(made, "_jdf"):
        raise NotSimpleError("the JVM is out of reach in Spark Connect")
    outputs = made._jdf.queryExecution().analyzed().projectList()
    tree = _Tree(names)
    return [tree.expression(outputs.apply(number).child()) for number in range(outputs.size())]


class _Tree:
    def __init__(self, names: Mapping[str, Expression]) -> None:
        self._names = names
        #: What is in the tree once and used several times, as the value of BETWEEN.
        self._common: dict[str, Expression] = {}

    def expression(self, node: Any) -> Expression:
        name = node.getClass().getName().removeprefix(_CATALYST)
        special = self._SPECIAL.get(name)
        if special is not None:
            return special(self, node)
        if name not in _FUNCTIONS:
            raise NotSimpleError(name)
        children = _children(node)
        if name in _COMPARISONS or name in _ORDERINGS:
            types = {_type(child) for child in children}
            if len(types) > 1 or (name in _ORDERINGS and pa.bool_() in types):
                raise NotSimpleError(name)
        return SqlCall(name, tuple(map(self.expression, children)))

    def _attribute(self, node: Any) -> Expression:
        name = str(node.name()).lower()
        if name not in self._names:
            raise NotSimpleError(name)
        return self._names[name]

    def _struct_field(self, node: Any) -> Expression:
        parent = self.expression(node.child())
        if not isinstance(parent, ReadField):
            raise NotSimpleError("a field of what is no column")
        return ReadField((*parent.path, str(node.childSchema().apply(node.ordinal()).name())))

    def _constant(self, node: Any) -> Expression:
        return SqlConstant(_scalar(node.eval(None), _type(node)))

    def _cast(self, node: Any) -> Expression:
        child = node.child()
        if child.getClass().getName().removeprefix(_CATALYST) == "Literal":
            return self._constant(node)
        given, wanted = _type(child), _type(node)
        if given == wanted:
            return self.expression(child)
        if not _is_lossless(given, wanted):
            raise NotSimpleError(f"{given} as {wanted}")
        return SqlCall("Cast", (self.expression(child),), wanted)

    def _negative(self, node: Any) -> Expression:
        if node.child().getClass().getName().removeprefix(_CATALYST) != "Literal":
            raise NotSimpleError("arithmetic")
        return self._constant(node)

    def _replaced(self, node: Any) -> Expression:
        return self.expression(node.replacement())

    def _with_common(self, node: Any) -> Expression:
        for definition in _elements(node.defs()):
            self._common[str(definition.id().toString())] = self.expression(definition.child())
        return self.expression(node.child())

    def _common_value(self, node: Any) -> Expression:
        return self._common[str(node.id().toString())]

    _SPECIAL: Final[Mapping[str, Callable[[_Tree, Any], Expression]]] = {
        "AttributeReference": _attribute,
        "GetStructField": _struct_field,
        "Literal": _constant,
        "Cast": _cast,
        "UnaryMinus": _negative,
        "Between": _replaced,
        "With": _with_common,
        "CommonExpressionRef": _common_value,
    }


def _children(node: Any) -> list[Any]:
    return _elements(node.children())


def _elements(sequence: Any) -> list[Any]:
    return [sequence.apply(number) for number in range(sequence.size())]


def _type(node: Any) -> pa.DataType:
    """Return the type of a value that may be compared."""
    text = str(node.dataType().catalogString())
    if (match := _DECIMAL.fullmatch(text)) is not None:
        return pa.decimal128(int(match[1]), int(match[2]))
    if text not in _TYPES:
        raise NotSimpleError(text)
    return _TYPES[text]


def _scalar(value: Any, data_type: pa.DataType) -> pa.Scalar:
    """Return a value as Catalyst has it: dates and timestamps are numbers."""
    if value is None:
        return pa.scalar(None, data_type)
    if pa.types.is_decimal(data_type):
        return pa.scalar(Decimal(str(value.toString())), data_type)
    if pa.types.is_string(data_type):
        return pa.scalar(str(value.toString()), data_type)
    if pa.types.is_temporal(data_type):
        of_numbers = pa.int32() if pa.types.is_date(data_type) else pa.int64()
        return pa.scalar(value, of_numbers).cast(data_type)
    return pa.scalar(value, data_type)


def _is_lossless(given: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_decimal(wanted):
        whole_digits = wanted.precision - wanted.scale
        if pa.types.is_decimal(given):
            return bool(given.scale <= wanted.scale and given.precision - given.scale <= whole_digits)
        return given in _DIGITS and bool(_DIGITS[given] <= whole_digits)
    if given in _DIGITS and wanted in _DIGITS:
        return _DIGITS[given] <= _DIGITS[wanted]
    return bool(wanted == pa.float64() and given in _EXACT_IN_DOUBLE)
