"""A table's contract: which records it takes (``where``, ``types``), which columns it selects (``select``), and which conditions a
row must meet (``expect``).

The expressions ``where`` and ``select`` see a record: ``key``, ``value``, ``headers``, ``topic``, ``partition``, ``offset``,
``timestamp``, and the value's fields by their own names, unless one of these columns has the name. The expressions of ``expect``
see a row of the table, with the table's column names. In the modes ``upsert`` and ``cdc`` the value is the row.

A table takes a record if ``where`` is true. A record that cannot be read is a reject of each table whose ``where`` may be true for
the known part of the record. A row breaks an expectation if the condition is false, as in SQL's CHECK.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, NamedTuple

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name of it)
from pyspark.sql.types import BooleanType, DataType, NullType, StringType, StructField, StructType

from pykafka_wire.errors import IngestError
from pykafka_wire.ingest.changes.newest import REASON, TAKEN, TRUNCATE, UNTYPED
from pykafka_wire.ingest.files.conditions import Expression, ReadField, translated
from pykafka_wire.ingest.settings.model import ContractSettings, ReadSettings
from pykafka_wire.ingest.spark.errors import sentence_of
from pykafka_wire.ingest.spark.sql import quoted
from pykafka_wire.ingest.tables.merging import DELETE, UNAVAILABLE

#: Kafka's columns in every table, in this order. ``headers`` may follow.
KAFKA_COLUMNS: Final = ("key", "topic", "partition", "offset", "timestamp")
#: Columns of a read that neither a table has nor an expression sees: the value may have fields of these names.
UNSEEN: Final = ("valueError", "keyError", "timestampType", "valueSchemaId", "valueSchemaName")
#: The prefix that keeps a read's columns apart from the table's columns, which the expressions use.
_READ_PREFIX: Final = "_pykafka_wire_aside_"
#: A star expression: all fields of a value, perhaps with exceptions.
_STAR: Final = re.compile(r"(?:(?P<path>.*?)\s*\.\s*)?\*\s*(?P<rest>(?:EXCEPT\s*\(.*\))?)", re.IGNORECASE | re.DOTALL)
#: Texts, quoted names, comments and words of an expression; every other character by itself.
_TOKEN: Final = re.compile(
    r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`(?:[^`]|``)*`|--[^\n]*|/\*.*?\*/|[\w.]+|.""", re.DOTALL
)
#: Characters that appear in a column name only if Spark has made the name.
_UNNAMED: Final = re.compile(r"[(),;{}=]")
#: The alias at the end of an expression, and expressions that use the value as a whole.
_ALIAS: Final = re.compile(r"\s+AS\s+(?:\w+|`[^`]+`)\s*$", re.IGNORECASE)
_WHOLE: Final = re.compile(r"(?<![\w.])value(?!\w|`?\s*\.)|(?:^|[.(,])\s*\*", re.IGNORECASE)


class SelectedColumn(NamedTuple):
    """A column of ``select``; ``uses`` are the fields of the value that its expression reads."""

    name: str
    column: Column
    type: DataType
    uses: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskContract:
    """A contract that tasks evaluate without Spark.

    Attributes:
        rows: the types of the rows that :meth:`Contract.records` returns.
        record: the path of a record's value in the read.
        outputs: the expressions of ``select``, by their paths in :attr:`rows`.
        where: the condition; None for a table that takes all records.
        expectations: the conditions of ``expect``, each with the reject reason of a row that breaks it.
    """

    rows: StructType
    record: tuple[str, ...]
    outputs: Mapping[tuple[str, ...], Expression] = field(default_factory=dict)
    where: Expression | None = None
    expectations: tuple[tuple[Expression, str], ...] = ()

    def column(self, path: tuple[str, ...]) -> Expression:
        """Return the expression of a column of :attr:`rows`, or of a field of a column."""
        if path in self.outputs:
            return self.outputs[path]
        return ReadField((*self.record, *path[1:]) if path[0] == "value" else path)


def read_alike(readings: Sequence[ReadSettings]) -> bool:
    """Return whether tables of a topic read its records with the same result, so that one read serves all of them."""
    return not any(reading.types for reading in readings) and len(set(readings)) == 1


