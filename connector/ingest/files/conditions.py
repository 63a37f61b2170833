"""SQL conditions and columns that tasks evaluate with Arrow, without Spark, if the meaning is the same.

Spark resolves the expressions. This module translates Catalyst's tree, which has resolved names, explicit casts and Spark's
constants. The supported set is closed: columns and fields, constants, comparisons of values of the same type, IN, AND, OR, NOT, IS
NULL, and lossless casts. Spark evaluates every other expression. No expression in the set can fail for a row.
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

#: Types of values that can be compared, by Spark's names, with their types in a read.
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
#: Integer types, with the most digits that a value has.
_DIGITS: Final = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}
#: Number types that a DOUBLE represents exactly.
_EXACT_IN_DOUBLE: Final = (pa.int8(), pa.int16(), pa.int32(), pa.float32())
#: Limits: each node needs calls to the JVM, and each level needs stack frames in Python, here and when it is pickled.
_MAX_NODES: Final = 300
_MAX_DEPTH: Final = 50
_FEW_ITEMS: Final = 8
_CATALYST: Final = "org.apache.spark.sql.catalyst.expressions."


class NotSimpleError(Exception):
    """Only Spark can evaluate the expression."""


@dataclass(frozen=True, slots=True)
class ReadField:
    """A column of a read, or the path of a nested field, which is null if its parent is null."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SqlConstant:
    """A constant in Catalyst's form: dates and timestamps are numbers, decimals are texts. So every constant can be pickled."""

    value: bool | int | float | str | bytes | None
    data_type: pa.DataType


@dataclass(frozen=True, slots=True)
class SqlCall:
    """A function in :data:`_FUNCTIONS` with its operands, or a cast to ``data_type``."""

    function: str
    operands: tuple[Expression, ...]
    data_type: pa.DataType | None = None


Expression: TypeAlias = ReadField | SqlConstant | SqlCall


def conjuncts(expression: Expression) -> list[Expression]:
    """Return the conditions that AND joins to one condition."""
    if not isinstance(expression, SqlCall) or expression.function != "And":
        return [expression]
    return [each for operand in expression.operands for each in conjuncts(operand)]


def columns_in(expression: Expression) -> set[str]:
    """Return the names of the columns of a read that an expression uses."""
    if isinstance(expression, ReadField):
        return {expression.path[0]}
    operands = expression.operands if isinstance(expression, SqlCall) else ()
    return {name for operand in operands for name in columns_in(operand)}


class BatchFields:
    """The columns and nested fields of a batch, by path."""

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
        index = self[parent].type.get_field_index(name)
        if index < 0:
            raise KeyError(f"{'.'.join(path)} is not a field of the read, or not the only one of this name")
        return self._flat[parent][index]

    def evaluate(self, expression: Expression) -> pa.Array:
        """Return the value of an expression for each row."""
        value = self._value(expression)
        return pa.repeat(value, self._batch.num_rows) if isinstance(value, pa.Scalar) else value

    def _value(self, expression: Expression) -> Any:  # Any: a pyarrow array or scalar
        if isinstance(expression, ReadField):
            return self[expression.path]
        if isinstance(expression, SqlConstant):
            return _constants([expression])[0]
        if expression.function == "In":
            return self._is_in(*expression.operands)
        operands = [self._value(operand) for operand in expression.operands]
        if expression.data_type is not None:
            return pc.cast(operands[0], expression.data_type)
        return _FUNCTIONS[expression.function](*operands)

    def _is_in(self, operand: Expression, *items: Expression) -> Any:
        """Return whether a value equals one of the items; null if it equals none and an item is null."""
        value = self._value(operand)
        # For few items, comparisons are faster than a set; and a set does not find NaN.
        is_set = len(items) > _FEW_ITEMS and not pa.types.is_floating(value.type)
        known: list[SqlConstant] = []
        others: list[Expression] = []
        for item in items:
            if not is_set:
                others.append(item)
            elif isinstance(item, SqlConstant) and item.value is not None:
                known.append(item)
            else:
                others.append(item)
        results = [_equal(value, self._value(item)) for item in others]
        if known:
            is_known = pc.is_in(value, value_set=_constants(known))
            results.append(pc.if_else(pc.is_valid(value), is_known, pa.scalar(None, pa.bool_())))
        return reduce(pc.or_kleene, results)


