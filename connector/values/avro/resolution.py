"""How values written under one schema are read under another: Avro's schema resolution, as Apache Avro's Java library does it.

The result is a tree of nodes in the order of the bytes. It is made once for a pair of schemas, and both ways of reading, in
columns and one by one, follow it. What does not match becomes a :class:`Mismatch` where it stands: values that never reach it
can be read. The Java library's rules differ from the specification in the names of records, which need not be equal.
https://avro.apache.org/docs/1.12.0/specification/#schema-resolution
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from pykafka_wire.errors import DecodeError
from pykafka_wire.values.avro.connect_names import meaning_of, unit_of
from pykafka_wire.values.avro.schema import (
    WRITTEN_NAMES,
    WRITTEN_SYMBOLS,
    ParsedSchema,
    Schema,
    aliases_of,
    kind_of,
    short_name,
    written_names,
)
from pykafka_wire.values.avro.types import member_name, member_names, widest

#: Written type -> types that it may be read as (the specification's promotions).
_PROMOTIONS: Final[dict[str, frozenset[str]]] = {
    "int": frozenset({"long", "float", "double"}),
    "long": frozenset({"float", "double"}),
    "float": frozenset({"double"}),
    "string": frozenset({"bytes"}),
    "bytes": frozenset({"string"}),
}
_PER_SECOND: Final[dict[str, int]] = {"milliseconds": 1_000, "microseconds": 1_000_000, "nanoseconds": 1_000_000_000}
_COLUMN_PER_SECOND: Final = {"us": 1_000_000, "ns": 1_000_000_000}
_NAMED: Final = frozenset({"record", "enum", "fixed"})
#: Each use of a type in a pair of schemas is a node. More than this is an attack, not a topic's schema.
_MAX_NODES: Final = 10_000
#: Each union is compared with the one that it is read as, and with all that is in both. A million takes a second.
_MAX_COMPARISONS: Final = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Mismatch:
    """No value that comes to this place can be read."""

    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class ResolvedScalar:
    """A primitive or ``fixed`` value: its definition as written, and as read, which may be of a wider type."""

    written: Schema
    read: Schema


@dataclass(frozen=True, slots=True, eq=False)
class ResolvedSymbols:
    """An enum: the reader's symbol for each number, None where the reader has none."""

    names: tuple[str | None, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """An array, or a map, whose keys are strings."""

    item: ResolvedNode
    is_map: bool


@dataclass(frozen=True, slots=True, eq=False)
class ResolvedRecord:
    """A record.

    Attributes:
        name: of the written record.
        fields: in the written order: the value, and the reader's name for it, None where it is skipped. Filled once the record
            itself is known, since a record may hold itself.
        defaults: the reader's fields that were not written.
        read: its definition as it is read.
    """

    name: str
    fields: list[tuple[ResolvedNode, str | None]]
    defaults: list[Default]
    read: Schema


@dataclass(frozen=True, slots=True, eq=False)
class Default:
    """A reader's field that was not written: its default as JSON, and its type."""

    name: str
    value: Any
    type: Schema


@dataclass(frozen=True, slots=True, eq=False)
class WrittenUnion:
    """The node of each branch of a union in the writer's schema."""

    branches: tuple[ResolvedNode, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Branch:
    """A value that becomes one branch of a union that is read.

    Attributes:
        member: which of the union's branches; None where it is null itself, or where one column holds the values of all branches.
    """

    value: ResolvedNode
    member: UnionMember | None


@dataclass(frozen=True, slots=True)
class UnionMember:
    """A branch among those of its union that are not null: its place, and its name by its type."""

    place: int
    name: str

    def field_of(self, wanted: pa.DataType) -> tuple[int, str]:
        """Return the place and the name of its field in a struct of branches, by whichever names that has; -1 where it has
        none.
        """
        for name in (self.name, member_name(self.place)):
            place = int(wanted.get_field_index(name))
            if place >= 0:
                return place, name
        return -1, self.name


ResolvedNode = Mismatch | ResolvedScalar | ResolvedSymbols | Blocks | ResolvedRecord | WrittenUnion | Branch


def resolve_schemas(written: ParsedSchema, read: ParsedSchema | None) -> ResolvedNode:
    """Return how values of ``written`` are read as ``read``, or as they were written.

    Raises:
        DecodeError: no value can be read: an alias of the reader makes two fields, or two branches, one.
    """
    return _Resolution(written, read).node(written.root, None if read is None else read.root)


class VersionMatch:
    """Which types and fields of one version of a schema are those of another version, when values of the one are read as the
    other.
    """

    def __init__(self, written: ParsedSchema, read: ParsedSchema) -> None:
        """Store the two versions."""
        self._resolution = _Resolution(written, read)

    def branch(self, written: Schema, union: Sequence[Schema]) -> int | None:
        """Return the branch of the reader's ``union`` that a written type is read as; None if no value can be read."""
        try:
            return self._resolution.matching_branch(written, union)
        except DecodeError:
            return None

    def names_of_fields(self, written: Schema, read: Schema) -> list[str]:
        """Return the names of a written record's fields as the reader's record has them."""
        return self._resolution.names_of_fields(written, read)


def reader_of_own_types(schema: ParsedSchema) -> Callable[[Schema], ResolvedNode]:
    """Return a function from a type of the schema to how its values are read; all that it returns has one limit (DecodeError)."""
    resolution = _Resolution(schema, None)
    return lambda kind: resolution.node(kind, None)


def scale_of(node: ResolvedScalar, wanted: pa.DataType) -> tuple[int, int] | None:
    """Return ``(factor, divisor)`` from a time as written to a timestamp or time column's unit; None for any other type.

    The unit is the writer's: the number that was written keeps its meaning under a reader's schema with another one.
    """
    (kind, read), (written_kind, written) = unit_of(node.read), unit_of(node.written)
    unit = written if written_kind == kind else read
    if unit not in _PER_SECOND or (pa.types.is_timestamp(wanted), pa.types.is_time64(wanted)) != (
        kind == "timestamp",
        kind == "time",
    ):
        return None
    column, per_second = _COLUMN_PER_SECOND.get(wanted.unit), _PER_SECOND[unit]
    if column is None:
        return None
    return (column // per_second, 1) if column >= per_second else (1, per_second // column)


def _keeps_meaning(written: Schema, read: Schema) -> bool:
    """Return whether a value, such as a date, is read as the same or as a plain number. A schema may also give a meaning to values
    that were written without one. But a decimal has no text, and no text is a decimal's bytes.
    """
    meanings = {meaning_of(written), meaning_of(read)} - {""}
    is_of_text = "string" in (kind_of(written), kind_of(read)) and "decimal" in meanings
    return len(meanings) < 2 and not is_of_text


def _with_meaning(definition: Schema) -> str:
    meaning = meaning_of(definition)
    return f"{_named(definition)} ({meaning})" if meaning else _named(definition)


@dataclass(slots=True)
class _ResolutionBudget:
    """What the resolution of a pair of schemas may still take."""

    nodes: int = _MAX_NODES
    comparisons: int = _MAX_COMPARISONS


class _Resolution:
    def __init__(
        self, written: ParsedSchema, read: ParsedSchema | None, budget: _ResolutionBudget | None = None
    ) -> None:
        self._written = written
        self._read = written if read is None else read
        self._records: dict[tuple[str, str | None], ResolvedNode] = {}
        self._names: dict[str, str] = {}
        self._field_names: dict[str, dict[str, str]] = {}
        self._budget = budget or _ResolutionBudget()
        #: Of the written fields that no reader wants.
        self._skipped = self if read is None else _Resolution(written, None, self._budget)
        # A writer with the reader's own schema is not renamed: an alias may be the name of another field.
        if read is not None and _without_aliases(written) != _without_aliases(read):
            self._collect_aliases(read.root, set())

    def node(self, written: Schema, read: Schema | None) -> ResolvedNode:
        self._budget.nodes -= 1
        if self._budget.nodes < 0:
            raise DecodeError(f"its schema has more than {_MAX_NODES} parts")
        written = self._written.definition(written)
        kind = kind_of(written)
        if read is not None:
            read = self._read.definition(read)
        if kind == "union":
            return self._written_union(written, read)
        if read is not None and kind_of(read) == "union":
            place = self.matching_branch(written, read)
            if place is None:
                return Mismatch(f"the reader's union has no branch for {_named(written)}")
            return self._branch(read, place, self.node(written, read[place]))
        if read is not None and not _keeps_meaning(written, read):
            return Mismatch(f"{_with_meaning(written)} cannot be read as {_with_meaning(read)}")
        if read is not None and kind_of(read) != kind:
            if kind_of(read) in _PROMOTIONS.get(kind, ()):
                return ResolvedScalar(written, read)
            return Mismatch(f"{_named(written)} cannot be read as {_named(read)}")
        if kind == "record":
            return self._record(written, read)
        if kind in ("array", "map"):
            inner = "items" if kind == "array" else "values"
            return Blocks(self.node(written[inner], None if read is None else read[inner]), kind == "map")
        if kind in _NAMED and read is not None and not self._has_short_name(written, read):
            return Mismatch(f"{_named(written)} cannot be read as {_named(read)}: their names differ")
        if kind == "enum":
            return _symbols(written, read)
        if kind == "fixed" and read is not None and written["size"] != read["size"]:
            return Mismatch(f"{_named(written)} has {written['size']} bytes, and the reader's has {read['size']}")
        return ResolvedScalar(written, written if read is None else read)

    def _written_union(self, written: Sequence[Schema], read: Schema | None) -> ResolvedNode:
        names = [self._name(branch) for branch in map(self._written.definition, written) if kind_of(branch) in _NAMED]
        if len(set(names)) != len(names):
            raise DecodeError("the reader's aliases give two branches of a union one name")
        if read is None or (kind_of(read) == "union" and self._are_equivalent(written, read, set())):
            union = written if read is None else read
            inner = [self.node(branch, None if read is None else read[n]) for n, branch in enumerate(written)]
            parsed = self._written if read is None else self._read
            return WrittenUnion(tuple(self._branch(union, n, node, parsed) for n, node in enumerate(inner)))
        return WrittenUnion(tuple(self.node(branch, read) for branch in written))

    def _branch(
        self, union: Sequence[Schema], place: int, value: ResolvedNode, parsed: ParsedSchema | None = None
    ) -> ResolvedNode:
        definitions = [(parsed or self._read).definition(branch) for branch in union]
        if isinstance(value, Mismatch):
            return value
        columns = [branch for branch in definitions if kind_of(branch) != "null"]
        if kind_of(definitions[place]) == "null" or widest(columns) is not None:
            return Branch(value, None)
        nth = sum(kind_of(branch) != "null" for branch in definitions[:place])
        return Branch(value, UnionMember(nth, member_names(columns)[nth]))

    def _record(self, written: Schema, read: Schema | None) -> ResolvedNode:
        key = (written["name"], None if read is None else read["name"])
        if key in self._records:
            return self._records[key]
        names = self.names_of_fields(written, read)
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise DecodeError(f"two fields of its record {written['name']} are {twice} under the reader's aliases")
        record = ResolvedRecord(written["name"], [], [], written if read is None else read)
        self._records[key] = record
        readers = {} if read is None else {field["name"]: field for field in read["fields"]}
        for name, field in zip(names, written["fields"], strict=True):
            if read is None:
                record.fields.append((self.node(field["type"], None), name))
            elif name in readers:
                record.fields.append((self.node(field["type"], readers[name]["type"]), name))
            else:
                record.fields.append((self._skipped.node(field["type"], None), None))
        for name, field in readers.items():
            if name in names:
                continue
            if "default" not in field:
                reason = f"{name}: it was not written, and the reader's schema has no default for it"
                self._records[key] = Mismatch(reason)
                return self._records[key]
            record.defaults.append(Default(name, field["default"], field["type"]))
        return record

    def matching_branch(self, written: Schema, union: Sequence[Schema]) -> int | None:
        """Return the branch that the Java library takes: the same type and name, a record with matching fields, the first
        promotion.
        """
        kind = kind_of(written)
        similar: int | None = None
        branches = [self._read.definition(branch) for branch in union]
        for place, branch in enumerate(branches):
            if kind_of(branch) != kind:
                continue
            if kind not in _NAMED or self._has_name(written, branch):
                return place
            is_better = similar is None or self._has_short_name(written, branch)
            if kind == "record" and is_better and self._has_matching_fields(written, branch):
                similar = place
        if similar is not None:
            return similar
        promotions = _PROMOTIONS.get(kind, ())
        return next((place for place, branch in enumerate(branches) if kind_of(branch) in promotions), None)

    def _has_matching_fields(self, written: Schema, read: Schema) -> bool:
        resolve_schemas = self._record(written, read)
        return isinstance(resolve_schemas, ResolvedRecord) and not any(
            isinstance(node, Mismatch) for node, _ in resolve_schemas.fields
        )

    def _are_equivalent(self, written: Schema, read: Schema, seen: set[tuple[str, str]]) -> bool:
        """Return whether two types are equal but for namespaces, aliases and properties: then unions match branch by branch."""
        self._budget.comparisons -= 1
        if self._budget.comparisons < 0:
            raise DecodeError(
                f"its unions and those of the reader's schema take more than {_MAX_COMPARISONS} comparisons"
            )
        written, read = self._written.definition(written), self._read.definition(read)
        kind = kind_of(written)
        if kind != kind_of(read) or (kind in _NAMED and not self._has_short_name(written, read)):
            return False
        if kind == "union":
            return len(written) == len(read) and all(
                self._are_equivalent(one, other, seen) for one, other in zip(written, read, strict=True)
            )
        if kind in ("array", "map"):
            inner = "items" if kind == "array" else "values"
            return self._are_equivalent(written[inner], read[inner], seen)
        if kind == "fixed":
            return bool(written["size"] == read["size"])
        if kind == "enum":
            return list(written["symbols"]) == list(read["symbols"])
        if kind != "record" or (written["name"], read["name"]) in seen:
            return True
        seen.add((written["name"], read["name"]))
        names = self.names_of_fields(written, read)
        return names == [field["name"] for field in read["fields"]] and all(
            self._are_equivalent(one["type"], other["type"], seen)
            for one, other in zip(written["fields"], read["fields"], strict=True)
        )

    def names_of_fields(self, written: Schema, read: Schema | None) -> list[str]:
        """Return the names of a written record's fields, under the reader's aliases."""
        if read is not None and WRITTEN_NAMES in read:
            renamed = _new_names(read) if self._has_name(written, read) else {}
        else:
            renamed = self._field_names.get(self._name(written), {})
        return [renamed.get(field["name"], field["name"]) for field in written["fields"]]

    def _name(self, written: Schema) -> str:
        """Return the full name of a written type, under the reader's aliases."""
        name = str(written["name"])
        return self._names.get(name, name)

    def _has_name(self, written: Schema, read: Schema) -> bool:
        """Return whether a written type has the full name of the reader's type, under the reader's aliases."""
        if WRITTEN_NAMES in read:
            return written["name"] in written_names(read)
        return self._name(written) == str(read["name"])

    def _has_short_name(self, written: Schema, read: Schema) -> bool:
        """Return whether the last parts of both names are equal, under the reader's aliases."""
        name = str(written["name"]) if WRITTEN_NAMES in read else self._name(written)
        return short_name(name) in map(short_name, written_names(read))

    def _collect_aliases(self, read: Schema, seen: set[str]) -> None:
        read = self._read.definition(read)
        kind = kind_of(read)
        if kind == "union":
            for read_field in read:
                self._collect_aliases(read_field, seen)
        elif kind in ("array", "map"):
            self._collect_aliases(read["items" if kind == "array" else "values"], seen)
        elif kind in _NAMED and read["name"] not in seen:
            seen.add(read["name"])
            if WRITTEN_NAMES not in read:
                self._names |= dict.fromkeys(aliases_of(read), read["name"])
                self._field_names.setdefault(read["name"], {}).update(_new_names(read))
            for field in read.get("fields", ()):
                self._collect_aliases(field["type"], seen)


def _new_names(record: Schema) -> dict[str, str]:
    """Return the names of a reader's fields by their aliases."""
    return {alias: field["name"] for field in record.get("fields", ()) for alias in field.get("aliases", ())}


def _symbols(written: Schema, read: Schema | None) -> ResolvedNode:
    if read is None or read.get(WRITTEN_SYMBOLS):
        return ResolvedSymbols(tuple(written["symbols"]))
    default = read.get("default")
    names = set(read["symbols"])
    return ResolvedSymbols(tuple(symbol if symbol in names else default for symbol in written["symbols"]))


def _without_aliases(parsed: ParsedSchema) -> Any:
    """Return a schema's JSON, each named type written out where it first stands, without what does not tell it from another."""
    seen: set[str] = set()

    def plain(schema: Schema) -> Any:
        if isinstance(schema, str) and schema in parsed.named and schema not in seen:
            schema = parsed.named[schema]
        if isinstance(schema, list):
            return [plain(part) for part in schema]
        if not isinstance(schema, Mapping):
            return schema
        if schema.get("type") in ("record", "error", "enum", "fixed"):
            if schema["name"] in seen:
                return schema["name"]
            seen.add(schema["name"])
        kept = {name: value for name, value in schema.items() if name not in ("aliases", "doc") and name[:2] != "__"}
        for inner in ("type", "items", "values"):
            if inner in kept:
                kept[inner] = plain(kept[inner])
        if "fields" in kept:
            kept["fields"] = [plain(field) for field in kept["fields"]]
        return kept

    return plain(parsed.root)


def _named(definition: Schema) -> str:
    kind = kind_of(definition)
    return f"{kind} {written_names(definition)[0]}" if kind in _NAMED else kind