def needs_headers(tables: Iterable[ContractSettings]) -> bool:
    """Return whether an expression of one of the tables may use the records' headers."""
    return any(_names("headers", text) for table in tables for text in _expressions(table))


class Contract:
    """The contract of one table, in Spark's SQL."""

    def __init__(self, settings: ContractSettings, prefix: str) -> None:
        """Store the table's settings, and the ``prefix`` of Kafka's columns in the table."""
        self.settings = settings
        self._prefix = prefix
        #: The name of the table's key column, which ``select`` may replace.
        self._key = prefix + "key"

    def unwrapped(self, rows: DataFrame) -> DataFrame:
        """Return rows whose ``value`` is the record itself, if the table takes records of a single type."""
        name = self.single_type(rows.schema["value"].dataType)
        return rows if name is None else rows.withColumn("value", F.col(f"value.{quoted(name)}"))

    def single_type(self, value: DataType) -> str | None:
        """Return the field of a value that holds the record, if the table takes records of a single type."""
        is_single = len(self.settings.types) == 1 and self.settings.types != ("*",)
        return value.names[0] if is_single and isinstance(value, StructType) and len(value.names) == 1 else None

    # Records

    def records(self, rows: DataFrame) -> DataFrame:
        """Return the records that the table takes, with the selected columns as ``value``, and the reject reason :data:`REASON`.

        Raises:
            IngestError, AnalysisException: an expression does not fit these records.
        """
        if not self.settings.has_sql:
            return rows
        names, wide = rows.columns, _with_fields(rows)
        if self.settings.where is not None:
            wide = wide.where(F.coalesce(_fits(wide, self.settings.where), F.col(REASON).isNotNull()))
        return self._expecting(self._selected(wide, names), F.lit(True))

    def in_tasks(self, session: SparkSession, read: StructType) -> TaskContract:
        """Return the contract as expressions that tasks evaluate; the result is that of :meth:`records`.

        Args:
            read: the source's columns.

        Raises:
            NotSimpleError: only Spark can evaluate an expression.
            IngestError, AnalysisException: an expression does not fit these records.
        """
        name, value = self.single_type(read["value"].dataType), read["value"].dataType
        record = ("value",) if name is None else ("value", name)
        if name is not None and isinstance(value, StructType):
            value = value[name].dataType
        known = {"value": value, **dict.fromkeys(UNSEEN)}
        types = {column.name: known.get(column.name, column.dataType) for column in read} | {REASON: StringType()}
        rows = StructType([StructField(name, data_type) for name, data_type in types.items() if data_type is not None])
        contract = TaskContract(rows=rows, record=record)
        if not self.settings.has_sql:
            return contract
        records = session.createDataFrame([], rows)
        wide = _with_fields(records)
        names: dict[str, Expression] = {
            name.lower(): contract.column((name,) if name in rows.names else ("value", name))
            for name in wide.columns
            if name != REASON
        }

        outputs = self._outputs(wide)
        made = translated(wide, [output.column for output in outputs], names)
        paths = [("key",) if output.name == self._key else ("value", output.name) for output in outputs]
        selected = self._selected(wide, rows.names, outputs)
        where = [] if self.settings.where is None else [_condition(wide, "where", self.settings.where)]
        contract = TaskContract(
            rows=selected.schema,
            record=record,
            outputs=dict(zip(paths, made, strict=True)),
            where=next(iter(translated(wide, where, names)), None),
        )
        prefixed = self._with_table_columns(selected, F.lit(True))
        of_table = {name.lower(): contract.column(path) for name, path in self._paths(selected).items()}
        expected = [_condition(prefixed, f"expect.{name}", text) for name, text in self.settings.expect.items()]
        fulfilled = translated(prefixed, expected, of_table)
        reasons = [_broken(name, text) for name, text in self.settings.expect.items()]
        return replace(contract, expectations=tuple(zip(fulfilled, reasons, strict=True)))

    # Changes of rows

    def changes(self, rows: DataFrame) -> DataFrame:
        """Return changes of rows, with broken expectations in :data:`REASON`, and :data:`TAKEN`.

        Raises: as :meth:`records`.
        """
        if not self.settings.has_sql:
            return rows
        wide, where = _with_fields(_sent(rows)), self.settings.where
        # A record that cannot be read has no value, but it is no delete.
        is_delete = (F.col(DELETE) | F.col(TRUNCATE)) & F.col(REASON).isNull()
        is_unknown = F.col(REASON).isNotNull() | F.col(UNAVAILABLE).isNotNull()
        fits = F.lit(True) if where is None else _fits(wide, where)
        added = {TAKEN: is_delete | F.coalesce(fits, is_unknown)}
        # A record for another table means that the row is no longer in this table.
        is_another = ~F.coalesce(fits, F.lit(True)) & F.col("key").isNotNull()
        wide = wide.withColumns({**added, REASON: F.when(~is_another, F.col(REASON))})
        outputs = self._outputs(wide)
        seen = self._selected(wide, [*rows.columns, *added, _READ_PREFIX], outputs)
        seen = self._expecting(seen, F.col(TAKEN) & ~is_delete, self._uses_of_expectations(_fields_of(wide), outputs))
        return seen.withColumn("value", F.col(_READ_PREFIX)).drop(_READ_PREFIX)

    def fitting(self, newest_changes: DataFrame, *, has_unsent: bool) -> DataFrame:
        """Return the newest changes of rows with the selected columns. A change whose row does not meet ``where`` deletes the row.

        Args:
            has_unsent: whether the changes may have values that the database did not send.

        Raises:
            IngestError: an expression needs a value that was not sent.
        """
        rows = newest_changes.drop(TAKEN)
        if not (self.settings.where or self.settings.select):
            return rows
        wide = _with_fields(_sent(rows))
        outputs = self._outputs(wide)
        if has_unsent:
            self._check_sent(wide, outputs)
        names = rows.columns
        if self.settings.where is not None:
            fits = F.coalesce(_condition(wide, "where", self.settings.where), F.lit(False))
            wide = wide.withColumn(DELETE, F.col(DELETE) | ~fits)
        if not self.settings.select:
            return wide.withColumn("value", F.col(_READ_PREFIX)).select(*names)
        unsent = [
            F.when(F.arrays_overlap(UNAVAILABLE, _texts(output.uses)), F.lit(output.name))
            for output in outputs
            if output.uses
        ]
        if unsent:
            lacking = F.array_compact(F.array(*unsent))
            wide = wide.withColumn("_pykafka_wire_lacking", F.when(F.size(lacking) > 0, lacking))
        else:
            wide = wide.withColumn("_pykafka_wire_lacking", F.lit(None).cast("array<string>"))
        selected = self._selected(wide, [*names, "_pykafka_wire_lacking"], outputs)
        return selected.withColumn(UNAVAILABLE, F.col("_pykafka_wire_lacking")).select(*names)

    def _check_sent(self, wide: DataFrame, outputs: Sequence[SelectedColumn]) -> None:
        """Raise IngestError if ``where``, or a selected column that uses several fields, needs a value that was not sent."""
        fields = _fields_of(wide)
        needed = set(_used(self.settings.where or "", fields))
        for output in outputs:
            needed |= output.uses if len(output.uses) > 1 else set()
        if not needed:
            return
        lacking = wide.where(~F.col(DELETE) & F.arrays_overlap(UNAVAILABLE, _texts(needed)))
        row = lacking.select("topic", "partition", "offset", F.array_intersect(UNAVAILABLE, _texts(needed))).first()
        if row is not None:
            raise IngestError(
                f"the change in topic {row[0]}, partition {row[1]}, offset {row[2]} has no value of {', '.join(row[3])}: the "
                "database did not send it, but where or select needs it. Use other columns, or let the database send whole rows "
                "(PostgreSQL: ALTER TABLE … REPLICA IDENTITY FULL)."
            )

    # Columns

    def _outputs(self, wide: DataFrame) -> list[SelectedColumn]:
        """Return the columns of ``select``.

        Raises:
            IngestError: a column has no name or no type.
        """
        fields = _fields_of(wide)
        outputs: list[SelectedColumn] = []
        for text in self.settings.select:
            star = _STAR.fullmatch(text.strip())
            if star is not None and (star["path"] or fields is not None):
                path = star["path"] or "value"
                inner = wide.select(F.expr(f"{path}.* {star['rest']}")).schema
                for field in inner:
                    uses = {field.name} if path.lower() == "value" else _used(path, fields)
                    column = F.expr(f"{path}.{quoted(field.name)}")
                    outputs.append(SelectedColumn(field.name, column, field.dataType, frozenset(uses)))
                continue
            text = "value" if star is not None else text
            column = F.expr(text)
            (made,) = wide.select(column).schema
            outputs.append(SelectedColumn(made.name, column, made.dataType, frozenset(_used(text, fields))))
            if _UNNAMED.search(made.name) and quoted(made.name) not in text:
                raise IngestError(f"select has a column without a name: write {text} AS name.")
        for output in outputs:
            if isinstance(output.type, NullType):
                raise IngestError(
                    f"the column {output.name} of select has no type: write CAST(NULL AS STRING), or another type."
                )
            is_key = output.name == self._key
            if is_key and self.settings.merges:
                raise IngestError(
                    f"select replaces {output.name}, which only mode append allows: give the column another name."
                )
            if not is_key and output.name.lower() in {(self._prefix + name).lower() for name in KAFKA_COLUMNS}:
                raise IngestError(
                    f"select has a column {output.name}, which is a Kafka column of the table: give it another name."
                )
        return outputs

    def _selected(
        self, wide: DataFrame, names: Sequence[str], outputs: Sequence[SelectedColumn] | None = None
    ) -> DataFrame:
        """Return the columns ``names``, with the selected columns as ``value``.

        Args:
            outputs: the result of :meth:`_outputs`, for which Spark analyses each expression, if the caller has it.
        """
        if not self.settings.select:
            return wide.select(*names)
        if outputs is None:
            outputs = self._outputs(wide)
        columns: dict[str, Column] = {name: F.col(name) for name in names}
        for key in (output for output in outputs if output.name == self._key):
            columns["key"] = key.column
        of_value = [output for output in outputs if output.name != self._key]
        if not of_value:
            raise IngestError("select has no column of the value: add one.")
        counted = Counter(output.name.lower() for output in of_value)
        if twice := [name for name, n in counted.items() if n > 1]:
            raise IngestError(f"select has two columns {twice[0]}: rename one of them (AS).")
        columns["value"] = F.struct(*(output.column.alias(output.name) for output in of_value))
        return wide.select(*(column.alias(name) for name, column in columns.items()))

    def _uses_of_expectations(
        self, fields: Sequence[str] | None, outputs: Sequence[SelectedColumn]
    ) -> Mapping[str, frozenset[str]]:
        """Return the fields of the value that each expectation uses, by the expectation's name."""
        uses = {output.name: output.uses for output in outputs} or {name: frozenset({name}) for name in fields or ()}
        return {
            name: frozenset[str]().union(*(uses[column] for column in _used(text, [*uses])))
            for name, text in self.settings.expect.items()
        }

    def _expecting(
        self, rows: DataFrame, is_row: Column, uses: Mapping[str, frozenset[str]] | None = None
    ) -> DataFrame:
        """Return rows with broken expectations as :data:`REASON`.

        Args:
            is_row: which of the rows are rows of the table.
            uses: the fields that each expectation uses, for changes. An expectation is not checked against a change without one of
                them: the value that was not sent has not changed, and was checked when it was sent.
        """
        if not self.settings.expect:
            return rows
        names = rows.columns
        prefixed = self._with_table_columns(rows, is_row)
        broken = []
        for name, text in self.settings.expect.items():
            is_broken = ~_condition(prefixed, f"expect.{name}", text)
            if uses is not None and uses[name]:
                lacks = F.arrays_overlap(F.col(_READ_PREFIX + UNAVAILABLE), _texts(uses[name]))
                is_broken = is_broken & ~F.coalesce(lacks, F.lit(False))
            broken.append(F.when(is_broken, F.lit(_broken(name, text))))
        reason = F.coalesce(
            F.col(_READ_PREFIX + REASON), F.when(F.col(f"{_READ_PREFIX}_pykafka_wire_is_row"), F.coalesce(*broken))
        )
        return prefixed.select(
            *((reason if name == REASON else F.col(_READ_PREFIX + name)).alias(name) for name in names)
        )

    def _paths(self, rows: DataFrame) -> dict[str, tuple[str, ...]]:
        """Return the paths of the table's columns in ``rows``, by column name."""
        fields = _fields_of(rows)
        of_value = {"value": ("value",)} if fields is None else {name: ("value", name) for name in fields}
        names = [name for name in (*KAFKA_COLUMNS, "headers") if name in rows.columns]
        return {**of_value, **{self._prefix + name: (name,) for name in names}}

    def _with_table_columns(self, rows: DataFrame, is_row: Column) -> DataFrame:
        """Return the table's columns under their names, and the columns of ``rows`` under prefixed names."""
        prefixed = rows.withColumn("_pykafka_wire_is_row", is_row)
        return prefixed.select(
            *(F.col(name).alias(_READ_PREFIX + name) for name in prefixed.columns),
            *(F.col(".".join(map(quoted, path))).alias(name) for name, path in self._paths(rows).items()),
        )

    # Checks before the start

    def mistakes(self, rows: DataFrame) -> list[tuple[str, bool]]:
        """Return all mistakes of the expressions for such records, each with whether the expression is invalid SQL.

        Args:
            rows: typed records, as for :meth:`records`. ``key`` may be missing if its type is not known yet.
        """
        wide = _with_fields(rows)
        settings, mistakes = self.settings, list[tuple[str, bool]]()

        def check(title: str, text: str, evaluate: Callable[[], object]) -> None:
            if "key" not in rows.columns and _names("key", text):
                return
            try:
                evaluate()
            except ParseException as error:
                mistakes.append((f"{title} is {text!r}, which is not valid SQL: {_first_line(error)}", True))
            except AnalysisException as error:
                mistakes.append((f"{title} is {text!r}: {_first_line(error)}", False))
            except IngestError as error:
                mistakes.append((error.message, False))

        if settings.where is not None:
            check("where", settings.where, partial(_condition, wide, "where", settings.where))
        for text in settings.select:
            check("select", text, partial(Contract(replace(settings, select=(text,)), self._prefix)._outputs, wide))
        if not mistakes and settings.select:
            check("select", ", ".join(settings.select), partial(self._selected, wide, rows.columns))
        if mistakes:  # expectations cannot be checked against missing columns
            return mistakes
        rows = self._selected(wide, rows.columns)
        for name, text in settings.expect.items():
            one = Contract(replace(settings, expect={name: text}), self._prefix)
            check(f"expect.{name}", text, partial(one._expecting, rows, F.lit(True)))
        return mistakes

    def columns(self, rows: DataFrame) -> StructType:
        """Return the value's columns in the table, for records as in :meth:`mistakes`."""
        value = self._selected(_with_fields(rows), rows.columns).schema["value"].dataType
        return value if isinstance(value, StructType) else StructType().add("value", value)