def _constants(constants: Sequence[SqlConstant]) -> pa.Array:
    """Return constants of the same type as an array."""
    data_type, values = constants[0].data_type, [constant.value for constant in constants]
    if pa.types.is_decimal(data_type):
        return pa.array([None if value is None else Decimal(str(value)) for value in values], data_type)
    if pa.types.is_temporal(data_type):
        return pa.array(values, pa.int32() if pa.types.is_date(data_type) else pa.int64()).cast(data_type)
    return pa.array(values, data_type)


# Spark treats NaN as the largest number, equal to itself; Spark and Arrow treat -0.0 as 0.0.


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


_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "EqualTo": _equal,
    "EqualNullSafe": _equal_null_safe,
    "LessThan": _less,
    "LessThanOrEqual": lambda one, other: pc.invert(_less(other, one)),
    "GreaterThan": lambda one, other: _less(other, one),
    "GreaterThanOrEqual": lambda one, other: pc.invert(_less(one, other)),
    "And": pc.and_kleene,
    "Or": pc.or_kleene,
    "Not": pc.invert,
    "IsNull": pc.is_null,
    "IsNotNull": pc.is_valid,
}
_COMPARISONS: Final = frozenset(("EqualTo", "EqualNullSafe", "In"))
_ORDERINGS: Final = frozenset(("LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual"))


# Catalyst's trees. Any: JVM objects.


def translated(frame: DataFrame, columns: Sequence[Column], names: Mapping[str, Expression]) -> list[Expression]:
    """Translate columns of a DataFrame for tasks; only in a classic session.

    Args:
        names: the translations of the DataFrame's columns, by lower-case name.

    Raises:
        NotSimpleError: only Spark can evaluate a column.
        AnalysisException: a column does not fit the DataFrame.
    """
    if not columns:
        return []
    aliased = [column.alias(f"column{number}") for number, column in enumerate(columns)]
    made: Any = frame.select(*aliased)
    if not hasattr(made, "_jdf"):
        raise NotSimpleError("Spark Connect gives no access to the JVM")
    outputs = made._jdf.queryExecution().analyzed().projectList()
    tree = _Tree(names)
    return [tree.expression(outputs.apply(number).child()) for number in range(outputs.size())]


class _Tree:
    def __init__(self, names: Mapping[str, Expression]) -> None:
        self._names = names
        self._n_nodes = 0
        self._depth = 0
        #: Common subexpressions, such as the value of BETWEEN.
        self._common: dict[str, Expression] = {}

    def expression(self, node: Any) -> Expression:
        self._n_nodes += 1
        self._depth += 1
        if self._n_nodes > _MAX_NODES or self._depth > _MAX_DEPTH:
            raise NotSimpleError("it is large")
        expression = self._translate(node)
        self._depth -= 1
        return expression

    def _translate(self, node: Any) -> Expression:
        name = node.getClass().getName().removeprefix(_CATALYST)
        special = self._SPECIAL.get(name)
        if special is not None:
            return special(self, node)
        if name not in _FUNCTIONS and name != "In":
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
            raise NotSimpleError("a field of an expression that is no column")
        return ReadField((*parent.path, str(node.childSchema().apply(node.ordinal()).name())))

    def _constant(self, node: Any) -> Expression:
        data_type, value = _type(node), node.eval(None)
        is_object = value is not None and (pa.types.is_decimal(data_type) or pa.types.is_string(data_type))
        return SqlConstant(str(value.toString()) if is_object else value, data_type)

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
    """Return the type of a value. Raises NotSimpleError for a type that cannot be compared."""
    text = str(node.dataType().catalogString())
    if (match := _DECIMAL.fullmatch(text)) is not None:
        return pa.decimal128(int(match[1]), int(match[2]))
    if text not in _TYPES:
        raise NotSimpleError(text)
    return _TYPES[text]


def _is_lossless(given: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_decimal(wanted):
        whole_digits = wanted.precision - wanted.scale
        if pa.types.is_decimal(given):
            return bool(given.scale <= wanted.scale and given.precision - given.scale <= whole_digits)
        return given in _DIGITS and bool(_DIGITS[given] <= whole_digits)
    if given in _DIGITS and wanted in _DIGITS:
        return _DIGITS[given] <= _DIGITS[wanted]
    return bool(wanted == pa.float64() and given in _EXACT_IN_DOUBLE)
