"""Options of a .proto file's parts: those that Protobuf knows, into their descriptors; custom ones are read and left out."""

from __future__ import annotations

import math
import struct
from typing import Any, Final

from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FieldOptions
from google.protobuf.message_factory import GetMessageClass

from pykafka_wire.values.protobuf.tokens import TokenReader, escaped

SCALARS: Final = {
    name: getattr(FieldDescriptorProto, f"TYPE_{name.upper()}")
    for name in (
        *("double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "bytes", "uint32"),
        *("sfixed32", "sfixed64", "sint32", "sint64"),
    )
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

    def statement(self, options: Any) -> None:
        """``option name = value;``"""
        self._tokens.expect("option")
        self._option(options, None, False)
        self._tokens.expect(";")

    def bracketed(self, options: Any, field: FieldDescriptorProto | None = None, *, is_proto3: bool = False) -> None:
        """``[name = value, …]`` where there is one."""
        if not self._tokens.accept("["):
            return
        while True:
            self._option(options, field, is_proto3)
            if not self._tokens.accept(","):
                break
        self._tokens.expect("]")

    def _option(self, options: Any, field: FieldDescriptorProto | None, is_proto3: bool) -> None:
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
        """The name; empty for one of several parts, which is an extension's or within one."""
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

    def _known_option(self, options: Any, known: Any) -> None:
        if known.message_type is not None:
            value = GetMessageClass(known.message_type)()
            text_format.Parse(self._skip_value()[1:-1], value)
        elif known.enum_type is not None:
            name = self._tokens.name()
            if name not in known.enum_type.values_by_name:
                raise self._tokens.invalid(f"the option {known.name} has no value {name[:40]}")
            value = known.enum_type.values_by_name[name].number
        elif known.type == known.TYPE_STRING:
            value = self._tokens.string().decode()
        elif known.type == known.TYPE_BOOL:
            value = self._boolean()
        else:
            value = self._tokens.integer(-(1 << 63), (1 << 64) - 1)
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
        """The text of a value whose type is not known here."""
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

    def _boolean(self) -> bool:
        text = self._tokens.name()
        if text not in ("true", "false"):
            raise self._tokens.invalid(f"true or false is expected, found {text[:40]!r}")
        return text == "true"

    def _default(self, field: FieldDescriptorProto, is_proto3: bool) -> None:
        if is_proto3 or field.label == FieldDescriptorProto.LABEL_REPEATED:
            raise self._tokens.invalid("a field of proto3 and a repeated field have no default")
        if field.HasField("default_value"):
            raise self._tokens.invalid("a field has one default")
        if not field.HasField("type"):  # of an enum, or it is refused when the type's name is resolved
            text = self._tokens.name()
        elif field.type in _INTEGER_RANGES:
            text = str(self._tokens.integer(*_INTEGER_RANGES[field.type]))
        elif field.type in (FieldDescriptorProto.TYPE_DOUBLE, FieldDescriptorProto.TYPE_FLOAT):
            text = _float_text(self._float(), is_float=field.type == FieldDescriptorProto.TYPE_FLOAT)
        elif field.type == FieldDescriptorProto.TYPE_BOOL:
            text = "true" if self._boolean() else "false"
        elif field.type == FieldDescriptorProto.TYPE_STRING:
            text = self._tokens.string().decode()
        elif field.type == FieldDescriptorProto.TYPE_BYTES:
            text = escaped(self._tokens.string())
        else:
            raise self._tokens.invalid("a message has no default")
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
