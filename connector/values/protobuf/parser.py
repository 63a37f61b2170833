"""A .proto file's text to its descriptor, as protoc makes it, without a file or another program.

Registries keep Protobuf schemas as text, and no Python library turns text into descriptors in memory: protoc reads files, under
names that would be the registry's. Type names stay as they are written; :mod:`~pykafka_wire.values.protobuf.linker` resolves them.

Two things differ from protoc: custom options are left out of the descriptor, since they change nothing on the wire, and rules
that change nothing on the wire either (names that differ only in JSON, unused imports) are not enforced.
Editions are not supported.
https://protobuf.dev/reference/protobuf/proto2-spec/, https://protobuf.dev/reference/protobuf/proto3-spec/
"""

from __future__ import annotations

import math
import re
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from google.protobuf import text_encoding, text_format
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FieldOptions,
    FileDescriptorProto,
    MethodDescriptorProto,
)
from google.protobuf.message_factory import GetMessageClass

if TYPE_CHECKING:
    from google.protobuf.message import Message

Kind = Literal["name", "integer", "float", "string", "symbol", "end"]

_TOKEN: Final = re.compile(
    r"""(?P<space>[ \t\r\n\f\v\ufeff]+|//[^\n]*|/\*.*?\*/)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<float>(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)
    |(?P<integer>0[xX][0-9a-fA-F]+|[0-9]+)
    |(?P<string>"(?:[^"\\\n]|\\[^\n])*"|'(?:[^'\\\n]|\\[^\n])*')
    |(?P<symbol>[{}\[\]()<>=;,.:+/-])""",
    re.DOTALL | re.VERBOSE,
)
_ESCAPE: Final = re.compile(
    rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL
)
_PLAIN_ESCAPES: Final = {
    b"a": b"\a",
    b"b": b"\b",
    b"f": b"\f",
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
    b"v": b"\v",
    b"?": b"?",
    b"\\": b"\\",
    b"'": b"'",
    b'"': b'"',
}


class InvalidProtoError(ValueError):
    """Text that is not a .proto file of proto2 or proto3."""


@dataclass(frozen=True, slots=True)
class ProtoToken:
    """One token; ``start`` and ``end`` are its bounds in the text."""

    kind: Kind
    text: str
    start: int
    end: int


def tokens(text: str) -> Iterator[ProtoToken]:
    """Yield each token in turn, lazily; the last one has the kind ``end``.

    Raises:
        InvalidProtoError: a character that begins no token, a string or a comment without an end.
    """
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        # A comment without an end does not match the pattern of comments, and its slash would be a symbol.
        if match is None or (match.group() == "/" and text.startswith("/*", position)):
            raise InvalidProtoError(
                f"line {line_of(text, position)}: {text[position : position + 1]!r} begins no token"
            )
        kind, start, position = match.lastgroup, position, match.end()
        if kind != "space":
            yield ProtoToken(kind, match.group(), start, position)  # type: ignore[arg-type]  # the groups are the kinds
    yield ProtoToken("end", "", position, position)


