"""A .proto file's text to its descriptor, as protoc makes it, without a file or another program.

Registries keep Protobuf schemas as text, and no Python library turns text into descriptors in memory: protoc reads files, under
names that would be the registry's. Type names stay as they are written; :mod:`~pykafka_wire.values.protobuf.linker` resolves them.

Two things differ from protoc: custom options are left out of the descriptor, since they change nothing on the wire, and rules
that change nothing on the wire either (names that differ only in JSON, unused imports) are not enforced.
Editions are not supported.
https://protobuf.dev/reference/protobuf/proto2-spec/, https://protobuf.dev/reference/protobuf/proto3-spec/
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate
from typing import Any, Final, NamedTuple

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    MethodDescriptorProto,
    ServiceDescriptorProto,
)

from pykafka_wire.values.protobuf.options import SCALARS, OptionReader
from pykafka_wire.values.protobuf.tokens import InvalidProtoError, TokenReader

#: protoc's own limit for messages in messages.
_MAX_DEPTH: Final = 32
_MAX_FIELD_NUMBER: Final = (1 << 29) - 1
_MAX_INT32: Final = (1 << 31) - 1
#: Field numbers that Protobuf's implementation keeps for itself.
_RESERVED_NUMBERS: Final = range(19_000, 20_000)

_KEYS_NO_MAP_HAS: Final = frozenset({"double", "float", "bytes"})
_LABELS: Final = {
    "optional": FieldDescriptorProto.LABEL_OPTIONAL,
    "required": FieldDescriptorProto.LABEL_REQUIRED,
    "repeated": FieldDescriptorProto.LABEL_REPEATED,
}


class ParsedFile(NamedTuple):
    """A file's text as a descriptor.

    Attributes:
        descriptor: a FileDescriptorProto; type names in it are not resolved yet.
        implied: the names, without the package, of messages that the text does not declare: entries of maps, and groups.
    """

    descriptor: Any
    implied: frozenset[str]


def parse(name: str, text: str) -> ParsedFile:
    """The descriptor of a file's text, under the name given.

    Raises:
        InvalidProtoError: the text is not a .proto file, or one of an edition.
    """
    tokens = TokenReader(text)
    parser = _Parser(name, tokens)
    try:
        parser.file()
    except InvalidProtoError:
        raise
    except (ValueError, TypeError, OverflowError) as error:  # what a descriptor's field does not take
        raise InvalidProtoError(f"line {tokens.line()}: {error}") from error
    return ParsedFile(parser.found, frozenset(parser.implied))


class _Parser:
    """Recursive descent."""

    def __init__(self, name: str, tokens: TokenReader) -> None:
        self._tokens = tokens
        self._options = OptionReader(tokens)
        self._proto3 = False
        self.found = FileDescriptorProto(name=name)
        self.implied: set[str] = set()
        #: The names of the messages around the next token.
        self._path: list[str] = []
        self._imports: set[str] = set()

    # --- File ---------------------------------------------------------------------------------------------------------

    def file(self) -> None:
        if self._tokens.at("syntax") or self._tokens.at("edition"):
            self._syntax()
        while self._tokens.token.kind != "end":
            self._statement()

    def _syntax(self) -> None:
        keyword = self._tokens.next().text
        self._tokens.expect("=")
        version = self._tokens.string().decode("utf-8", "replace")
        if keyword == "edition":
            raise self._tokens.invalid(f"edition {version[:20]!r} is not supported: use proto2 or proto3")
        if version not in ("proto2", "proto3"):
            raise self._tokens.invalid(f"the syntax {version[:20]!r} is unknown: it is proto2 or proto3")
        self._tokens.expect(";")
        self._proto3 = version == "proto3"
        if self._proto3:
            self.found.syntax = version

    def _statement(self) -> None:
        if self._tokens.accept(";"):
            return
        file, keyword = self.found, self._tokens.token.text if self._tokens.token.kind == "name" else ""
        if keyword == "import":
            self._import()
        elif keyword == "package":
            self._tokens.next()
            if file.package:
                raise self._tokens.invalid("a file has one package")
            file.package = self._tokens.full_name()
            self._tokens.expect(";")
        elif keyword == "option":
            self._options.statement(file.options)
        elif keyword == "message":
            self._message(file.message_type.add())
        elif keyword == "enum":
            self._enum(file.enum_type.add())
        elif keyword == "service":
            self._service(file.service.add())
        elif keyword == "extend":
            self._extend(file.extension, file.message_type)
        else:
            raise self._tokens.error("a message, enum, service, extend, import, package or option is expected")

    def _import(self) -> None:
        self._tokens.next()
        index = len(self.found.dependency)
        if self._tokens.accept("public"):
            self.found.public_dependency.append(index)
        elif self._tokens.accept("weak"):
            self.found.weak_dependency.append(index)
        name = self._tokens.string().decode()
        if name in self._imports:
            raise self._tokens.invalid(f"{name[:80]!r} is imported twice")
        self._imports.add(name)
        self.found.dependency.append(name)
        self._tokens.expect(";")

    # --- Messages -----------------------------------------------------------------------------------------------------

    def _message(self, message: DescriptorProto) -> None:
        self._tokens.next()
        message.name = self._tokens.name()
        self._message_body(message)

    def _message_body(self, message: DescriptorProto) -> None:
        self._path.append(message.name)
        if len(self._path) > _MAX_DEPTH:
            raise self._tokens.invalid(f"messages are nested more than {_MAX_DEPTH} deep")
        self._tokens.expect("{")
        while not self._tokens.accept("}"):
            self._message_statement(message)
        self._path.pop()
        for extension_range in message.extension_range:
            if message.options.message_set_wire_format and extension_range.end == _MAX_FIELD_NUMBER + 1:
                extension_range.end = _MAX_INT32
        self._add_synthetic_oneofs(message)
        self._check_numbers(message)

    def _message_statement(self, message: DescriptorProto) -> None:
        if self._tokens.accept(";"):
            return
        keyword = self._tokens.token.text if self._tokens.token.kind == "name" else ""
        if keyword == "message":
            self._message(message.nested_type.add())
        elif keyword == "enum":
            self._enum(message.enum_type.add())
        elif keyword == "option":
            self._options.statement(message.options)
        elif keyword == "extend":
            self._extend(message.extension, message.nested_type)
        elif keyword == "extensions":
            self._extension_ranges(message)
        elif keyword == "reserved":
            self._reserved(message.reserved_range, message.reserved_name, 1, _MAX_FIELD_NUMBER, exclusive=1)
        elif keyword == "oneof":
            self._oneof(message)
        else:
            self._field(message.field.add(), message.nested_type)

    def _field(self, field: FieldDescriptorProto, nested: Any, *, extendee: str = "", oneof: int | None = None) -> None:
        label = self._tokens.token.text if self._tokens.token.kind == "name" and oneof is None else ""
        if label in _LABELS:
            self._tokens.next()
            field.label = _LABELS[label]
            if self._proto3 and label == "required":
                raise self._tokens.invalid("proto3 has no required fields")
            if self._proto3 and label == "optional":
                field.proto3_optional = True
        else:
            field.label = _LABELS["optional"]
        if extendee:
            field.extendee = extendee
        if oneof is not None:
            field.oneof_index = oneof
        is_labelled = label in _LABELS
        type_name = self._tokens.full_name()
        if type_name == "map" and self._tokens.at("<"):
            if is_labelled or extendee or oneof is not None:
                raise self._tokens.invalid("a map has no label and is no extension and no part of a oneof")
            self._map(field, nested)
            return
        if type_name == "group" and self._tokens.token.kind == "name":
            self._group(field, nested)
            return
        if not (self._proto3 or is_labelled or oneof is not None):
            raise self._tokens.error("optional, required or repeated is expected before a field of proto2")
        _set_type(field, type_name)
        field.name = self._tokens.name()
        self._number_and_options(field)
        self._tokens.expect(";")

    def _number_and_options(self, field: FieldDescriptorProto) -> None:
        self._tokens.expect("=")
        field.number = self._tokens.integer(1, _MAX_INT32)
        field.json_name = json_name(field.name)
        self._options.bracketed(field.options, field, is_proto3=self._proto3)

    def _group(self, field: FieldDescriptorProto, nested: Any) -> None:
        if self._proto3:
            raise self._tokens.invalid("proto3 has no groups")
        group = nested.add()
        group.name = self._tokens.name()
        if not group.name[0].isupper():
            raise self._tokens.invalid("a group's name begins with a capital letter")
        self._imply(group)
        field.type = FieldDescriptorProto.TYPE_GROUP
        field.type_name = group.name
        field.name = group.name.lower()
        self._number_and_options(field)
        self._message_body(group)

    def _map(self, field: FieldDescriptorProto, nested: Any) -> None:
        """A repeated field of a message that is made for it, with the fields key and value."""
        self._tokens.expect("<")
        key_type = self._tokens.name()
        if key_type not in SCALARS or key_type in _KEYS_NO_MAP_HAS:
            raise self._tokens.invalid(f"a map's key cannot be {key_type[:40]}")
        self._tokens.expect(",")
        value_type = self._tokens.full_name()
        self._tokens.expect(">")
        field.name = self._tokens.name()
        entry = nested.add(name=map_entry_name(field.name))
        entry.options.map_entry = True
        self._imply(entry)
        for number, (name, type_name) in enumerate((("key", key_type), ("value", value_type)), 1):
            _set_type(
                entry.field.add(name=name, number=number, json_name=name, label=_LABELS["optional"]),
                type_name,
            )
        field.label = _LABELS["repeated"]
        field.type_name = entry.name
        self._number_and_options(field)
        self._tokens.expect(";")

    def _imply(self, message: DescriptorProto) -> None:
        self.implied.add(".".join((*self._path, message.name)))

    def _oneof(self, message: DescriptorProto) -> None:
        self._tokens.next()
        index = len(message.oneof_decl)
        oneof = message.oneof_decl.add(name=self._tokens.name())
        self._tokens.expect("{")
        n_fields = len(message.field)
        while not self._tokens.accept("}"):
            if self._tokens.at("option"):
                self._options.statement(oneof.options)
            elif not self._tokens.accept(";"):
                if self._tokens.token.text in _LABELS:
                    raise self._tokens.invalid("a field in a oneof has no label")
                self._field(message.field.add(), message.nested_type, oneof=index)
        if len(message.field) == n_fields:
            raise self._tokens.invalid("a oneof has at least one field")

    def _add_synthetic_oneofs(self, message: DescriptorProto) -> None:
        """proto3's ``optional`` is a oneof with one field, after those that are written."""
        taken = {each.name for each in message.field} | {each.name for each in message.oneof_decl}
        for field in message.field:
            if field.proto3_optional:
                name = field.name if field.name.startswith("_") else f"_{field.name}"
                while name in taken:
                    name = f"X{name}"
                taken.add(name)
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=name)

    def _check_numbers(self, message: DescriptorProto) -> None:
        is_reserved = _within([(each.start, each.end) for each in (*message.reserved_range, *message.extension_range)])
        reserved_names, seen = set(message.reserved_name), set()
        for field in message.field:
            number = field.number
            if number > _MAX_FIELD_NUMBER and not message.options.message_set_wire_format:
                raise self._tokens.invalid(f"field number {number} is above {_MAX_FIELD_NUMBER}")
            if number in _RESERVED_NUMBERS:
                raise self._tokens.invalid(f"field number {number} is reserved for Protobuf itself")
            if number in seen or is_reserved(number):
                raise self._tokens.invalid(f"field number {number} of {message.name} is used twice or reserved")
            if field.name in reserved_names:
                raise self._tokens.invalid(f"the field name {field.name} of {message.name} is reserved")
            seen.add(number)
        if message.extension_range and self._proto3:
            raise self._tokens.invalid("proto3 has no extension ranges")

    def _extend(self, extensions: Any, nested: Any) -> None:
        self._tokens.next()
        extendee = self._tokens.full_name()
        self._tokens.expect("{")
        while not self._tokens.accept("}"):
            if not self._tokens.accept(";"):
                self._field(extensions.add(), nested, extendee=extendee)

    def _extension_ranges(self, message: DescriptorProto) -> None:
        self._tokens.next()
        first = len(message.extension_range)
        while True:
            start, end = self._range(1, _MAX_FIELD_NUMBER)
            message.extension_range.add(start=start, end=end + 1)
            if not self._tokens.accept(","):
                break
        if self._tokens.at("["):
            self._options.bracketed(message.extension_range[first].options)
            for each in message.extension_range[first + 1 :]:
                each.options.CopyFrom(message.extension_range[first].options)
        self._tokens.expect(";")

    def _range(self, least: int, most: int) -> tuple[int, int]:
        """Both ends inclusive."""
        start = self._tokens.integer(least, most)
        if not self._tokens.accept("to"):
            return start, start
        end = most if self._tokens.accept("max") else self._tokens.integer(least, most)
        if end < start:
            raise self._tokens.invalid("a range ends before it begins")
        return start, end

    def _reserved(self, ranges: Any, names: Any, least: int, most: int, *, exclusive: int) -> None:
        self._tokens.next()
        while True:
            if self._tokens.token.kind == "string":
                names.append(self._tokens.string().decode())
            else:
                start, end = self._range(least, most)
                ranges.add(start=start, end=end + exclusive)
            if not self._tokens.accept(","):
                break
        self._tokens.expect(";")

    # --- Enums and services -------------------------------------------------------------------------------------------

    def _enum(self, enum: EnumDescriptorProto) -> None:
        self._tokens.next()
        enum.name = self._tokens.name()
        self._tokens.expect("{")
        while not self._tokens.accept("}"):
            if self._tokens.accept(";"):
                continue
            if self._tokens.at("option"):
                self._options.statement(enum.options)
            elif self._tokens.at("reserved"):
                self._reserved(enum.reserved_range, enum.reserved_name, -_MAX_INT32 - 1, _MAX_INT32, exclusive=0)
            else:
                value = enum.value.add(name=self._tokens.name())
                self._tokens.expect("=")
                value.number = self._tokens.integer(-_MAX_INT32 - 1, _MAX_INT32)
                self._options.bracketed(value.options)
                self._tokens.expect(";")
        self._check_enum(enum)

    def _check_enum(self, enum: EnumDescriptorProto) -> None:
        numbers = [value.number for value in enum.value]
        if not numbers:
            raise self._tokens.invalid(f"the enum {enum.name} has no values")
        if self._proto3 and numbers[0] != 0:
            raise self._tokens.invalid(f"the first value of the proto3 enum {enum.name} is not 0")
        if len(set(numbers)) < len(numbers) and not enum.options.allow_alias:
            raise self._tokens.invalid(f"two values of the enum {enum.name} have one number, without allow_alias")
        is_reserved = _within([(each.start, each.end + 1) for each in enum.reserved_range])
        reserved_names = set(enum.reserved_name)
        for value in enum.value:
            if value.name in reserved_names or is_reserved(value.number):
                raise self._tokens.invalid(f"the value {value.name} of the enum {enum.name} is reserved")

    def _service(self, service: ServiceDescriptorProto) -> None:
        self._tokens.next()
        service.name = self._tokens.name()
        self._tokens.expect("{")
        while not self._tokens.accept("}"):
            if self._tokens.at("option"):
                self._options.statement(service.options)
            elif not self._tokens.accept(";"):
                self._method(service.method.add())

    def _method(self, method: MethodDescriptorProto) -> None:
        self._tokens.expect("rpc")
        method.name = self._tokens.name()
        method.input_type, streams = self._method_type()
        if streams:
            method.client_streaming = True
        self._tokens.expect("returns")
        method.output_type, streams = self._method_type()
        if streams:
            method.server_streaming = True
        if not self._tokens.accept("{"):
            self._tokens.expect(";")
            return
        method.options.SetInParent()
        while not self._tokens.accept("}"):
            if not self._tokens.accept(";"):
                self._options.statement(method.options)

    def _method_type(self) -> tuple[str, bool]:
        self._tokens.expect("(")
        streams = self._tokens.accept("stream")
        name = self._tokens.full_name()
        self._tokens.expect(")")
        return name, streams


def _within(ranges: list[tuple[int, int]]) -> Callable[[int], bool]:
    """Whether a number is in one of the ranges, whose ends are exclusive, without a look at each of them."""
    starts = [start for start, _ in sorted(ranges)]
    #: The furthest end of a range and those before it, which may contain it.
    ends = list(accumulate((end for _, end in sorted(ranges)), max))

    def contains(number: int) -> bool:
        n_before = bisect_right(starts, number)
        return n_before > 0 and number < ends[n_before - 1]

    return contains


def _set_type(field: FieldDescriptorProto, type_name: str) -> None:
    if type_name in SCALARS:
        field.type = SCALARS[type_name]
    else:
        field.type_name = type_name


def json_name(name: str) -> str:
    """A field's name in JSON: without underscores, the letter after each a capital."""
    first, *more = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in more)


def map_entry_name(name: str) -> str:
    """The name of the message that a map field's entries are."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_")) + "Entry"
