"""Whether messages of a writer's schema can be read by a reader's: each wanted field of both schemas must keep its values.

A parser knows one schema. A field that was written with another wire type is unknown to the parser, so the field has its default; a
number that was written in another way becomes another number. So the two schemas are compared, once for each pair.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from pykafka_wire.errors import DecodeError
from pykafka_wire.values.protobuf.conversion import is_by_json, is_plain_struct
from pykafka_wire.values.protobuf.json_mapping import is_map
from pykafka_wire.values.protobuf.map_entries import files_of

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.message import Message

#: Fields of a reader's schema, as the full name of their message and their number.
Fields = frozenset[tuple[str, int]]

#: Well-known messages have a meaning beside their fields: ``Timestamp`` and ``Duration`` have the same ones.
_WELL_KNOWN: Final = "google."
#: Types of scalars, and those by which their bytes are the same value. https://protobuf.dev/programming-guides/proto3/#updating
#: lists more, whose values may be cut off or change their sign.
_WIDER: Final = {
    "int32": ("int64",),
    "uint32": ("uint64", "int64"),
    "sint32": ("sint64",),
    "string": ("bytes",),
    "bytes": ("string",),  # a reader checks that a text is UTF-8
}


@dataclass(frozen=True, slots=True)
class Differences:
    """How wanted fields differ from those that were written, without losing a value.

    Attributes:
        closed_enums: fields whose enum is closed in the reader's schema, and which may have numbers that this enum lacks: see
            :func:`check_symbols`.
        always_set: fields that are null in the reader's schema where they are not set, and their default in the writer's.
    """

    closed_enums: Fields = frozenset()
    always_set: Fields = frozenset()


NO_DIFFERENCES: Final = Differences()


def differences(written: Descriptor, read: Descriptor, wanted: pa.DataType) -> Differences:
    """Compare what a writer's schema and a reader's have in common of a wanted type.

    Raises:
        DecodeError: a wanted field has another type in each schema, and the reader's does not hold all values of the writer's.
    """
    comparison = _Comparison()
    comparison.add(written, read, wanted, "")
    comparison.run()
    return Differences(frozenset(comparison.closed_enums), frozenset(comparison.always_set))


def check_symbols(message: Message, fields: Fields) -> None:
    """Raise DecodeError where one of the fields has a number that its closed enum lacks, which the parser has left out."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    waiting: list[Any] = [message]
    while waiting:
        inner = waiting.pop()
        name = inner.DESCRIPTOR.full_name
        for unknown in UnknownFieldSet(inner):
            if (name, unknown.field_number) in fields:
                known = inner.DESCRIPTOR.fields_by_number.get(unknown.field_number)
                field_name = f"with the number {unknown.field_number}" if known is None else known.name
                raise DecodeError(f"its field {field_name} has a number that the enum of the reader's schema lacks")
        for field, value in inner.ListFields():
            if is_map(field):
                waiting += value.values() if field.message_type.fields_by_name["value"].message_type is not None else ()
            elif field.message_type is not None:
                waiting += value if field.is_repeated else (value,)


@dataclass(frozen=True, slots=True)
class _Pair:
    """One message of both schemas. ``wanted`` is None where all fields are."""

    written: Descriptor
    read: Descriptor
    wanted: pa.DataType | None
    path: str


