"""A .proto file's text to its descriptor, as protoc makes it, without a file or another program.

Registries keep Protobuf schemas as text, and no Python library turns text into descriptors in memory: protoc reads files, under
names that would be the registry's. Type names stay as they are written; :mod:`~pykafka_wire.values.protobuf.linker` resolves them.

Two things differ from protoc: custom options are left out of the descriptor, since they change nothing on the wire, and rules
of style that change nothing on the wire either are not enforced. Editions are not supported.
https://protobuf.dev/reference/protobuf/proto2-spec/, https://protobuf.dev/reference/protobuf/proto3-spec/
"""

from __future__ import annotations

import math
import struct
from typing import Any, Final

from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FieldOptions,
    FileDescriptorProto,
    MethodDescriptorProto,
    ServiceDescriptorProto,
)

from pykafka_wire.values.protobuf.tokens import InvalidProtoError, Token, escaped, line_of, tokens, unquoted

#: protoc's own limit for messages in messages.
_MAX_DEPTH: Final = 32
_MAX_FIELD_NUMBER: Final = (1 << 29) - 1
_MAX_INT32: Final = (1 << 31) - 1
#: Field numbers that Protobuf's implementation keeps for itself.
_RESERVED_NUMBERS: Final = range(19_000, 20_000)

_SCALARS: Final = {
    name: getattr(FieldDescriptorProto, f"TYPE_{name.upper()}")
    for name in (
        *("double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "bytes", "uint32"),
        *("sfixed32", "sfixed64", "sint32", "sint64"),
    )
}
_KEYS_NO_MAP_HAS: Final = frozenset({"double", "float", "bytes"})
_LABELS: Final = {
    "optional": FieldDescriptorProto.LABEL_OPTIONAL,
    "required": FieldDescriptorProto.LABEL_REQUIRED,
    "repeated": FieldDescriptorProto.LABEL_REPEATED,
}
_INTEGER_BITS: Final = {
    "int32": (-(1 << 31), (1 << 31) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
    "uint32": (0, (1 << 32) - 1),
    "uint64": (0, (1 << 64) - 1),
}
_INTEGER_RANGES: Final = {
    _SCALARS[name]: _INTEGER_BITS[name.replace("sfixed", "int").replace("sint", "int").replace("fixed", "uint")]
    for name in _SCALARS
    if "int" in name or "fixed" in name
}


def parse(name: str, text: str) -> Any:
    """The FileDescriptorProto of a file's text, under the name given; type names in it are not resolved yet.

    Raises:
        InvalidProtoError: the text is not a .proto file, or one of an edition.
    """
    parser = _Parser(name, text)
    try:
        parser.file()
    except InvalidProtoError:
        raise
    except (ValueError, TypeError, OverflowError) as error:  # what a descriptor's field does not take
        raise InvalidProtoError(f"line {parser.line()}: {error}") from error
    return parser.found


class _Parser:
    """Recursive descent, one token ahead."""

    def __init__(self, name: str, text: str) -> None:
        self.found = FileDescriptorProto(name=name)
        self._text = text
        self._tokens = tokens(text)
        self._token: Token = next(self._tokens)
        self._proto3 = False
        self._depth = 0

    # --- Tokens -------------------------------------------------------------------------------------------------------

    def line(self) -> int:
        return line_of(self._text, self._token.start)

    def _error(self, expected: str) -> InvalidProtoError:
        return InvalidProtoError(f"line {self.line()}: {expected}, found {self._token.text[:40]!r}")

    def _invalid(self, reason: str) -> InvalidProtoError:
        return InvalidProtoError(f"line {self.line()}: {reason}")

    def _next(self) -> Token:
        token = self._token
        if token.kind != "end":
            self._token = next(self._tokens)
        return token

    def _at(self, text: str) -> bool:
        return self._token.text == text and self._token.kind != "string"

    def _accept(self, text: str) -> bool:
        if not self._at(text):
            return False
        self._next()
        return True

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            raise self._error(f"{text!r} is expected")

    def _name(self) -> str:
        if self._token.kind != "name":
            raise self._error("a name is expected")
        return self._next().text

    def _full_name(self) -> str:
        """Names with points between them, and perhaps before them."""
        parts = [""] if self._accept(".") else []
        parts.append(self._name())
        while self._accept("."):
            parts.append(self._name())
        return ".".join(parts)

    def _string(self) -> bytes:
        """Strings that stand side by side are one."""
        parts = []
        while self._token.kind == "string":
            parts.append(unquoted(self._next()))
        if not parts:
            raise self._error("a string is expected")
        return b"".join(parts)

    def _integer(self, least: int, most: int) -> int:
        negative = self._accept("-")
        if self._token.kind != "integer":
            raise self._error("an integer is expected")
        text = self._token.text
        if len(text) > 25:  # longer than any that fits 64 bits, in each notation
            raise self._error(f"an integer from {least} to {most} is expected")
        try:
            number = int(text, 16 if text[:2] in ("0x", "0X") else 8 if text[0] == "0" else 10)
        except ValueError:
            raise self._error("an integer is expected") from None
        number = -number if negative else number
        if not least <= number <= most:
            raise self._error(f"an integer from {least} to {most} is expected")
        self._next()
        return number

    # --- File ---------------------------------------------------------------------------------------------------------

    def file(self) -> None:
        if self._at("syntax") or self._at("edition"):
            self._syntax()
        while self._token.kind != "end":
            self._statement()

    def _syntax(self) -> None:
        keyword = self._next().text
        self._expect("=")
        version = self._string().decode("utf-8", "replace")
        if keyword == "edition":
            raise self._invalid(f"edition {version[:20]!r} is not supported: use proto2 or proto3")
        if version not in ("proto2", "proto3"):
            raise self._invalid(f"the syntax {version[:20]!r} is unknown: it is proto2 or proto3")
        self._expect(";")
        self._proto3 = version == "proto3"
        if self._proto3:
            self.found.syntax = version

    def _statement(self) -> None:
        if self._accept(";"):
            return
        file, keyword = self.found, self._token.text if self._token.kind == "name" else ""
        if keyword == "import":
            self._import()
        elif keyword == "package":
            self._next()
            if file.package:
                raise self._invalid("a file has one package")
            file.package = self._full_name()
            self._expect(";")
        elif keyword == "option":
            self._option_statement(file.options)
        elif keyword == "message":
            self._message(file.message_type.add())
        elif keyword == "enum":
            self._enum(file.enum_type.add())
        elif keyword == "service":
            self._service(file.service.add())
        elif keyword == "extend":
            self._extend(file.extension, file.message_type)
        else:
            raise self._error("a message, enum, service, extend, import, package or option is expected")

    def _import(self) -> None:
        self._next()
        index = len(self.found.dependency)
        if self._accept("public"):
            self.found.public_dependency.append(index)
        elif self._accept("weak"):
            self.found.weak_dependency.append(index)
        name = self._string().decode()
        if name in self.found.dependency:
            raise self._invalid(f"{name[:80]!r} is imported twice")
        self.found.dependency.append(name)
        self._expect(";")

    # --- Messages -----------------------------------------------------------------------------------------------------

    def _message(self, message: DescriptorProto) -> None:
        self._next()
        message.name = self._name()
        self._message_body(message)

    def _message_body(self, message: DescriptorProto) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._invalid(f"messages are nested more than {_MAX_DEPTH} deep")
        self._expect("{")
        while not self._accept("}"):
            self._message_statement(message)
        self._depth -= 1
        for extension_range in message.extension_range:
            if message.options.message_set_wire_format and extension_range.end == _MAX_FIELD_NUMBER + 1:
                extension_range.end = _MAX_INT32
        self._add_synthetic_oneofs(message)
        self._check_numbers(message)

    def _message_statement(self, message: DescriptorProto) -> None:
        if self._accept(";"):
            return
        keyword = self._token.text if self._token.kind == "name" else ""
        if keyword == "message":
            self._message(message.nested_type.add())
        elif keyword == "enum":
            self._enum(message.enum_type.add())
        elif keyword == "option":
            self._option_statement(message.options)
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
        label = self._token.text if self._token.kind == "name" and oneof is None else ""
        if label in _LABELS:
            self._next()
            field.label = _LABELS[label]
            if self._proto3 and label == "required":
                raise self._invalid("proto3 has no required fields")
            if self._proto3 and label == "optional":
                field.proto3_optional = True
        else:
            field.label = _LABELS["optional"]
        if extendee:
            field.extendee = extendee
        if oneof is not None:
            field.oneof_index = oneof
        is_labelled = label in _LABELS
        type_name = self._full_name()
        if type_name == "map" and self._at("<"):
            if is_labelled or extendee or oneof is not None:
                raise self._invalid("a map has no label and is no extension and no part of a oneof")
            self._map(field, nested)
            return
        if type_name == "group" and self._token.kind == "name":
            self._group(field, nested)
            return
        if not (self._proto3 or is_labelled or oneof is not None):
            raise self._error("optional, required or repeated is expected before a field of proto2")
        _set_type(field, type_name)
        field.name = self._name()
        self._number_and_options(field)
        self._expect(";")

    def _number_and_options(self, field: FieldDescriptorProto) -> None:
        self._expect("=")
        field.number = self._integer(1, _MAX_INT32)
        field.json_name = json_name(field.name)
        self._bracketed(field.options, field)

    def _group(self, field: FieldDescriptorProto, nested: Any) -> None:
        if self._proto3:
            raise self._invalid("proto3 has no groups")
        group = nested.add()
        group.name = self._name()
        if not group.name[0].isupper():
            raise self._invalid("a group's name begins with a capital letter")
        field.type = FieldDescriptorProto.TYPE_GROUP
        field.type_name = group.name
        field.name = group.name.lower()
        self._number_and_options(field)
        self._message_body(group)

    def _map(self, field: FieldDescriptorProto, nested: Any) -> None:
        """A repeated field of a message that is made for it, with the fields key and value."""
        self._expect("<")
        key_type = self._name()
        if key_type not in _SCALARS or key_type in _KEYS_NO_MAP_HAS:
            raise self._invalid(f"a map's key cannot be {key_type[:40]}")
        self._expect(",")
        value_type = self._full_name()
        self._expect(">")
        field.name = self._name()
        entry = nested.add(name=map_entry_name(field.name))
        entry.options.map_entry = True
        for number, (name, type_name) in enumerate((("key", key_type), ("value", value_type)), 1):
            _set_type(
                entry.field.add(name=name, number=number, json_name=name, label=_LABELS["optional"]),
                type_name,
            )
        field.label = _LABELS["repeated"]
        field.type_name = entry.name
        self._number_and_options(field)
        self._expect(";")

    def _oneof(self, message: DescriptorProto) -> None:
        self._next()
        index = len(message.oneof_decl)
        oneof = message.oneof_decl.add(name=self._name())
        self._expect("{")
        n_fields = len(message.field)
        while not self._accept("}"):
            if self._at("option"):
                self._option_statement(oneof.options)
            elif not self._accept(";"):
                if self._token.text in _LABELS:
                    raise self._invalid("a field in a oneof has no label")
                self._field(message.field.add(), message.nested_type, oneof=index)
        if len(message.field) == n_fields:
            raise self._invalid("a oneof has at least one field")

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
        reserved = [(each.start, each.end) for each in message.reserved_range]
        reserved += [(each.start, each.end) for each in message.extension_range]
        seen = set()
        for field in message.field:
            number = field.number
            if number > _MAX_FIELD_NUMBER and not message.options.message_set_wire_format:
                raise self._invalid(f"field number {number} is above {_MAX_FIELD_NUMBER}")
            if number in _RESERVED_NUMBERS:
                raise self._invalid(f"field number {number} is reserved for Protobuf itself")
            if number in seen or any(start <= number < end for start, end in reserved):
                raise self._invalid(f"field number {number} of {message.name} is used twice or reserved")
            if field.name in message.reserved_name:
                raise self._invalid(f"the field name {field.name} of {message.name} is reserved")
            seen.add(number)
        if message.extension_range and self._proto3:
            raise self._invalid("proto3 has no extension ranges")

    def _extend(self, extensions: Any, nested: Any) -> None:
        self._next()
        extendee = self._full_name()
        self._expect("{")
        while not self._accept("}"):
            if not self._accept(";"):
                self._field(extensions.add(), nested, extendee=extendee)

    def _extension_ranges(self, message: DescriptorProto) -> None:
        self._next()
        first = len(message.extension_range)
        while True:
            start, end = self._range(1, _MAX_FIELD_NUMBER)
            message.extension_range.add(start=start, end=end + 1)
            if not self._accept(","):
                break
        if self._at("["):
            self._bracketed(message.extension_range[first].options, None)
            for each in message.extension_range[first + 1 :]:
                each.options.CopyFrom(message.extension_range[first].options)
        self._expect(";")

    def _range(self, least: int, most: int) -> tuple[int, int]:
        """Both ends inclusive."""
        start = self._integer(least, most)
        if not self._accept("to"):
            return start, start
        end = most if self._accept("max") else self._integer(least, most)
        if end < start:
            raise self._invalid("a range ends before it begins")
        return start, end

    def _reserved(self, ranges: Any, names: Any, least: int, most: int, *, exclusive: int) -> None:
        self._next()
        while True:
            if self._token.kind == "string":
                names.append(self._string().decode())
            else:
                start, end = self._range(least, most)
                ranges.add(start=start, end=end + exclusive)
            if not self._accept(","):
                break
        self._expect(";")

    # --- Enums and services -------------------------------------------------------------------------------------------

    def _enum(self, enum: EnumDescriptorProto) -> None:
        self._next()
        enum.name = self._name()
        self._expect("{")
        while not self._accept("}"):
            if self._accept(";"):
                continue
            if self._at("option"):
                self._option_statement(enum.options)
            elif self._at("reserved"):
                self._reserved(enum.reserved_range, enum.reserved_name, -_MAX_INT32 - 1, _MAX_INT32, exclusive=0)
            else:
                value = enum.value.add(name=self._name())
                self._expect("=")
                value.number = self._integer(-_MAX_INT32 - 1, _MAX_INT32)
                self._bracketed(value.options, None)
                self._expect(";")
        self._check_enum(enum)

    def _check_enum(self, enum: EnumDescriptorProto) -> None:
        numbers = [value.number for value in enum.value]
        if not numbers:
            raise self._invalid(f"the enum {enum.name} has no values")
        if self._proto3 and numbers[0] != 0:
            raise self._invalid(f"the first value of the proto3 enum {enum.name} is not 0")
        if len(set(numbers)) < len(numbers) and not enum.options.allow_alias:
            raise self._invalid(f"two values of the enum {enum.name} have one number, without allow_alias")
        for value in enum.value:
            if value.name in enum.reserved_name or any(
                each.start <= value.number <= each.end for each in enum.reserved_range
            ):
                raise self._invalid(f"the value {value.name} of the enum {enum.name} is reserved")

    def _service(self, service: ServiceDescriptorProto) -> None:
        self._next()
        service.name = self._name()
        self._expect("{")
        while not self._accept("}"):
            if self._at("option"):
                self._option_statement(service.options)
            elif not self._accept(";"):
                self._method(service.method.add())

    def _method(self, method: MethodDescriptorProto) -> None:
        self._expect("rpc")
        method.name = self._name()
        method.input_type, streams = self._method_type()
        if streams:
            method.client_streaming = True
        self._expect("returns")
        method.output_type, streams = self._method_type()
        if streams:
            method.server_streaming = True
        if not self._accept("{"):
            self._expect(";")
            return
        method.options.SetInParent()
        while not self._accept("}"):
            if not self._accept(";"):
                self._option_statement(method.options)

    def _method_type(self) -> tuple[str, bool]:
        self._expect("(")
        streams = self._accept("stream")
        name = self._full_name()
        self._expect(")")
        return name, streams

    # --- Options ------------------------------------------------------------------------------------------------------

    def _option_statement(self, options: Any) -> None:
        self._expect("option")
        self._option(options, None)
        self._expect(";")

    def _bracketed(self, options: Any, field: FieldDescriptorProto | None) -> None:
        """``[name = value, …]`` where there is one."""
        if not self._accept("["):
            return
        while True:
            self._option(options, field)
            if not self._accept(","):
                break
        self._expect("]")

    def _option(self, options: Any, field: FieldDescriptorProto | None) -> None:
        name = self._option_name()
        self._expect("=")
        if field is not None and name == "default":
            self._default(field)
        elif field is not None and name == "json_name":
            field.json_name = self._string().decode()
        else:
            known = options.DESCRIPTOR.fields_by_name.get(name)
            if known is not None and known.GetOptions().retention == FieldOptions.RETENTION_SOURCE:
                self._skip_value()  # protoc, too, leaves out what only counts in the text
                return
            options.SetInParent()
            if known is None or name == "uninterpreted_option":
                self._skip_value()
            else:
                self._known_option(options, known)

    def _option_name(self) -> str:
        """The name; empty for one of several parts, which is an extension's or within one."""
        parts = []
        while True:
            if self._accept("("):
                self._full_name()
                self._expect(")")
                parts += ["", ""]
            else:
                parts.append(self._name())
            if not self._accept("."):
                return parts[0] if len(parts) == 1 else ""

    def _known_option(self, options: Any, known: Any) -> None:
        if known.message_type is not None:
            value = known.message_type._concrete_class()
            text_format.Parse(self._skip_value()[1:-1], value)
        elif known.enum_type is not None:
            name = self._name()
            if name not in known.enum_type.values_by_name:
                raise self._invalid(f"the option {known.name} has no value {name[:40]}")
            value = known.enum_type.values_by_name[name].number
        elif known.type == known.TYPE_STRING:
            value = self._string().decode()
        elif known.type == known.TYPE_BOOL:
            value = self._boolean()
        else:
            value = self._integer(-(1 << 63), (1 << 64) - 1)
        current = getattr(options, known.name)
        if hasattr(current, "append"):
            current.append(value)
        elif known.message_type is not None:
            current.CopyFrom(value)
        elif options.HasField(known.name):
            raise self._invalid(f"the option {known.name} is set twice")
        else:
            setattr(options, known.name, value)

    def _skip_value(self) -> str:
        """The text of a value whose type is not known here."""
        start = self._token.start
        if not self._at("{"):
            self._accept("-")
            if self._token.kind in ("symbol", "end"):
                raise self._error("a value is expected")
            if self._token.kind == "string":
                self._string()
                return ""
            self._next()
            return ""
        depth, end = 0, start
        while depth or end == start:
            token = self._next()
            if token.kind == "end":
                raise self._error("'}' is expected")
            depth += (token.kind == "symbol") * ((token.text == "{") - (token.text == "}"))
            end = token.end
        return self._text[start:end]

    def _boolean(self) -> bool:
        text = self._name()
        if text not in ("true", "false"):
            raise self._invalid(f"true or false is expected, found {text[:40]!r}")
        return text == "true"

    def _default(self, field: FieldDescriptorProto) -> None:
        if self._proto3 or field.label == _LABELS["repeated"]:
            raise self._invalid("a field of proto3 and a repeated field have no default")
        if field.HasField("default_value"):
            raise self._invalid("a field has one default")
        if not field.HasField("type"):  # of an enum, or it is refused when the type's name is resolved
            text = self._name()
        elif field.type in _INTEGER_RANGES:
            text = str(self._integer(*_INTEGER_RANGES[field.type]))
        elif field.type in (FieldDescriptorProto.TYPE_DOUBLE, FieldDescriptorProto.TYPE_FLOAT):
            text = _float_text(self._float(), is_float=field.type == FieldDescriptorProto.TYPE_FLOAT)
        elif field.type == FieldDescriptorProto.TYPE_BOOL:
            text = "true" if self._boolean() else "false"
        elif field.type == FieldDescriptorProto.TYPE_STRING:
            text = self._string().decode()
        elif field.type == FieldDescriptorProto.TYPE_BYTES:
            text = escaped(self._string())
        else:
            raise self._invalid("a message has no default")
        field.default_value = text

    def _float(self) -> float:
        sign = -1.0 if self._accept("-") else 1.0
        token = self._next()
        if token.kind == "float" or token.text in ("inf", "nan"):
            return sign * float(token.text)
        if token.kind == "integer" and len(token.text) <= 400:
            return sign * float(int(token.text, 16) if token.text[:2] in ("0x", "0X") else int(token.text))
        raise self._error("a number is expected")


def _set_type(field: FieldDescriptorProto, type_name: str) -> None:
    if type_name in _SCALARS:
        field.type = _SCALARS[type_name]
    else:
        field.type_name = type_name


def _float_text(number: float, *, is_float: bool) -> str:
    """A default as protoc keeps it: the fewest digits of two precisions that give the number again."""
    if math.isinf(number) or math.isnan(number):
        return "nan" if math.isnan(number) else "-inf" if number < 0 else "inf"
    if not is_float:
        text = f"{number:.15g}"
        return text if float(text) == number else f"{number:.17g}"
    try:
        (number,) = struct.unpack("<f", struct.pack("<f", number))
    except OverflowError:
        return "-inf" if number < 0 else "inf"
    text = f"{number:.6g}"
    return text if struct.pack("<f", float(text)) == struct.pack("<f", number) else f"{number:.9g}"


def json_name(name: str) -> str:
    """A field's name in JSON: without underscores, the letter after each a capital."""
    first, *more = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in more)


def map_entry_name(name: str) -> str:
    """The name of the message that a map field's entries are."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_")) + "Entry"