class TokenReader:
    """The tokens of a text in turn: what stands there, and what must; one token ahead, never back.

    Attributes:
        token: the next one.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens(text)
        self.token = next(self._tokens)

    def text(self, start: int, end: int) -> str:
        return self._text[start:end]

    def line(self) -> int:
        return line_of(self._text, self.token.start)

    def error(self, expected: str) -> InvalidProtoError:
        return InvalidProtoError(f"line {self.line()}: {expected}, found {self.token.text[:40]!r}")

    def invalid(self, reason: str) -> InvalidProtoError:
        return InvalidProtoError(f"line {self.line()}: {reason}")

    def next(self) -> ProtoToken:
        token = self.token
        if token.kind != "end":
            self.token = next(self._tokens)
        return token

    def at(self, text: str) -> bool:
        return self.token.text == text and self.token.kind != "string"

    def accept(self, text: str) -> bool:
        if not self.at(text):
            return False
        self.next()
        return True

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise self.error(f"{text!r} is expected")

    def read_list(self) -> Iterator[None]:
        """Yield once for each part of a list, whose parts have commas between them."""
        yield
        while self.accept(","):
            yield

    def name(self) -> str:
        if self.token.kind != "name":
            raise self.error("a name is expected")
        return self.next().text

    def full_name(self) -> str:
        """Read names with points between them, and perhaps before them."""
        parts = [""] if self.accept(".") else []
        parts.append(self.name())
        while self.accept("."):
            parts.append(self.name())
        return ".".join(parts)

    def string(self) -> bytes:
        """Read a string; strings that stand side by side are one."""
        parts = []
        while self.token.kind == "string":
            parts.append(unquote(self.next()))
        if not parts:
            raise self.error("a string is expected")
        return b"".join(parts)

    def integer(self, lowest: int, highest: int) -> int:
        negative = self.accept("-")
        if self.token.kind != "integer":
            raise self.error("an integer is expected")
        text = self.token.text
        if len(text) > 25:  # longer than any that fits 64 bits, in each notation
            raise self.error(f"an integer from {lowest} to {highest} is expected")
        try:
            number = int(text, 16 if text[:2] in ("0x", "0X") else 8 if text[0] == "0" else 10)
        except ValueError:
            raise self.error("an integer is expected") from None
        number = -number if negative else number
        if not lowest <= number <= highest:
            raise self.error(f"an integer from {lowest} to {highest} is expected")
        self.next()
        return number


def line_of(text: str, position: int) -> int:
    """Return the number of the line of a position, from 1."""
    return text.count("\n", 0, position) + 1


def unquote(token: ProtoToken) -> bytes:
    """Return what a string token stands for. Bytes, as escapes may make what is no UTF-8.

    Raises:
        InvalidProtoError: an escape that does not exist.
    """
    return _ESCAPE.sub(_unescape, token.text[1:-1].encode())


def _unescape(match: re.Match[bytes]) -> bytes:
    octal, hexadecimal, short, long, plain = match.groups()
    try:
        if octal:
            return bytes([int(octal, 8)])
        if hexadecimal:
            return bytes([int(hexadecimal, 16)])
        if short or long:
            return chr(int(short or long, 16)).encode()
        return _PLAIN_ESCAPES[plain]
    except (KeyError, ValueError, OverflowError):
        raise InvalidProtoError(f"{match.group().decode('utf-8', 'replace')} is not an escape of a string") from None


SCALARS: Final = {
    name.removeprefix("TYPE_").lower(): kind
    for name, kind in FieldDescriptorProto.Type.items()
    if name not in ("TYPE_ENUM", "TYPE_GROUP", "TYPE_MESSAGE")
}
_INTEGER_BITS: Final = {
    "int32": (-(1 << 31), (1 << 31) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
    "uint32": (0, (1 << 32) - 1),
    "uint64": (0, (1 << 64) - 1),
}
_INTEGER_RANGES: Final = {
    SCALARS[name]: _INTEGER_BITS[name.replace("sfixed", "int").replace("sint", "int").replace("fixed", "uint")]
    for name in SCALARS
    if "int" in name or "fixed" in name
}


class OptionReader:
    """Reads options, and the defaults of fields, which are written as options."""

    def __init__(self, tokens: TokenReader) -> None:
        self._tokens = tokens

    def statement(self, options: Message) -> None:
        """Read ``option name = value;``"""
        self._tokens.expect("option")
        self._option(options, None, False)
        self._tokens.expect(";")

    def read_brackets(
        self, options: Message, field: FieldDescriptorProto | None = None, *, is_proto3: bool = False
    ) -> None:
        """Read ``[name = value, …]`` where there is one."""
        if not self._tokens.accept("["):
            return
        for _ in self._tokens.read_list():
            self._option(options, field, is_proto3)
        self._tokens.expect("]")

    def _option(self, options: Message, field: FieldDescriptorProto | None, is_proto3: bool) -> None:
        name = self._option_name()
        self._tokens.expect("=")
        if field is not None and name == "default":
            self._default(field, is_proto3)
        elif field is not None and name == "json_name":
            field.json_name = self._tokens.string().decode()
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
        """Return the name; empty for one of several parts, which is an extension's or within one."""
        parts = []
        while True:
            if self._tokens.accept("("):
                self._tokens.full_name()
                self._tokens.expect(")")
                parts += ["", ""]
            else:
                parts.append(self._tokens.name())
            if not self._tokens.accept("."):
                return parts[0] if len(parts) == 1 else ""

    def _known_option(self, options: Message, known: Message) -> None:
        if known.message_type is not None:
            value = GetMessageClass(known.message_type)()
            text_format.Parse(self._skip_value()[1:-1], value)
        elif known.enum_type is not None:
            name = self._tokens.name()
            if name not in known.enum_type.values_by_name:
                raise self._tokens.invalid(f"the option {known.name} has no value {name[:40]}")
            value = known.enum_type.values_by_name[name].number
        else:
            value = self._scalar(known.type)
        current = getattr(options, known.name)
        if hasattr(current, "append"):
            current.append(value)
        elif known.message_type is not None:
            current.CopyFrom(value)
        elif options.HasField(known.name):
            raise self._tokens.invalid(f"the option {known.name} is set twice")
        else:
            setattr(options, known.name, value)

    def _skip_value(self) -> str:
        """Return the text of a value whose type is not known here."""
        start = self._tokens.token.start
        if not self._tokens.at("{"):
            self._tokens.accept("-")
            if self._tokens.token.kind in ("symbol", "end"):
                raise self._tokens.error("a value is expected")
            if self._tokens.token.kind == "string":
                self._tokens.string()
                return ""
            self._tokens.next()
            return ""
        depth, end = 0, start
        while depth or end == start:
            token = self._tokens.next()
            if token.kind == "end":
                raise self._tokens.error("'}' is expected")
            depth += (token.kind == "symbol") * ((token.text == "{") - (token.text == "}"))
            end = token.end
        return self._tokens.text(start, end)

    def _scalar(self, kind: int) -> Any:
        """Return an integer, a text or a boolean; a number with a point, and bytes, as the text that a default is kept as."""
        if kind == FieldDescriptorProto.TYPE_STRING:
            return self._tokens.string().decode()
        if kind == FieldDescriptorProto.TYPE_BYTES:
            return text_encoding.CEscape(self._tokens.string(), False)
        if kind == FieldDescriptorProto.TYPE_BOOL:
            text = self._tokens.name()
            if text not in ("true", "false"):
                raise self._tokens.invalid(f"true or false is expected, found {text[:40]!r}")
            return text == "true"
        if kind in _INTEGER_RANGES:
            return self._tokens.integer(*_INTEGER_RANGES[kind])
        return _float_text(self._float(), is_float=kind == FieldDescriptorProto.TYPE_FLOAT)

    def _default(self, field: FieldDescriptorProto, is_proto3: bool) -> None:
        if is_proto3 or field.label == FieldDescriptorProto.LABEL_REPEATED:
            raise self._tokens.invalid("a field of proto3 and a repeated field have no default")
        if field.HasField("default_value"):
            raise self._tokens.invalid("a field has one default")
        if not field.HasField("type"):  # of an enum, or it is refused when the type's name is resolved
            text = self._tokens.name()
        elif field.type == FieldDescriptorProto.TYPE_GROUP:
            raise self._tokens.invalid("a message has no default")
        else:
            value = self._scalar(field.type)
            text = str(value).lower() if isinstance(value, bool) else str(value)
        field.default_value = text

    def _float(self) -> float:
        sign = -1.0 if self._tokens.accept("-") else 1.0
        token = self._tokens.next()
        if token.kind == "float" or token.text in ("inf", "nan"):
            return sign * float(token.text)
        if token.kind == "integer" and len(token.text) <= 400:
            return sign * float(int(token.text, 16) if token.text[:2] in ("0x", "0X") else int(token.text))
        raise self._tokens.error("a number is expected")


