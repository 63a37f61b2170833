"""The files of a schema in one descriptor pool: type names resolved as protoc does, imports found, Protobuf's own files added.

Nothing here is a file of the machine's: names are those that the schemas use for each other. Only the names listed here
are looked for among installed modules.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

from pykafka_wire.errors import OptionError
from pykafka_wire.values.protobuf.parser import InvalidProtoError, ParsedFile, parse

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FileDescriptor

#: Files that schemas import without the registry having them, by what comes with the package protobuf.
_PROTOBUF_FILES: Final = (
    *("any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct", "timestamp", "type"),
    "wrappers",
)
#: … and what comes with googleapis-common-protos, where that is installed.
_GOOGLE_TYPE_FILES: Final = (
    *("calendar_period", "color", "date", "datetime", "dayofweek", "decimal", "expr", "fraction", "interval", "latlng"),
    *("localized_text", "money", "month", "phone_number", "postal_address", "quaternion", "timeofday"),
)
_MODULES: Final = {
    **{f"google/protobuf/{name}.proto": f"google.protobuf.{name}_pb2" for name in _PROTOBUF_FILES},
    **{f"google/type/{name}.proto": f"google.type.{name}_pb2" for name in _GOOGLE_TYPE_FILES},
}
#: Confluent's registry knows these two. The first only holds custom options, which are left out of descriptors.
_CONFLUENT: Final = {
    "confluent/meta.proto": """syntax = "proto3"; package confluent;
        message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }""",
    "confluent/type/decimal.proto": """syntax = "proto3"; package confluent.type;
        message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }""",
}
_MAX_FILES: Final = 1_000
#: Of all files together; descriptors take up to 150 times as much memory. Confluent's registry keeps 1 MB at most by default.
_MAX_TEXT: Final = 4 << 20
#: Of a type's full name, and of a package's: each prefix of a package is a name, too, and each type's begins with its package.
_MAX_NAME: Final = 1_000
#: Characters of the full names by which fields refer to types. In the text, names are relative, and may be of one letter.
_MAX_REFERRED: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class LinkedFile:
    """A schema's file, and the numbers by which frames name its messages.

    Confluent's serializers count the messages that the schema declares. In a text these are the messages as written, without
    those that ``map<>`` and groups stand for; in a descriptor all nested types.

    Attributes:
        descriptor: google.protobuf's FileDescriptor, in a pool of its own.
        implied: the messages that indexes do not count, by their names without the package.
    """

    descriptor: FileDescriptor
    implied: frozenset[str] = frozenset()

    def message(self, indexes: tuple[int, ...]) -> Descriptor:
        """Return the Descriptor of a message by its indexes, from the outermost on. Raises IndexError."""
        level, message = self._outermost(), None
        for number in indexes:
            message = level[number]
            level = self._declared(message.nested_types)
        return message

    def in_order(self) -> list[tuple[int, ...] | None]:
        """Return the indexes of all messages, nested ones, too, in the order of their full names, as AWS Glue's serializers
        number them; None for what indexes do not count.
        """
        by_name: dict[str, tuple[int, ...] | None] = {}
        waiting: list[tuple[tuple[int, ...] | None, list[Any]]] = [
            ((), list(self.descriptor.message_types_by_name.values()))
        ]
        while waiting:
            outer, level = waiting.pop()
            places = {message.full_name: number for number, message in enumerate(self._declared(level))}
            for message in level:
                number = places.get(message.full_name)
                indexes = by_name[message.full_name] = None if outer is None or number is None else (*outer, number)
                waiting.append((indexes, list(message.nested_types)))
        return [by_name[name] for name in sorted(by_name)]

    def message_names(self) -> list[str]:
        """Return the full names of the messages that are not nested."""
        return [message.full_name for message in self._outermost()]

    def message_indexes(self, name: str) -> tuple[int, ...]:
        """Return the indexes of a message by its name, with or without the package. Raises OptionError."""
        package = f"{self.descriptor.package}." if self.descriptor.package else ""
        level, indexes = self._outermost(), []
        for part in name.removeprefix(package).split("."):
            names = [message.name for message in level]
            if part not in names:
                raise OptionError(f"the schema has no message {name} (there are {', '.join(names) or 'none'}).")
            indexes.append(names.index(part))
            level = self._declared(level[indexes[-1]].nested_types)
        return tuple(indexes)

    def _outermost(self) -> list[Descriptor]:
        return self._declared(self.descriptor.message_types_by_name.values())

    def _declared(self, messages: Iterable[Descriptor]) -> list[Descriptor]:
        n_package = len(self.descriptor.package) + 1 if self.descriptor.package else 0
        return [message for message in messages if message.full_name[n_package:] not in self.implied]


def link(root: str, texts: dict[str, str | bytes]) -> LinkedFile:
    """Return the file ``root``, with all that it imports.

    Args:
        texts: each file by the name under which others import it: its text, or its serialized FileDescriptorProto.

    Raises:
        InvalidProtoError: a file is not valid, or needs one that is not there.
    """
    if sum(map(len, texts.values())) > _MAX_TEXT:
        raise InvalidProtoError(f"it and the schemas that it refers to have more than {_MAX_TEXT >> 20} MiB")
    pool = DescriptorPool()
    known: dict[str, FileDescriptorProto] = {}
    # Depth first, without recursion: a file is added after all that it imports.
    waiting: list[tuple[str, bool]] = [(root, False)]
    opened: dict[str, ParsedFile] = {}
    while waiting:
        name, is_ready = waiting.pop()
        if name in known:
            continue
        if not is_ready:
            if name in opened:
                raise InvalidProtoError(f"{name[:80]!r} imports itself, by way of others or directly")
            if len(opened) >= _MAX_FILES:
                raise InvalidProtoError(f"more than {_MAX_FILES} files are imported")
            opened[name] = _file(name, texts)
            waiting.append((name, True))
            dependencies = opened[name].descriptor.dependency
            waiting += [(file, False) for file in reversed(dependencies) if file not in known]
            continue
        file = opened[name].descriptor
        resolve(file, known)
        try:
            pool.Add(file)
        except (TypeError, KeyError, ValueError) as error:
            raise InvalidProtoError(f"{name[:80]!r}: {error}") from error
        known[name] = file
    return LinkedFile(pool.FindFileByName(root), opened[root].implied)


def _file(name: str, texts: dict[str, str | bytes]) -> ParsedFile:
    text = None if name.startswith("google/protobuf/") and name in _MODULES else texts.get(name)
    if isinstance(text, bytes):
        file = FileDescriptorProto.FromString(text)
        file.name = name
        return ParsedFile(file, frozenset())
    if text is None and name in _MODULES:
        try:
            module = importlib.import_module(_MODULES[name])
        except ModuleNotFoundError:
            raise InvalidProtoError(
                f"{name!r} is imported, and neither the registry nor this Python has it (pip install googleapis-common-protos)"
            ) from None
        return ParsedFile(FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb), frozenset())
    if text is None:
        text = _CONFLUENT.get(name)
    if text is None:
        raise InvalidProtoError(f"{name[:80]!r} is imported, and the registry does not have it with the schema")
    try:
        return parse(name, text)
    except InvalidProtoError as error:
        raise InvalidProtoError(f"{name[:80]!r}, {error}") from None


def resolve(file: FileDescriptorProto, known: dict[str, FileDescriptorProto]) -> None:
    """Give every type its full name, with a point before it, and every field its type; names that are full stay.

    Raises:
        InvalidProtoError: a name is unknown where it is used.
    """
    symbols = _ProtoSymbols(file, known)
    messages = ((scope, message, (*message.field, *message.extension)) for scope, message in messages_of(file))
    for scope, holder, fields in ((file.package, file, file.extension), *messages):
        for field in fields:
            symbols.resolve_field(field, scope)
        for enum in holder.enum_type:
            for value in enum.value:
                _check_length(value.name)  # which each value of a column repeats
    for service in file.service:
        scope = _join_names(file.package, service.name)
        for method in service.method:
            method.input_type = symbols.find(method.input_type, scope, "message")
            method.output_type = symbols.find(method.output_type, scope, "message")


class _ProtoSymbols:
    """What can be named in a file: its own types, those of its imports, and of what these import publicly."""

    def __init__(self, file: FileDescriptorProto, known: dict[str, FileDescriptorProto]) -> None:
        #: Full name to message, enum or package.
        self._kinds: dict[str, str] = {}
        self._n_referred = 0
        visible, waiting = set(), list(file.dependency)
        self._add(file)
        while waiting:
            name = waiting.pop()
            if name not in visible:
                visible.add(name)
                self._add(known[name])
                waiting += [known[name].dependency[index] for index in known[name].public_dependency]

    def _add(self, file: FileDescriptorProto) -> None:
        _check_length(file.package)
        package = ""
        for part in file.package.split(".") if file.package else ():
            package = _join_names(package, part)
            self._kinds.setdefault(package, "package")
        for scope, message in messages_of(file):
            self._kinds[scope] = "message"
            self._kinds |= {_join_names(scope, enum.name): "enum" for enum in message.enum_type}
        self._kinds |= {_join_names(file.package, enum.name): "enum" for enum in file.enum_type}

    def resolve_field(self, field: FieldDescriptorProto, scope: str) -> None:
        _check_length(field.name)
        if field.extendee:
            field.extendee = self.find(field.extendee, scope, "message")
        if not field.type_name:
            return
        field.type_name = self.find(field.type_name, scope, None)
        is_enum = self._kinds[field.type_name[1:]] == "enum"
        if is_enum:
            field.type = FieldDescriptorProto.TYPE_ENUM
        elif field.type != FieldDescriptorProto.TYPE_GROUP:
            field.type = FieldDescriptorProto.TYPE_MESSAGE
        if field.default_value and not is_enum:
            raise InvalidProtoError(f"{field.name[:80]} of {scope[:80]}: a message has no default")

    def find(self, name: str, scope: str, kind: str | None) -> str:
        """Return a type's full name, from a scope: the innermost in which the name's first part means something counts."""
        full_name = name[1:] if name.startswith(".") else self._from(name, scope)
        if full_name is None or self._kinds.get(full_name, "package") == "package":
            raise InvalidProtoError(f"{name[:80]} is not a type that {scope[:80] or 'the file'} knows")
        if kind is not None and self._kinds[full_name] != kind:
            raise InvalidProtoError(f"{name[:80]} is not a message")
        self._n_referred += len(full_name)
        if self._n_referred > _MAX_REFERRED:
            raise InvalidProtoError(f"the names of its fields' types have more than {_MAX_REFERRED} characters")
        return f".{full_name}"

    def _from(self, name: str, scope: str) -> str | None:
        first, point, _ = name.partition(".")
        while True:
            kind = self._kinds.get(_join_names(scope, first))
            if kind is not None and point:
                full = _join_names(scope, name)
                return full if full in self._kinds else None
            if kind in ("message", "enum"):
                return _join_names(scope, first)
            if not scope:
                return None
            scope = scope.rpartition(".")[0]


def messages_of(file: FileDescriptorProto) -> Iterator[tuple[str, Descriptor]]:
    """Yield every message of a file with its full name, the outer before the inner."""
    waiting = [(_join_names(file.package, message.name), message) for message in file.message_type]
    while waiting:
        scope, message = waiting.pop()
        _check_length(scope)
        yield scope, message
        waiting += [(_join_names(scope, nested.name), nested) for nested in message.nested_type]


def _check_length(name: str) -> None:
    if len(name) > _MAX_NAME:
        raise InvalidProtoError(f"the name {name[:80]}… has more than {_MAX_NAME} characters")


def _join_names(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name
