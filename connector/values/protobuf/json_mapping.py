"""Messages as Protobuf's JSON mapping has them (https://protobuf.dev/programming-guides/json/), under the fields' own names.

As the library's MessageToDict, but for a limit of memory.
"""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pykafka_wire.errors import DecodeError
from pykafka_wire.values.protobuf.input_limits import Budget, MessageLayout, layout_of
from pykafka_wire.values.protobuf.map_entries import pairs

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import Message

#: The full names of the types that are not written field by field.
WELL_KNOWN: Final = frozenset(
    f"google.protobuf.{name}" for name in ("Any", "Duration", "FieldMask", "ListValue", "Struct", "Timestamp", "Value")
)
#: Estimates: a dict, its entry with its text, an item of an array with its text.
_MESSAGE_BYTES: Final = 100
_ENTRY_BYTES: Final = 200
_ITEM_BYTES: Final = 100

#: Fields, by the full name of their message and their number.
Fields = frozenset[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class FieldRules:
    """What a descriptor does not say of its fields.

    Attributes:
        always_set: fields that are their default, and not null, where they are not set.
        unread: fields that no value has, though messages have them.
    """

    always_set: Fields = frozenset()
    unread: Fields = frozenset()


NO_RULES: Final = FieldRules()


def is_map(field: FieldDescriptor) -> bool:
    return bool(
        field.message_type is not None and field.message_type.has_options and field.message_type.GetOptions().map_entry
    )


def is_wrapper(descriptor: Descriptor) -> bool:
    return bool(descriptor.file.name == "google/protobuf/wrappers.proto")


class JsonMapping:
    """The mapping for the messages of one pool of descriptors, which are kept as they are met.

    Args:
        entries: the full names of the messages that are entries of maps, whose fields are lists in this pool.
    """

    def __init__(
        self, pool: DescriptorPool, entries: frozenset[str] = frozenset(), rules: FieldRules = NO_RULES
    ) -> None:
        self._pool = pool
        self._entries = entries
        self._rules = rules
        self._defaults: dict[str, tuple[dict[str, Any], int]] = {}
        self._layouts: dict[str, MessageLayout] = {}

    def message(self, message: Message, budget: Budget) -> Any:
        """Return a message as JSON's values. Raises DecodeError where the budget is spent, and what the library raises for
        values that have no mapping."""
        descriptor = message.DESCRIPTOR
        if is_wrapper(descriptor):
            return self.scalar(descriptor.fields_by_name["value"], message.value)
        if descriptor.full_name not in WELL_KNOWN:
            return self._regular(message, budget)
        if descriptor.name == "Any":
            return self._any(message, budget)
        if descriptor.name in ("Duration", "FieldMask", "Timestamp"):
            return message.ToJsonString()
        return self._json_value(message, budget)

    def field(self, field: FieldDescriptor, value: Any, budget: Budget) -> Any:
        """Return the value of a field, of any kind."""
        if self._is_map(field):
            inner = field.message_type.fields_by_name["value"]
            budget.spend(_ENTRY_BYTES * len(value))
            return {map_key(key): self._single(inner, item, budget) for key, item in pairs(value).items()}
        if field.is_repeated:
            budget.spend(_ITEM_BYTES * len(value))
            return [self._single(field, item, budget) for item in value]
        return self._single(field, value, budget)

    def scalar(self, field: FieldDescriptor, value: Any) -> Any:
        kind = field.cpp_type
        if kind == field.CPPTYPE_ENUM:
            if field.enum_type.full_name == "google.protobuf.NullValue":
                return None
            symbol = field.enum_type.values_by_number.get(value)
            return value if symbol is None else symbol.name
        if kind == field.CPPTYPE_STRING:
            if field.type == field.TYPE_BYTES:
                return base64.b64encode(value).decode()
            if isinstance(value, bytes):
                raise DecodeError(f"a text in its field {field.full_name} is not UTF-8")
            return value
        if kind in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64):
            return str(value)
        if kind in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
            if not math.isfinite(value):
                return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
            return shortest(value) if kind == field.CPPTYPE_FLOAT else value
        return value

    def _single(self, field: FieldDescriptor, value: Any, budget: Budget) -> Any:
        return self.scalar(field, value) if field.message_type is None else self.message(value, budget)

    def _is_map(self, field: FieldDescriptor) -> bool:
        return field.message_type is not None and field.message_type.full_name in self._entries

    def _json_value(self, message: Message, budget: Budget) -> Any:
        """Return JSON as ``google.protobuf.Struct``, ``Value`` and ``ListValue`` hold it."""
        if message.DESCRIPTOR.name == "Struct":
            return self.field(message.DESCRIPTOR.fields_by_name["fields"], message.fields, budget)
        if message.DESCRIPTOR.name == "ListValue":
            return self.field(message.DESCRIPTOR.fields_by_name["values"], message.values, budget)
        kind = message.WhichOneof("kind")
        if kind is None:
            return None
        member = getattr(message, kind)
        if kind == "number_value" and not math.isfinite(member):
            raise DecodeError("a google.protobuf.Value is a number that JSON does not have")
        return self._single(message.DESCRIPTOR.fields_by_name[kind], member, budget)

    def _regular(self, message: Message, budget: Budget) -> dict[str, Any]:
        defaults, size = self._defaults_of(message.DESCRIPTOR)
        fields = type(message).ListFields(message)
        budget.spend(size + _ENTRY_BYTES * len(fields))
        mapped = {
            f"[{field.full_name}]" if field.is_extension else field.name: self.field(field, value, budget)
            for field, value in fields
            if not self._rules.unread or (message.DESCRIPTOR.full_name, field.number) not in self._rules.unread
        }
        for name, value in defaults.items():
            if name not in mapped:
                mapped[name] = value
        return mapped

    def _defaults_of(self, descriptor: Descriptor) -> tuple[dict[str, Any], int]:
        """Return the values of fields without presence that are not set, and an estimate of what they take."""
        known = self._defaults.get(descriptor.full_name)
        if known is None:
            mapped = {
                field.name: {}
                if self._is_map(field)
                else []
                if field.is_repeated
                else self.scalar(field, field.default_value)
                for field in descriptor.fields
                if not field.has_presence or (descriptor.full_name, field.number) in self._rules.always_set
            }
            size = _MESSAGE_BYTES + sum(_ENTRY_BYTES + 3 * len(name) for name in mapped)
            known = self._defaults[descriptor.full_name] = (mapped, size)
        return known

    def _any(self, message: Message, budget: Budget) -> Any:
        if not type(message).ListFields(message):
            return {}
        from google.protobuf.message_factory import GetMessageClass

        url, content = message.type_url, message.value
        budget.spend(2 * len(content))  # a copy, and what is parsed
        try:
            descriptor = self._pool.FindMessageTypeByName(url.split("/")[-1])
        except KeyError as error:
            raise TypeError(url) from error
        layout = self._layouts.get(descriptor.full_name)
        if layout is None:
            layout = self._layouts[descriptor.full_name] = layout_of(descriptor)
        layout.reserve(content, budget)
        inner = GetMessageClass(descriptor).FromString(content)
        if is_wrapper(descriptor) or descriptor.full_name in WELL_KNOWN:
            return {"@type": url, "value": self.message(inner, budget)}
        return {"@type": url, **self._regular(inner, budget)}


def map_key(key: Any) -> str:
    """Return a map's key as the text that it is in JSON."""
    return ("true" if key else "false") if isinstance(key, bool) else str(key)


def shortest(value: float) -> float:
    """Return the number with the fewest digits that is the same float of 32 bits."""
    from google.protobuf.internal.type_checkers import ToShortestFloat

    shortest: float = ToShortestFloat(value)
    return shortest