def _float_text(number: float, *, is_float: bool) -> str:
    """Return a default as protoc keeps it: the fewest digits of two precisions that give the number again."""
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


#: protoc's own limit for messages in messages.
_MAX_DEPTH: Final = 32
_MAX_FIELD_NUMBER: Final = (1 << 29) - 1
_MAX_INT32: Final = (1 << 31) - 1
#: Field numbers that Protobuf's implementation keeps for itself.
_RESERVED_NUMBERS: Final = (19_000, 20_000)

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
    """Return the descriptor of a file's text, under the name given.

    Raises:
        InvalidProtoError: the text is not a .proto file, or one of an edition.
    """
    tokens = TokenReader(text)
    parser = _ProtoParser(name, tokens)
    try:
        parser.file()
    except InvalidProtoError:
        raise
    except (ValueError, TypeError, OverflowError) as error:  # what a descriptor's field does not take
        raise InvalidProtoError(f"line {tokens.line()}: {error}") from error
    return ParsedFile(parser.found, frozenset(parser.implied))


class _ProtoParser:
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
            if not self._tokens.accept(";"):
                self._statement()

    def _block(self, statement: Callable[[], None], options: Message = None) -> None:
        """Read statements between braces, of which those of options are read here."""
        self._tokens.expect("{")
        while not self._tokens.accept("}"):
            if options is not None and self._tokens.at("option"):
                self._options.statement(options)
            elif not self._tokens.accept(";"):
                statement()

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
        file = self.found
        if self._tokens.at("import"):
            self._import()
        elif self._tokens.accept("package"):
            if file.package:
                raise self._tokens.invalid("a file has one package")
            file.package = self._tokens.full_name()
            self._tokens.expect(";")
        elif self._tokens.at("option"):
            self._options.statement(file.options)
        elif self._tokens.accept("service"):
            service = file.service.add(name=self._tokens.name())
            self._block(lambda: self._method(service.method.add()), service.options)
        elif not self._type(file.message_type, file.enum_type, file.extension):
            raise self._tokens.error("a message, enum, service, extend, import, package or option is expected")

    def _type(self, messages: Any, enums: Any, extensions: Any) -> bool:
        """Return whether a message, an enum or extensions stood here, which have been read into these."""
        if self._tokens.accept("message"):
            self._message_body(messages.add(name=self._tokens.name()))
        elif self._tokens.accept("enum"):
            self._enum(enums.add(name=self._tokens.name()))
        elif self._tokens.accept("extend"):
            extendee = self._tokens.full_name()
            self._block(lambda: self._field(extensions.add(), messages, extendee=extendee))
        else:
            return False
        return True

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

    def _message_body(self, message: DescriptorProto) -> None:
        self._path.append(message.name)
        if len(self._path) > _MAX_DEPTH:
            raise self._tokens.invalid(f"messages are nested more than {_MAX_DEPTH} deep")
        self._block(lambda: self._message_statement(message), message.options)
        self._path.pop()
        for extension_range in message.extension_range:
            if message.options.message_set_wire_format and extension_range.end == _MAX_FIELD_NUMBER + 1:
                extension_range.end = _MAX_INT32
        self._add_synthetic_oneofs(message)
        members = [(field.name, field.number) for field in message.field]
        taken = [(bounds.start, bounds.end) for bounds in (*message.reserved_range, *message.extension_range)]
        self._check_reserved(message, members, [*taken, _RESERVED_NUMBERS])
        if message.extension_range and self._proto3:
            raise self._tokens.invalid("proto3 has no extension ranges")

    def _message_statement(self, message: DescriptorProto) -> None:
        if self._tokens.accept("extensions"):
            self._extension_ranges(message)
        elif self._tokens.accept("reserved"):
            self._read_reserved(message, 1, _MAX_FIELD_NUMBER, exclusive=1)
        elif self._tokens.accept("oneof"):
            self._oneof(message)
        elif not self._type(message.nested_type, message.enum_type, message.extension):
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
        self._options.read_brackets(field.options, field, is_proto3=self._proto3)

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
        """Add a repeated field of a message that is made for it, with the fields key and value."""
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
        index = len(message.oneof_decl)
        oneof = message.oneof_decl.add(name=self._tokens.name())

        def field() -> None:
            if self._tokens.token.text in _LABELS:
                raise self._tokens.invalid("a field in a oneof has no label")
            self._field(message.field.add(), message.nested_type, oneof=index)

        n_fields = len(message.field)
        self._block(field, oneof.options)
        if len(message.field) == n_fields:
            raise self._tokens.invalid("a oneof has at least one field")

    def _add_synthetic_oneofs(self, message: DescriptorProto) -> None:
        """Add a oneof for each ``optional`` of proto3, after those that are written."""
        taken = {field.name for field in message.field} | {oneof.name for oneof in message.oneof_decl}
        for field in message.field:
            if field.proto3_optional:
                name = field.name if field.name.startswith("_") else f"_{field.name}"
                while name in taken:
                    name = f"X{name}"
                taken.add(name)
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=name)

    def _check_reserved(self, owner: Any, members: list[tuple[str, int]], ranges: list[tuple[int, int]]) -> None:
        """Raise InvalidProtoError for a name or number that is reserved; the pool refuses a field's that is there twice.

        Args:
            ranges: their ends are exclusive.
        """
        is_reserved, names = _within(ranges), set(owner.reserved_name)
        for name, number in members:
            if name in names or is_reserved(number):
                raise self._tokens.invalid(f"{name} = {number} in {owner.name}: this name or number is reserved")

    def _extension_ranges(self, message: DescriptorProto) -> None:
        oneofs = []
        for _ in self._tokens.read_list():
            start, end = self._range(1, _MAX_FIELD_NUMBER)
            oneofs.append(message.extension_range.add(start=start, end=end + 1))
        if self._tokens.at("["):
            self._options.read_brackets(oneofs[0].options)
            for oneof in oneofs[1:]:
                oneof.options.CopyFrom(oneofs[0].options)
        self._tokens.expect(";")

    def _range(self, lowest: int, highest: int) -> tuple[int, int]:
        """Read a range, whose ends are both inclusive."""
        start = self._tokens.integer(lowest, highest)
        if not self._tokens.accept("to"):
            return start, start
        end = highest if self._tokens.accept("max") else self._tokens.integer(lowest, highest)
        if end < start:
            raise self._tokens.invalid("a range ends before it begins")
        return start, end

    def _read_reserved(self, owner: Any, lowest: int, highest: int, *, exclusive: int) -> None:
        for _ in self._tokens.read_list():
            if self._tokens.token.kind == "string":
                owner.reserved_name.append(self._tokens.string().decode())
            else:
                start, end = self._range(lowest, highest)
                owner.reserved_range.add(start=start, end=end + exclusive)
        self._tokens.expect(";")

    # --- Enums and services -------------------------------------------------------------------------------------------

    def _enum(self, enum: EnumDescriptorProto) -> None:
        def value() -> None:
            if self._tokens.accept("reserved"):
                self._read_reserved(enum, -_MAX_INT32 - 1, _MAX_INT32, exclusive=0)
                return
            value = enum.value.add(name=self._tokens.name())
            self._tokens.expect("=")
            value.number = self._tokens.integer(-_MAX_INT32 - 1, _MAX_INT32)
            self._options.read_brackets(value.options)
            self._tokens.expect(";")

        self._block(value, enum.options)
        members = [(value.name, value.number) for value in enum.value]
        if len({number for _, number in members}) < len(members) and not enum.options.allow_alias:
            raise self._tokens.invalid(f"two values of the enum {enum.name} have one number, without allow_alias")
        self._check_reserved(enum, members, [(bounds.start, bounds.end + 1) for bounds in enum.reserved_range])

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
        if self._tokens.accept(";"):
            return
        method.options.SetInParent()
        self._block(lambda: self._tokens.expect("option"), method.options)

    def _method_type(self) -> tuple[str, bool]:
        self._tokens.expect("(")
        streams = self._tokens.accept("stream")
        name = self._tokens.full_name()
        self._tokens.expect(")")
        return name, streams


def _within(ranges: list[tuple[int, int]]) -> Callable[[int], bool]:
    """Return whether a number is in one of the ranges, whose ends are exclusive, without a look at each of them."""
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
    """Return a field's name in JSON: without underscores, the letter after each a capital."""
    first, *more = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in more)


def map_entry_name(name: str) -> str:
    """Return the name of the message that a map field's entries are."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_")) + "Entry"
