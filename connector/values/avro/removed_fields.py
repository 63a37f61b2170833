"""A reader's schema that keeps what the newest version of a subject no longer has, while older producers still write it.

Owns the union of the versions of a schema, and its text. At each place of a value, the newest version that has the place gives its
type; older versions add the wanted fields of the place's record, nullable, with the default null. Which records of two versions
are compared, and under which names their fields are, decides the resolution of values. An enum's value keeps the symbol that its
writer has given it. Everything else is the newest version's, so that values of every version resolve to it.

A named type may have other fields at another place, or in another version. Then the schema has several types of that name: all but
one have a name of their own, and :data:`~pykafka_wire.values.avro.schema.WRITTEN_NAMES`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pykafka_wire.errors import SchemaError
from pykafka_wire.values.avro.resolution import VersionMatch
from pykafka_wire.values.avro.schema import (
    WRITTEN_NAMES,
    WRITTEN_SYMBOLS,
    ParsedSchema,
    Schema,
    aliases_of,
    by_name,
    kind_of,
    short_name,
)
from pykafka_wire.values.avro.types import MEMBER, column_branches, member_name, member_names, widest
from pykafka_wire.values.connect_types import CONNECT_TYPES

#: The names of a field and of the fields around, each with the record's name if the place has several records.
_Path = tuple[tuple[str, str], ...]
_INNER: Final = {"array": "items", "map": "values"}
#: The namespace, with a number, of a type whose own name another type has. No registered schema uses it.
_NAMESPACE: Final = "__of_another_version"
#: A schema of more parts is not read at all (:mod:`~pykafka_wire.values.avro.types`).
_MAX_PARTS: Final = 10_000
_TOO_MANY: Final = (
    f"the versions of the schema have more than {_MAX_PARTS} fields or named types: set removed_fields = landed, or drop columns "
    "that only older versions have."
)


@dataclass(frozen=True, slots=True)
class WantedFields:
    """Which fields of a place are read, though the newest version has removed them.

    Attributes:
        fields: by name in lower case, as tables compare names; the columns of a union's branches, too. Items of arrays and values
            of maps are no fields.
        are_all: whether each field is wanted, and each field within.
    """

    fields: Mapping[str, WantedFields] = field(default_factory=dict, hash=False)
    are_all: bool = False

    def of(self, *names: str) -> WantedFields | None:
        """Return what is wanted of the field with one of these names; None if the field is not wanted."""
        if self.are_all:
            return self
        return next((found for name in names if (found := self.fields.get(name.lower())) is not None), None)

    def paths(self) -> Iterator[tuple[str, ...]]:
        """Yield the paths of the fields, those of fields within fields included."""
        for name, inner in self.fields.items():
            yield (name,)
            yield from ((name, *path) for path in inner.paths())

    def are_listed(self) -> bool:
        """Return whether :meth:`paths` yields each wanted field."""
        return not self.are_all and all(inner.are_listed() for inner in self.fields.values())

    def without_branches(self) -> WantedFields:
        """Return the fields, with those of a union's branches as fields of the union."""
        fields: dict[str, WantedFields] = {}
        for name, inner in self.fields.items():
            within = inner.without_branches()
            # A field may have the name of such a column, too.
            for found, wanted in {name: within, **(within.fields if MEMBER.fullmatch(name) else {})}.items():
                fields[found] = fields[found].with_fields(wanted) if found in fields else wanted
        return WantedFields(fields, self.are_all)

    def with_fields(self, other: WantedFields) -> WantedFields:
        """Return the fields of both."""
        fields = dict(self.fields)
        for name, wanted in other.fields.items():
            fields[name] = fields[name].with_fields(wanted) if name in fields else wanted
        return WantedFields(fields, self.are_all or other.are_all)


NO_FIELDS: Final = WantedFields()
ALL_FIELDS: Final = WantedFields(are_all=True)


