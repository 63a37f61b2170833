"""A reader's schema that keeps what the newest version of a subject no longer has, while older producers still write it.

Owns the union of two versions of a schema, and its text. The fields that are kept are nullable, with the default null. An enum's
value keeps the symbol that its writer has given it. Everything else is the newest version's, so that values of every version
resolve to it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Final

from pykafka_wire.values.avro.schema import PRIMITIVES, WRITTEN_SYMBOLS, ParsedSchema, Schema, kind_of

#: Whether the field at a path, without its items' and branches' names, is to be kept.
IsKept = Callable[[tuple[str, ...]], bool]
_NAMED: Final = frozenset({"record", "error", "enum", "fixed"})


def field_paths(schema: ParsedSchema) -> set[tuple[str, ...]]:
    """Return the paths of all fields, those of records within arrays, maps and unions included; of a recursive record once."""
    paths: set[tuple[str, ...]] = set()

    def add(place: Schema, path: tuple[str, ...], around: tuple[str, ...]) -> None:
        for record in _records(schema, place):
            if record["name"] in around:
                continue
            for field in record["fields"]:
                inner = (*path, str(field["name"]))
                paths.add(inner)
                add(field["type"], inner, (*around, record["name"]))

    add(schema.root, (), ())
    return paths


def with_removed_fields(newest: ParsedSchema, older: Iterable[ParsedSchema], is_kept: IsKept) -> str:
    """Return the text of ``newest`` with the fields that only older versions have, and that are to be kept.

    Args:
        older: the newest of them first: its type of a field counts.
    """
    kept: dict[str, list[dict[str, Any]]] = {}
    types: dict[str, Schema] = {}
    for older_schema in older:
        _collect(newest, older_schema, is_kept, kept, types)
    return json.dumps(_SchemaText(newest, kept, types).of(newest.root))


def has_enum(schema: ParsedSchema) -> bool:
    """Return whether values may have symbols, which another version may lack."""
    return any(kind_of(named) == "enum" for named in schema.named.values())


def _collect(
    newest: ParsedSchema,
    older: ParsedSchema,
    is_kept: IsKept,
    kept: dict[str, list[dict[str, Any]]],
    types: dict[str, Schema],
) -> None:
    """Add what ``older`` alone has: fields, by the newest record that they belong to, and the types that these name."""
    seen: set[tuple[str, str]] = set()

    def compare(new: Schema, old: Schema, path: tuple[str, ...]) -> None:
        records = list(_records(newest, new))
        for was in _records(older, old):
            # A record keeps its name, or is the only one there.
            same = [record for record in records if _short(record["name"]) == _short(was["name"])] or records[:1]
            if not same or (same[0]["name"], was["name"]) in seen:
                continue
            now = same[0]
            seen.add((now["name"], was["name"]))
            fields = {field["name"]: field for field in now["fields"]}
            renamed = {alias for field in now["fields"] for alias in field.get("aliases", ())}
            mine = kept.setdefault(now["name"], [])
            for field in was["fields"]:
                name = field["name"]
                if name in fields:
                    compare(fields[name]["type"], field["type"], (*path, name))
                elif name not in renamed and is_kept((*path, name)) and all(field["name"] != name for field in mine):
                    mine.append({"name": name, "type": nullable(field["type"]), "default": None})
                    _add_types(older, field["type"], types)

    compare(newest.root, older.root, ())


def _records(parsed: ParsedSchema, place: Schema) -> Iterable[Any]:
    """Return the records that values of a place are, or that their items and branches are."""
    definition = parsed.definition(place)
    kind = kind_of(definition)
    if kind == "record":
        yield definition
    elif kind == "union":
        for branch in definition:
            yield from _records(parsed, branch)
    elif kind in ("array", "map"):
        yield from _records(parsed, definition["items" if kind == "array" else "values"])


def nullable(kind: Schema) -> Schema:
    """Return a type, or null, which is the default's branch."""
    branches = kind if isinstance(kind, list) else [kind]
    return ["null", *(branch for branch in branches if branch != "null")]


def _add_types(parsed: ParsedSchema, place: Schema, types: dict[str, Schema]) -> None:
    if isinstance(place, str):
        if place not in PRIMITIVES and place not in types:
            types[place] = parsed.named[place]
            _add_types(parsed, parsed.named[place], types)
    elif isinstance(place, list):
        for branch in place:
            _add_types(parsed, branch, types)
    elif place["type"] in ("array", "map"):
        _add_types(parsed, place["items" if place["type"] == "array" else "values"], types)
    elif place["type"] in _NAMED:
        types.setdefault(place["name"], place)
        for field in place.get("fields", ()):
            _add_types(parsed, field["type"], types)


class _SchemaText:
    """Writes a schema as one document, each named type where it first stands."""

    def __init__(self, newest: ParsedSchema, kept: dict[str, list[dict[str, Any]]], types: dict[str, Schema]) -> None:
        self._named = {**types, **newest.named}
        self._kept = kept
        self._written: set[str] = set()

    def of(self, place: Schema) -> Any:
        if isinstance(place, list):
            return [self.of(branch) for branch in place]
        if isinstance(place, str):
            if place in PRIMITIVES or place in self._written:
                return place
            place = self._named[place]
        kind = place["type"]
        if kind in ("array", "map"):
            inner = "items" if kind == "array" else "values"
            return {**place, inner: self.of(place[inner])}
        if kind not in _NAMED:
            return place
        name = place["name"]
        if name in self._written:
            return name
        self._written.add(name)
        definition = dict(self._named[name])
        if "." not in name:
            definition["namespace"] = ""  # not that of the type around
        if kind == "enum":
            definition[WRITTEN_SYMBOLS] = True
        if "fields" in definition:
            fields = [*definition["fields"], *self._kept.get(name, ())]
            definition["fields"] = [{**field, "type": self.of(field["type"])} for field in fields]
        return definition


def _short(name: str) -> str:
    return name.rpartition(".")[2]