class _Comparison:
    def __init__(self) -> None:
        self.closed_enums: set[tuple[str, int]] = set()
        self.always_set: set[tuple[str, int]] = set()
        self._waiting: list[_Pair] = []
        self._whole: set[tuple[str, str]] = set()

    def add(self, written: Descriptor, read: Descriptor, wanted: pa.DataType | None, path: str) -> None:
        if wanted is None or (is_by_json(read, wanted) and not is_plain_struct(read, wanted)):
            names = written.full_name, read.full_name
            if names in self._whole:
                return
            self._whole.add(names)
            wanted = None
        self._waiting.append(_Pair(written, read, wanted, path))

    def run(self) -> None:
        # Without recursion: messages may contain themselves, and lead to any number of others.
        while self._waiting:
            pair = self._waiting.pop()
            names = pair.written.full_name, pair.read.full_name
            if names[0] != names[1] and any(name.startswith(_WELL_KNOWN) for name in names):
                raise _differ(pair.path, *names)
            if names[1] == "google.protobuf.Any" and pair.wanted is None:
                self._add_contents(pair)
            self._compare_fields(pair)

    def _add_contents(self, pair: _Pair) -> None:
        """Add all messages of the reader's files, any of which an ``Any`` that is read as JSON may hold."""
        from pykafka_wire.values.protobuf.linker import messages_of

        for name in (name for file in files_of(pair.read.file) for name, _ in messages_of(file)):
            try:
                written = pair.written.file.pool.FindMessageTypeByName(name)
            except KeyError:
                continue
            self.add(written, pair.read.file.pool.FindMessageTypeByName(name), None, pair.path)

    def _compare_fields(self, pair: _Pair) -> None:
        written = {field.number: field for field in _fields(pair.written)}
        oneofs = set()
        for field, wanted in _wanted_fields(pair.read, pair.wanted):
            other = written.get(field.number)
            if other is not None:
                self._compare(other, field, wanted, f"{pair.path}.{field.name}" if pair.path else field.name)
                if field.containing_oneof is not None:
                    oneofs.add(field.containing_oneof)
        for oneof in oneofs:
            members = [written[field.number] for field in oneof.fields if field.number in written]
            if len({_oneof_of(member) for member in members}) > 1:
                raise DecodeError(
                    f"the fields of its oneof {oneof.full_name} are in no oneof of the schema that it was written with, and only "
                    "the last of them would be read"
                )

    def _compare(self, written: FieldDescriptor, read: FieldDescriptor, wanted: pa.DataType | None, path: str) -> None:
        """Compare two fields of the same number."""
        is_a = pa.types
        if is_map(written) and is_map(read):
            types = (None, None)
            if wanted is not None and is_a.is_map(wanted):
                types = (wanted.key_type, wanted.item_type)
            for name, inner in zip(("key", "value"), types, strict=True):
                one, other = (field.message_type.fields_by_name[name] for field in (written, read))
                self._compare(one, other, inner, f"{path}.{name}")
                if read.message_type.full_name in {
                    of for of, _ in self.closed_enums
                }:  # an entry is left out as a whole
                    self.closed_enums.add((read.containing_type.full_name, read.number))
            return
        if read.is_repeated and wanted is not None:
            wanted = wanted.value_type if is_a.is_list(wanted) else None
        are_messages = {_is_message(written), _is_message(read)}
        if is_map(written) or is_map(read) or written.is_repeated != read.is_repeated or len(are_messages) > 1:
            raise _differ(path, _name(written), _name(read))
        if are_messages == {True}:
            if (written.type == written.TYPE_GROUP) != (read.type == read.TYPE_GROUP):
                raise _differ(path, _name(written), _name(read))
            self.add(written.message_type, read.message_type, wanted, path)
        elif written.enum_type is not None and read.enum_type is not None:
            names = written.enum_type.full_name, read.enum_type.full_name
            if names[0] != names[1] and any(name.startswith(_WELL_KNOWN) for name in names):
                raise _differ(path, *names)
            one, other = (set(enum.values_by_number) for enum in (written.enum_type, read.enum_type))
            if read.enum_type.is_closed and (not written.enum_type.is_closed or one - other):
                self.closed_enums.add((read.containing_type.full_name, read.number))
        elif _kind(written) != _kind(read) and _kind(read) not in _WIDER.get(_kind(written), ()):
            raise _differ(path, _name(written), _name(read))
        is_optional = read.has_presence and not read.has_default_value and read.message_type is None
        if is_optional and not written.has_presence:
            self.always_set.add((read.containing_type.full_name, read.number))


def _wanted_fields(
    descriptor: Descriptor, wanted: pa.DataType | None
) -> Iterator[tuple[FieldDescriptor, pa.DataType | None]]:
    if wanted is None:
        yield from ((field, None) for field in _fields(descriptor))
        return
    for column in wanted:
        field = descriptor.fields_by_name.get(column.name)
        if field is not None:
            yield field, column.type


def _fields(descriptor: Descriptor) -> Iterable[FieldDescriptor]:
    return [*descriptor.fields, *descriptor.file.pool.FindAllExtensions(descriptor)]


def _oneof_of(field: FieldDescriptor) -> Any:
    return field.number if field.containing_oneof is None else field.containing_oneof.name


def _is_message(field: FieldDescriptor) -> bool:
    return field.message_type is not None


def _kind(field: FieldDescriptor) -> str:
    """Return the name of a scalar type; ``enum`` for all enums."""
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

    return str(FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower())


def _name(field: FieldDescriptor) -> str:
    if is_map(field):
        return "a map"
    named = field.message_type or field.enum_type
    name = _kind(field) if named is None else named.full_name
    return f"repeated {name}" if field.is_repeated else name


def _differ(path: str, written: str, read: str) -> DecodeError:
    place = f"its field {path}" if path else "it"
    return DecodeError(f"{place} was written as {written}, and is read as {read}, which does not hold all its values")