def has_fields(versions: Iterable[ParsedSchema], wanted: WantedFields) -> bool:
    """Return whether versions have all wanted fields together. False if all fields are wanted, or columns of a union's branches."""
    if not wanted.are_listed():
        return False
    paths = set[_Path]().union(*(_field_paths(version, wanted) for version in versions))
    return {*wanted.paths()} <= {tuple(name for _, name in path) for path in paths}


def versions_with(wanted: WantedFields, versions: Iterable[ParsedSchema]) -> list[ParsedSchema]:
    """Return the newest version, and each version with a wanted field that no newer version has.

    Args:
        versions: the newest first. No more are taken once all wanted fields are found.
    """
    fields = wanted.without_branches()
    known: set[_Path] = set()
    needed: list[ParsedSchema] = []
    for version in versions:
        paths = _field_paths(version, fields)
        if not needed or paths - known:
            needed.append(version)
            known |= paths
            if has_fields(needed, wanted):
                break
    return needed


def _field_paths(schema: ParsedSchema, wanted: WantedFields) -> set[_Path]:
    """Return the paths of wanted fields, those of records within arrays, maps and unions included; of a recursive record once."""
    paths: set[_Path] = set()

    def add(place: Schema, path: _Path, around: tuple[str, ...], of_place: WantedFields) -> None:
        records = [*_records(schema, place)]
        for record in records:
            if record["name"] in around:
                continue
            branch = short_name(record["name"]) if len(records) > 1 else ""
            for each in record["fields"]:
                name = str(each["name"])
                if (of_field := of_place.of(name)) is not None:
                    inner = (*path, (branch, name.lower()))
                    paths.add(inner)
                    if len(paths) > _MAX_PARTS:
                        raise SchemaError(_TOO_MANY)
                    add(each["type"], inner, (*around, record["name"]), of_field)

    add(schema.root, (), (), wanted)
    return paths


def _records(parsed: ParsedSchema, place: Schema) -> Iterator[Any]:
    """Yield the records that values of a place are, or that their items and branches are."""
    definition = parsed.definition(place)
    kind = kind_of(definition)
    if kind == "record":
        yield definition
    elif kind == "union":
        for branch in definition:
            yield from _records(parsed, branch)
    elif kind in _INNER:
        yield from _records(parsed, definition[_INNER[kind]])


def with_removed_fields(newest: ParsedSchema, older: Iterable[ParsedSchema], wanted: WantedFields) -> str:
    """Return the text of ``newest`` with the wanted fields that only older versions have.

    Args:
        older: the newest of them first: its type of a field counts.

    Raises:
        SchemaError: the versions have too many types.
    """
    union = _Union([newest, *older])
    root = union.root(wanted)
    return json.dumps(_Text(newest, union.types).of(root))


def has_enum(schema: ParsedSchema) -> bool:
    """Return whether values may have symbols, which another version may lack."""
    return any(kind_of(named) == "enum" for named in schema.named.values())


def nullable(kind: Schema) -> Schema:
    """Return a type, or null, which is the default's branch."""
    branches = kind if isinstance(kind, list) else [kind]
    return ["null", *(branch for branch in branches if branch != "null")]


@dataclass(frozen=True, slots=True)
class _Typed:
    """A type that a version has at a place. The newest version is 0."""

    version: int
    type: Schema


@dataclass(frozen=True, slots=True)
class _Reference:
    """A named type in the JSON of another one."""

    number: int