def _expressions(settings: ContractSettings) -> Iterator[str]:
    yield from (text for text in (settings.where, *settings.select, *settings.expect.values()) if text is not None)


def _broken(name: str, text: str) -> str:
    """Return the reject reason of a row that breaks an expectation."""
    return f"expectation {name}: {text}"


def _first_line(error: Exception) -> str:
    return sentence_of(error).strip().split("\n")[0]


def _condition(wide: DataFrame, title: str, text: str) -> Column:
    """Return a condition as a column. Raises IngestError if the expression is no condition."""
    column = F.expr(text)
    (made,) = wide.select(column).schema
    if not isinstance(made.dataType, BooleanType | NullType):
        raise IngestError(f"{title} is {text!r}, which is not a condition: its type is {made.dataType.simpleString()}.")
    return column.cast("boolean")


def _fits(wide: DataFrame, where: str) -> Column:
    """Return whether records meet ``where``. For a record that cannot be read the result is null, unless the known part of the
    record contradicts ``where``.

    A value or a key that cannot be read is null in ``wide``, although the record may have one. So a false condition contradicts
    ``where`` only if the condition uses neither an unreadable value nor an unreadable key. Conditions joined by AND count singly.
    """
    fields = {name.lower() for name in _fields_of(wide) or ()} - {*KAFKA_COLUMNS, "headers"}
    contradicts = F.lit(False)
    for text in _parts(wide, where):
        names, is_false = _columns_in(text), ~F.coalesce(F.expr(text).cast("boolean"), F.lit(True))
        if names & {*fields, "value"}:
            is_false = is_false & F.col("value").isNotNull()
        if "key" in names:
            is_false = is_false & F.col("key").isNotNull()
        contradicts = contradicts | is_false
    return F.when(F.col(REASON).isNull(), _condition(wide, "where", where)).when(contradicts, F.lit(False))


