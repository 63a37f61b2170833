"""The files of a schema in one descriptor pool: type names resolved as protoc does, imports found, Protobuf's own files added.

Nothing here is a file of the machine's: names are those that the schemas use for each other. Only the names listed here
are looked for among installed modules.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any, Final

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

from pykafka_wire.values.protobuf.parser import parse
from pykafka_wire.values.protobuf.tokens import InvalidProtoError

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


def link(root: str, texts: dict[str, str | bytes]) -> Any:
    """The FileDescriptor of ``root`` in a pool of its own.

    Args:
        texts: each file by the name under which others import it: its text, or its serialized FileDescriptorProto.

    Raises:
        InvalidProtoError: a file is not valid, or needs one that is not there.
    """
    pool = DescriptorPool()
    known: dict[str, FileDescriptorProto] = {}
    # Depth first, without recursion: a file is added after all that it imports.
    waiting: list[tuple[str, bool]] = [(root, False)]
    opened: dict[str, FileDescriptorProto] = {}
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
            waiting += [(each, False) for each in reversed(opened[name].dependency) if each not in known]
            continue
        file = opened[name]
        resolve(file, known)
        try:
            pool.Add(file)
        except (TypeError, KeyError, ValueError) as error:
            raise InvalidProtoError(f"{name[:80]!r}: {error}") from error
        known[name] = file
    return pool.FindFileByName(root)


def _file(name: str, texts: dict[str, str | bytes]) -> FileDescriptorProto:
    text = None if name.startswith("google/protobuf/") and name in _MODULES else texts.get(name)
    if isinstance(text, bytes):
        file = FileDescriptorProto.FromString(text)
        file.name = name
        return file
    if text is None and name in _MODULES:
        try:
            module = importlib.import_module(_MODULES[name])
        except ModuleNotFoundError:
            raise InvalidProtoError(
                f"{name!r} is imported, and neither the registry nor this Python has it (pip install googleapis-common-protos)"
            ) from None
        return FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
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
    symbols = _Symbols(file, known)
    for scope, message in _messages(file):
        for field in (*message.field, *message.extension):
            symbols.resolve_field(field, scope)
    for field in file.extension:
        symbols.resolve_field(field, file.package)
    for service in file.service:
        scope = _joined(file.package, service.name)
        for method in service.method:
            method.input_type = symbols.find(method.input_type, scope, "message")
            method.output_type = symbols.find(method.output_type, scope, "message")


class _Symbols:
    """What can be named in a file: its own types, those of its imports, and of what these import publicly."""

    def __init__(self, file: FileDescriptorProto, known: dict[str, FileDescriptorProto]) -> None:
        #: Full name to message, enum or package.
        self._kinds: dict[str, str] = {}
        visible, waiting = set(), list(file.dependency)
        self._add(file)
        while waiting:
            name = waiting.pop()
            if name not in visible:
                visible.add(name)
                self._add(known[name])
                waiting += [known[name].dependency[index] for index in known[name].public_dependency]

    def _add(self, file: FileDescriptorProto) -> None:
        package = ""
        for part in file.package.split(".") if file.package else ():
            package = _joined(package, part)
            self._kinds.setdefault(package, "package")
        for scope, message in _messages(file):
            self._kinds[scope] = "message"
            self._kinds |= {_joined(scope, enum.name): "enum" for enum in message.enum_type}
        self._kinds |= {_joined(file.package, enum.name): "enum" for enum in file.enum_type}

    def resolve_field(self, field: FieldDescriptorProto, scope: str) -> None:
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
        """A type's full name, from a scope: the innermost in which the name's first part means something counts."""
        found = name[1:] if name.startswith(".") else self._from(name, scope)
        if found is None or self._kinds.get(found, "package") == "package":
            raise InvalidProtoError(f"{name[:80]} is not a type that {scope[:80] or 'the file'} knows")
        if kind is not None and self._kinds[found] != kind:
            raise InvalidProtoError(f"{name[:80]} is not a message")
        return f".{found}"

    def _from(self, name: str, scope: str) -> str | None:
        first, point, _ = name.partition(".")
        while True:
            kind = self._kinds.get(_joined(scope, first))
            if kind is not None and point:
                full = _joined(scope, name)
                return full if full in self._kinds else None
            if kind in ("message", "enum"):
                return _joined(scope, first)
            if not scope:
                return None
            scope = scope.rpartition(".")[0]


def _messages(file: FileDescriptorProto) -> Iterator[tuple[str, Any]]:
    """Every message of a file with its full name, the outer before the inner."""
    waiting = [(_joined(file.package, each.name), each) for each in file.message_type]
    while waiting:
        scope, message = waiting.pop()
        yield scope, message
        waiting += [(_joined(scope, each.name), each) for each in message.nested_type]


def _joined(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name