class _Union:
    """Makes the union of versions: the named types of all places."""

    def __init__(self, versions: Sequence[ParsedSchema]) -> None:
        self._versions = versions
        self._matches: dict[tuple[int, int], VersionMatch] = {}
        #: The number of each named type, by its definitions in the versions and what is wanted of it.
        self._numbers: dict[Any, int] = {}
        #: By number, the version that defines the type, and its JSON, whose types are references.
        self.types: list[tuple[int, dict[str, Any]]] = []

    def root(self, wanted: WantedFields) -> Any:
        """Return the JSON of the whole, whose types are references."""
        return self._type([_Typed(n, schema.root) for n, schema in enumerate(self._versions)], wanted)

    def _type(self, place: Sequence[_Typed], wanted: WantedFields) -> Any:
        """Return the JSON of a place's type.

        Args:
            place: its type in each version that has the place, the newest first.
        """
        newest, definition = place[0].version, self._versions[place[0].version].definition(place[0].type)
        kind = kind_of(definition)
        if kind == "union":
            return self._union(definition, place, wanted)
        if kind == "record":
            return self._record([_Typed(newest, definition), *self._of_kind(place[1:], kind)], wanted)
        if kind in _INNER:
            inner = _INNER[kind]
            items = [_Typed(each.version, each.type[inner]) for each in self._of_kind(place[1:], kind)]
            return {**definition, inner: self._type([_Typed(newest, definition[inner]), *items], wanted)}
        if kind not in ("enum", "fixed"):
            return place[0].type  # with all its properties
        key = (newest, definition["name"])
        if key not in self._numbers:
            self._add(key, newest, {**definition, WRITTEN_SYMBOLS: True} if kind == "enum" else dict(definition))
        return _Reference(self._numbers[key])

    def _union(self, branches: Sequence[Schema], place: Sequence[_Typed], wanted: WantedFields) -> list[Any]:
        newest = place[0].version
        definitions = [self._versions[newest].definition(branch) for branch in branches]
        typed = [[_Typed(newest, branch)] for branch in branches]
        for each in self._of_kind(place[1:], "record", "array", "map"):
            branch = self._match(each.version, newest).branch(each.type, by_name(branches))
            if branch is not None:
                typed[branch].append(each)
        columns = column_branches(definitions)
        if widest(columns) is not None:
            return [self._type(each, wanted) for each in typed]
        columns_of_branches = zip(map(member_name, range(len(columns))), member_names(columns), strict=True)
        of_branches = (wanted.of(*each) or NO_FIELDS for each in columns_of_branches)
        return [
            self._type(each, NO_FIELDS if kind_of(definition) == "null" else next(of_branches))
            for each, definition in zip(typed, definitions, strict=True)
        ]

    def _record(self, place: Sequence[_Typed], wanted: WantedFields) -> _Reference:
        """Return a record.

        Args:
            place: its definition in each version.
        """
        newest, record = place[0].version, place[0].type
        key = (tuple((each.version, each.type["name"]) for each in place), id(wanted))
        if key in self._numbers:
            return _Reference(self._numbers[key])
        added = self._add(key, newest, dict(record))
        if newest > 0 and _is_connect_type(record):  # read as one value: its fields stay as they are
            return _Reference(self._numbers[key])
        #: By name, the field's type in each version that has the field.
        types: dict[str, list[_Typed]] = {}
        for each in place:
            names = [field["name"] for field in each.type["fields"]]
            if newest == 0:
                names = self._match(each.version, newest).names_of_fields(each.type, record)
            for name, older in zip(names, each.type["fields"], strict=True):
                types.setdefault(name, []).append(_Typed(each.version, older["type"]))
        own = {field["name"]: field for field in record["fields"]}
        is_wanted = {name: wanted.of(name) is not None for name in types}
        if newest > 0 and not any(is_wanted.values()):  # the column is no struct, or one without these fields
            is_wanted = {name: name in own for name in types}
        added["fields"] = [
            {**own[name], "type": self._type(typed, wanted.of(name) or NO_FIELDS)}
            if newest == 0 and name in own
            else {"name": name, "type": nullable(self._type(typed, wanted.of(name) or NO_FIELDS)), "default": None}
            for name, typed in types.items()
            if is_wanted[name] or (newest == 0 and name in own)
        ]
        return _Reference(self._numbers[key])

    def _of_kind(self, place: Sequence[_Typed], *kinds: str) -> Iterator[_Typed]:
        """Yield the definitions of some kinds among the types of a place, and among the branches of its unions."""
        for each in place:
            schema = self._versions[each.version]
            definition = schema.definition(each.type)
            branches = map(schema.definition, definition) if kind_of(definition) == "union" else (definition,)
            yield from (_Typed(each.version, branch) for branch in branches if kind_of(branch) in kinds)

    def _match(self, written: int, read: int) -> VersionMatch:
        key = (written, read)
        if key not in self._matches:
            # Fields of an older version get defaults.
            by = self._versions[read] if read == 0 else _with_defaults(self._versions[read])
            self._matches[key] = VersionMatch(self._versions[written], by)
        return self._matches[key]

    def _add(self, key: Any, version: int, definition: dict[str, Any]) -> dict[str, Any]:
        if len(self.types) >= _MAX_PARTS:
            raise SchemaError(_TOO_MANY)
        self._numbers[key] = len(self.types)
        self.types.append((version, definition))
        return definition