def _parts(wide: DataFrame, where: str) -> list[str]:
    """Return the conditions that AND joins to ``where``; ``where`` itself, if Spark divides it in another way."""
    parts = conjuncts(where)
    try:
        _ = wide.select(
            *(F.expr(text).cast("boolean").alias(f"part{number}") for number, text in enumerate(parts))
        ).schema
    except (AnalysisException, ParseException):
        return [where]
    return parts


def conjuncts(text: str) -> list[str]:
    """Return the conditions that AND joins to one condition in SQL."""
    parts, depth, n_cases, n_betweens = [""], 0, 0, 0
    for token in _TOKEN.findall(text):
        word = token.upper()
        depth += (token in ("(", "[")) - (token in (")", "]"))
        n_cases += (word == "CASE") - (word == "END")
        if depth == n_cases == 0:
            if word == "OR":
                return [text]
            n_betweens += word == "BETWEEN"
            if word == "AND":
                if not n_betweens:
                    parts.append("")
                    continue
                n_betweens -= 1
        parts[-1] += token
    if len(parts) > 1:
        return [each for part in parts for each in conjuncts(part)]
    inner = _in_parentheses(text)
    return [text] if inner is None else conjuncts(inner)


def _in_parentheses(text: str) -> str | None:
    """Return the expression inside the parentheses that enclose ``text``; None if no parentheses enclose all of it."""
    depth, tokens = 0, _TOKEN.findall(text.strip())
    for number, token in enumerate(tokens):
        depth += (token == "(") - (token == ")")
        if not depth:
            return "".join(tokens[1:-1]) if 0 < number == len(tokens) - 1 else None
    return None


