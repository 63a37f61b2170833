"""By which message values of a writer's schema are read into columns of a reader's: each wanted field must keep its values.

A parser knows one schema. A field that was written with another wire type is unknown to the parser, so the field has its default; a
number that was written in another way becomes another number. Null and the symbols of an enum depend on the schema, too. So the two
schemas are compared, once for each pair. Where they agree, the reader's own message reads the values. Where they differ without
losing a value, a merged message does: its fields have the reader's names and types, and the writer's enums, oneofs and nulls.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

from pykafka_wire.errors import ENVIRONMENT_ERRORS, DecodeError
from pykafka_wire.values.protobuf.conversion import enum_names, is_by_json, is_plain_struct
from pykafka_wire.values.protobuf.json_mapping import FieldRules, is_map
from pykafka_wire.values.protobuf.map_entries import files_of

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, FileDescriptor

#: Well-known messages have a meaning beside their fields: ``Timestamp`` and ``Duration`` have the same ones.
_WELL_KNOWN: Final = "google."
_WELL_KNOWN_FILES: Final = "google/protobuf/"
#: Types of scalars, and those by which their bytes are the same value. https://protobuf.dev/programming-guides/proto3/#updating
#: lists more, whose values may be cut off or change their sign.
_WIDER: Final = {
    "int32": ("int64",),
    "uint32": ("uint64", "int64"),
    "sint32": ("sint64",),
    "string": ("bytes",),
    "bytes": ("string",),  # a reader checks that a text is UTF-8
}
#: The merged messages of a pair of schemas. Messages of both that contain each other could make millions.
_MAX_MESSAGES: Final = 10_000
#: The parts of a name that are messages within messages; descriptors are messages, of which parsers read 100 levels.
_MAX_LEVELS: Final = 20


@dataclass(frozen=True, slots=True)
class MergedMessage:
    """A message that reads values of a writer's schema into columns of a reader's.

    Attributes:
        descriptor: a message of proto2, in a pool of its own.
        rules: the writer's nulls, and fields that are there for others.
    """

    descriptor: Descriptor
    rules: FieldRules


def merged_message(written: Descriptor, read: Descriptor, wanted: pa.DataType) -> MergedMessage | None:
    """Return the message that reads the wanted fields of values that were written as ``written``; None if ``read`` itself does.

    Raises:
        DecodeError: a wanted field has another type in each schema, and the reader's does not hold all values of the writer's.
    """
    merge = _Merge()
    name = merge.add(written, read, wanted, "")
    merge.run()
    return merge.message(name) if merge.differs else None


@dataclass(slots=True)
class _Message:
    """A merged message.

    Attributes:
        name: the full name.
        decides: the message whose oneofs, nulls and enums count: the writer's, if there is one.
        numbers: the fields that it has.
        oneofs: the index of each oneof, by its name in the schema that decides.
    """

    name: str
    proto: Any
    decides: Descriptor
    numbers: set[int] = field(default_factory=set)
    oneofs: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Pair:
    """One message of both schemas.

    Attributes:
        written: None for a message that the writer's schema lacks.
        wanted: None where all fields are.
    """

    written: Descriptor | None
    read: Descriptor
    wanted: pa.DataType | None
    path: str
    merged: _Message


class _Merge:
    """Compares the messages of two schemas, and makes the merged ones.

    Attributes:
        differs: whether the reader's own messages read some values differently.
    """

    def __init__(self) -> None:
        self.differs = False
        self._always_set: set[tuple[str, int]] = set()
        self._unread: set[tuple[str, int]] = set()
        self._waiting: list[_Pair] = []
        self._roots: tuple[FileDescriptor | None, FileDescriptor] | None = None
        #: Messages of which all fields are wanted.
        self._whole: set[str] = set()
        self._has_any = self._has_two_of_a_name = False
        self._messages: dict[tuple[str | None, str], _Message] = {}
        self._names: set[str] = set()
        #: Messages, and what is around them, by their full names.
        self._protos: dict[str, Any] = {}
        self._enums: dict[tuple[bool, str], str] = {}
        self._known: dict[str, FileDescriptor] = {}
        # In proto2 each field may be null. An enum of proto3 may have any number in messages of proto2, too.
        self._file = FileDescriptorProto(name="merged.proto", syntax="proto2", dependency=["open_enums.proto"])
        self._open_enums = FileDescriptorProto(name="open_enums.proto", syntax="proto3")

    def add(self, written: Descriptor | None, read: Descriptor, wanted: pa.DataType | None, path: str) -> str:
        """Return the full name of the merged message, whose fields :meth:`run` adds. Raises DecodeError."""
        if written is not None and written.full_name != read.full_name:
            names = written.full_name, read.full_name
            if any(name.startswith(_WELL_KNOWN) for name in names):
                raise _differ(path, *names)
        self._roots = self._roots or (None if written is None else written.file, read.file)
        if wanted is not None and is_by_json(read, wanted) and not is_plain_struct(read, wanted):
            wanted = None
        if read.file.name.startswith(_WELL_KNOWN_FILES):
            self._known[read.file.name] = read.file
            if read.full_name == "google.protobuf.Any" and wanted is None and not self._has_any:
                self._has_any = True
                self._add_contents(path)
            return str(read.full_name)
        key = None if written is None else written.full_name, read.full_name
        message = self._messages.get(key)
        if message is None:
            if len(self._messages) == _MAX_MESSAGES:
                raise DecodeError(f"its schema and the reader's have more than {_MAX_MESSAGES} messages together")
            name = self._free_name(read.full_name)
            message = self._messages[key] = _Message(name, self._proto(name), written or read)
        if wanted is not None or message.name not in self._whole:
            if wanted is None:
                self._whole.add(message.name)
            self._waiting.append(_Pair(written, read, wanted, path, message))
        return message.name

    def run(self) -> None:
        """Add the fields of all messages. Raises DecodeError."""
        # Without recursion: messages may contain themselves, and lead to any number of others.
        while self._waiting:
            pair = self._waiting.pop()
            written = {} if pair.written is None else {field.number: field for field in _fields(pair.written)}
            for read, wanted in _wanted_fields(pair.read, pair.wanted):
                path = f"{pair.path}.{read.name}" if pair.path else read.name
                self._add_field(pair.merged, written.get(read.number), read, wanted, path)
            if pair.written is not None:
                self._compare_messages(pair.written, pair.read)

    def message(self, name: str) -> MergedMessage:
        """Return a merged message by its full name. Raises DecodeError."""
        from google.protobuf.descriptor_pool import DescriptorPool

        if self._has_any and self._has_two_of_a_name:
            raise DecodeError("it may have an Any of a message that was written by two schemas")
        for message in self._messages.values():
            self._add_unread(message)
        pool, added = DescriptorPool(), set[str]()
        try:
            for known in self._known.values():
                for file in files_of(known):
                    if file.name not in added:
                        added.add(file.name)
                        pool.Add(file)
            self._file.dependency.extend(sorted(self._known))
            pool.Add(self._open_enums)
            pool.Add(self._file)
            rules = FieldRules(frozenset(self._always_set), frozenset(self._unread))
            return MergedMessage(pool.FindMessageTypeByName(name), rules)
        except ENVIRONMENT_ERRORS:
            raise
        except Exception as error:  # what the library raises on a descriptor that it does not take
            raise DecodeError("its schema and the reader's cannot be merged") from error

    # Fields

    def _add_field(
        self, message: _Message, written: FieldDescriptor | None, read: FieldDescriptor, wanted: Any, path: str
    ) -> None:
        """Compare two fields of one number, and add the field that reads both."""
        is_a = pa.types
        decides = written or read
        if is_map(read):
            if written is not None and not is_map(written):
                raise _differ(path, _name(written), _name(read))
            is_wanted = wanted is not None and is_a.is_map(wanted)
            inner = (wanted.key_type, wanted.item_type) if is_wanted else (None, None)
            entry = DescriptorProto(
                name=f"{''.join(part[:1].upper() + part[1:] for part in read.name.split('_'))}Entry"
            )
            for place, wanted_part in zip(("key", "value"), inner, strict=True):
                parts = [None if one is None else one.message_type.fields_by_name[place] for one in (written, read)]
                assert parts[1] is not None
                part = self._typed(parts[0], parts[1], wanted_part, f"{path}.{place}")
                part.name, part.label = place, part.LABEL_OPTIONAL
                entry.field.append(part)
            entry.options.map_entry = True
            proto = FieldDescriptorProto(number=read.number, type=read.type, type_name=f".{message.name}.{entry.name}")
            if read.number not in message.numbers:
                message.proto.nested_type.append(entry)
        else:
            if read.is_repeated and wanted is not None:
                wanted = wanted.value_type if is_a.is_list(wanted) else None
            proto = self._typed(written, read, wanted, path)
        proto.name = read.name
        proto.label = (
            proto.LABEL_REPEATED if read.is_repeated
            else proto.LABEL_REQUIRED if decides.is_required
            else proto.LABEL_OPTIONAL
        )  # fmt: skip
        self.differs |= written is not None and written.has_presence != read.has_presence
        if read.number in message.numbers:
            return
        message.numbers.add(read.number)
        if not decides.has_presence and not read.is_repeated:
            self._always_set.add((message.name, read.number))
        self._add_to_oneof(message, decides, proto)
        if not read.is_extension:
            message.proto.field.append(proto)
            return
        if message.name != read.containing_type.full_name:
            raise DecodeError(f"its field {path} is an extension of messages that were written by several schemas")
        proto.extendee = f".{message.name}"
        message.proto.extension_range.add(start=read.number, end=read.number + 1)
        around = read.full_name.rpartition(".")[0]
        (self._proto(around) if around else self._file).extension.append(proto)

    def _typed(self, written: FieldDescriptor | None, read: FieldDescriptor, wanted: Any, path: str) -> Any:
        """Return a field of a type that has the values of both, a FieldDescriptorProto without name and label."""
        if written is not None:
            is_message = read.message_type is not None
            if (
                is_map(written)
                or written.is_repeated != read.is_repeated
                or is_message != (written.message_type is not None)
            ):
                raise _differ(path, _name(written), _name(read))
            if is_message and (written.type == written.TYPE_GROUP) != (read.type == read.TYPE_GROUP):
                raise _differ(path, _name(written), _name(read))
        proto = FieldDescriptorProto(number=read.number, type=read.type)
        if read.message_type is not None:
            message = None if written is None else written.message_type
            proto.type_name = f".{self.add(message, read.message_type, wanted, path)}"
        elif read.enum_type is not None and (written is None or written.enum_type is not None):
            enum = None if written is None else written.enum_type
            proto.type_name = f".{self._enum(enum, read.enum_type, path)}"
        elif (
            written is not None and _kind(written) != _kind(read) and _kind(read) not in _WIDER.get(_kind(written), ())
        ):
            raise _differ(path, _name(written), _name(read))
        return proto

    def _enum(self, written: EnumDescriptor | None, read: EnumDescriptor, path: str) -> str:
        """Return the full name of an enum with the writer's symbols."""
        if written is not None and written.full_name != read.full_name:
            names = written.full_name, read.full_name
            if any(name.startswith(_WELL_KNOWN) for name in names):
                raise _differ(path, *names)
        if read.file.name.startswith(_WELL_KNOWN_FILES):
            self._known[read.file.name] = read.file
            return str(read.full_name)
        if written is not None:
            both = [(enum.is_closed, enum_names(enum)) for enum in (written, read)]
            self.differs |= both[0] != both[1]
        decides = written or read
        key = written is None, decides.full_name
        if key not in self._enums:
            # Symbols are names beside their enum: so each enum gets a place of its own.
            file = self._file if decides.is_closed else self._open_enums
            around = file.message_type.add(name=f"_enum_{len(self._enums)}")
            enum = around.enum_type.add(name=decides.name)
            for symbol in decides.values:
                enum.value.add(name=symbol.name, number=symbol.number)
            if len(enum_names(decides)) < len(decides.values):
                enum.options.allow_alias = True
            self._enums[key] = f"{around.name}.{enum.name}"
        return self._enums[key]

    # Fields that decide about others: a parser keeps the last member of a oneof that it reads, and clears the others; a message
    # without a required field is not valid.

    def _compare_messages(self, written: Descriptor, read: Descriptor) -> None:
        parts = [
            (
                {frozenset(member.number for member in oneof.fields) for oneof in each.oneofs if len(oneof.fields) > 1},
                {field.number for field in each.fields if field.is_required},
            )
            for each in (written, read)
        ]
        self.differs |= parts[0] != parts[1]

    def _add_to_oneof(self, message: _Message, decides: FieldDescriptor, proto: Any) -> None:
        oneof = decides.containing_oneof
        if oneof is None or len(oneof.fields) < 2:
            return
        if oneof.name not in message.oneofs:
            message.oneofs[oneof.name] = len(message.proto.oneof_decl)
            message.proto.oneof_decl.add(name=f"_oneof_{len(message.oneofs)}")
        proto.oneof_index = message.oneofs[oneof.name]

    def _add_unread(self, message: _Message) -> None:
        """Add the fields that decide about others and are not read. Their contents are not parsed."""
        for unread in message.decides.fields:
            is_member = unread.containing_oneof is not None and unread.containing_oneof.name in message.oneofs
            if unread.number in message.numbers or not (is_member or unread.is_required):
                continue
            proto = FieldDescriptorProto(name=f"_unread_{unread.number}", number=unread.number, type=unread.type)
            proto.label = proto.LABEL_REQUIRED if unread.is_required else proto.LABEL_OPTIONAL
            if unread.enum_type is not None:
                proto.type = proto.TYPE_INT32
            elif unread.type == unread.TYPE_GROUP:
                around = message.proto.nested_type.add(name=f"_Unread_{unread.number}")
                proto.type_name = f".{message.name}.{around.name}"
            elif unread.message_type is not None:
                proto.type = proto.TYPE_BYTES
            self._add_to_oneof(message, unread, proto)
            message.proto.field.append(proto)
            self._unread.add((message.name, unread.number))

    # Messages

    def _add_contents(self, path: str) -> None:
        """Add all messages of the reader's files, any of which an ``Any`` that is read as JSON may hold."""
        from pykafka_wire.values.protobuf.linker import messages_of

        assert self._roots is not None
        written, read = self._roots
        for file in files_of(read):
            for name, message in messages_of(file):
                if message.options.map_entry:
                    continue
                other = None
                with contextlib.suppress(KeyError):
                    other = None if written is None else written.pool.FindMessageTypeByName(name)
                self.add(other, read.pool.FindMessageTypeByName(name), None, path)

    def _free_name(self, name: str) -> str:
        """Return the full name of a merged message: the reader's name, but in no package of the library's."""
        parts = name.split(".")
        if parts[0] == "google":
            parts[0] = "_google"
        wanted = ".".join(parts) if len(parts) <= _MAX_LEVELS else "_".join(parts)
        free, number = wanted, 2
        while free in self._names:
            self._has_two_of_a_name = True
            free, number = f"{wanted}_{number}", number + 1
        self._names.add(free)
        return free

    def _proto(self, name: str) -> Any:
        """Return the DescriptorProto of a full name, whose packages are messages, too."""
        outer, _, last = name.rpartition(".")
        if name not in self._protos:
            around = self._proto(outer).nested_type if outer else self._file.message_type
            self._protos[name] = around.add(name=last)
        return self._protos[name]


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