class _Text:
    """Writes a union as one document, each named type where it first stands. Types that are the same have one name."""

    def __init__(self, newest: ParsedSchema, types: Sequence[tuple[int, dict[str, Any]]]) -> None:
        self._newest = newest
        self._types = types
        self._classes = _classes(types)
        #: The names that are given, by class.
        self._names: dict[int, str] = {}

    def of(self, part: Any) -> Any:
        if isinstance(part, list):
            return [self.of(branch) for branch in part]
        if isinstance(part, _Reference):
            return self._named(part.number)
        if isinstance(part, dict) and (inner := _INNER.get(part["type"])) is not None:
            return {**part, inner: self.of(part[inner])}
        return part

    def _named(self, number: int) -> Any:
        same = self._classes[number]
        if same in self._names:
            return self._names[same]
        version, definition = self._types[number]
        own = definition["name"]
        is_taken = own in self._names.values() or (version > 0 and own in self._newest.named)
        name = f"{_NAMESPACE}{len(self._names)}.{short_name(own)}" if is_taken else own
        self._names[same] = name
        written = {**definition, "name": name}
        if version > 0 or is_taken:
            written[WRITTEN_NAMES] = [own, *aliases_of(definition)]
        if version > 0:
            written.pop("aliases", None)
        if "." not in name:
            written["namespace"] = ""  # not that of the type around
        if "fields" in written:
            written["fields"] = [{**each, "type": self.of(each["type"])} for each in definition["fields"]]
        return written


def _classes(types: Sequence[tuple[int, dict[str, Any]]]) -> list[int]:
    """Return the class of each type: types of one class are the same, and so are the types within them."""
    classes, n_classes = [0] * len(types), 0
    while True:
        texts = [json.dumps([version > 0, _with_classes(definition, classes)]) for version, definition in types]
        numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
        classes = [numbers[text] for text in texts]
        if len(numbers) == n_classes:
            return classes
        n_classes = len(numbers)


def _with_classes(part: Any, classes: Sequence[int]) -> Any:
    if isinstance(part, _Reference):
        return {"class": classes[part.number]}
    if isinstance(part, list):
        return [_with_classes(each, classes) for each in part]
    if isinstance(part, dict):
        return {name: _with_classes(each, classes) for name, each in part.items()}
    return part


def _with_defaults(schema: ParsedSchema) -> ParsedSchema:
    """Return a schema whose fields all have a default."""
    named = dict(schema.named)
    for name, each in schema.named.items():
        if "fields" in each:
            fields = [{"default": None, **field, "type": by_name(field["type"])} for field in each["fields"]]
            named[name] = {**each, "fields": fields}
    return ParsedSchema(root=by_name(schema.root), named=named)


def _is_connect_type(record: Any) -> bool:
    """Return whether a record may be one of Connect's types, whose column is no struct."""
    connect_type = CONNECT_TYPES.get(str(record.get("connect.name")))
    return connect_type is not None and "record" in connect_type.carriers