def _columns_in(text: str) -> set[str]:
    """Return the names of the columns that an expression may use, in lower case."""
    names, before = set[str](), ""
    for token in _TOKEN.findall(text):
        quoted_name = token[1:-1] if token[0] in '`"' and len(token) > 1 else ""
        name = quoted_name or (token.partition(".")[0] if re.match(r"\w", token) else "")
        if name and before != ".":
            names.add(name.lower())
        before = token[-1]
    return names


def _with_fields(rows: DataFrame) -> DataFrame:
    """Return rows with the value's fields as additional columns, unless a column has the same name."""
    known = {name.lower() for name in rows.columns}
    free = [name for name in _fields_of(rows) or () if name.lower() not in known]
    once = {name.lower(): name for name in reversed(free)}.values()
    return rows.select("*", *(F.col(f"value.{quoted(name)}").alias(name) for name in free if name in once))


def _sent(rows: DataFrame) -> DataFrame:
    """Return changes whose ``value`` has null for each unsent value. The original value is kept in the column
    :data:`_READ_PREFIX`."""
    kept = rows.withColumn(_READ_PREFIX, F.col("value"))
    fields = _fields_of(rows)
    if fields is None:
        return kept
    sent = [
        F.when(~F.coalesce(F.array_contains(UNAVAILABLE, name), F.lit(False)), F.col(f"value.{quoted(name)}")).alias(
            name
        )
        for name in fields
    ]
    return kept.withColumn("value", F.when(F.col("value").isNotNull(), F.struct(*sent)))


def _fields_of(rows: DataFrame) -> list[str] | None:
    """Return the names of the value's fields; None if the value has no fields."""
    value = rows.schema["value"].dataType
    return list(value.names) if isinstance(value, StructType) and value != UNTYPED else None


def _texts(names: Sequence[str] | frozenset[str] | set[str]) -> Column:
    return F.array(*(F.lit(name) for name in sorted(names)))


def _names(name: str, text: str) -> bool:
    """Return whether an expression may name a column, that is, whether it contains the word."""
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE) is not None


def _used(text: str, fields: Sequence[str] | None) -> Iterator[str]:
    """Yield the value's fields that an expression may use: the fields that it names, or all if it uses the value as a whole."""
    text = _ALIAS.sub("", text)
    is_whole = _WHOLE.search(text) is not None
    yield from (name for name in fields or () if is_whole or _names(name, text))
