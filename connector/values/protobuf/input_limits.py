"""How much memory a few bytes of Protobuf may take.

An empty message is two bytes, and stands for the defaults of all its fields: the library makes room for each of them when it
parses, and a column has a place for each. So memory is estimated before it is taken, and a value beyond the limit is not read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pykafka_wire.errors import DecodeError

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

#: With the second, a megabyte of the smallest messages that tell something (four bytes, one field) is within the limit.
FREE_BYTES: Final = 32 << 20
FREE_PER_BYTE: Final = 32
#: What parsing may take without a look at the messages within.
_UNCOUNTED_BYTES: Final = 8 << 20
#: upb's: a message beside its fields with its place in an array that grows, a text's start and size, any other field.
_MESSAGE_BYTES: Final = 48
_TEXT_BYTES: Final = 16
_FIELD_BYTES: Final = 8
#: Parsers refuse more (https://protobuf.dev/programming-guides/proto-limits/).
_MAX_DEPTH: Final = 100

_VARINT, _FIXED64, _LENGTH, _GROUP, _END_GROUP, _FIXED32 = range(6)


class Budget:
    """The bytes of memory that one value may still take."""

    __slots__ = ("left",)

    def __init__(self, size: int) -> None:
        self.left = FREE_BYTES + FREE_PER_BYTE * size

    def spend(self, size: int) -> None:
        """Raise DecodeError where less than ``size`` is left."""
        self.left -= size
        if self.left < 0:
            raise DecodeError(
                f"its messages have too many fields for its size: more than {FREE_BYTES >> 20} MiB and {FREE_PER_BYTE} bytes "
                "of memory for each of its own"
            )


class MessageLayout:
    """What the library takes for a message of one type, and which of its fields hold messages.

    Attributes:
        size: bytes of an empty message.
        inner: the layouts of messages within, by their field's tag; a group's is that of its start.
        largest_inner: ``size`` of the largest message at any depth within; 0 where there are none.
    """

    __slots__ = ("inner", "largest_inner", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.inner: dict[int, MessageLayout] = {}
        self.largest_inner = 0

    def reserve(self, data: bytes, budget: Budget) -> None:
        """Spend what parsing ``data`` takes.

        Raises:
            DecodeError: it takes too much, or the data is not Protobuf.
        """
        # A message within takes two bytes at least.
        max_bytes = len(data) // 2 * self.largest_inner
        budget.spend(
            self.size + (max_bytes if max_bytes <= _UNCOUNTED_BYTES else _messages_size(data, self, budget.left))
        )


def layout_of(descriptor: Descriptor) -> MessageLayout:
    """Return the layout of a message type and of all that it holds."""
    known: dict[str, MessageLayout] = {}
    waiting = [descriptor]
    edges: list[tuple[MessageLayout, int, str, bool]] = []
    while waiting:
        inner_descriptor = waiting.pop()
        if inner_descriptor.full_name in known:
            continue
        fields = [*inner_descriptor.fields, *inner_descriptor.file.pool.FindAllExtensions(inner_descriptor)]
        n_texts = sum(field.cpp_type == field.CPPTYPE_STRING for field in fields)
        layout = MessageLayout(_MESSAGE_BYTES + n_texts * _TEXT_BYTES + (len(fields) - n_texts) * _FIELD_BYTES)
        known[inner_descriptor.full_name] = layout
        for field in fields:
            if field.message_type is not None:
                wire_type = _GROUP if field.type == field.TYPE_GROUP else _LENGTH
                is_of_entry = inner_descriptor.has_options and inner_descriptor.GetOptions().map_entry
                edges.append((layout, field.number << 3 | wire_type, field.message_type.full_name, is_of_entry))
                waiting.append(field.message_type)
    sizes = {name: layout.size for name, layout in known.items()}
    for layout, tag, name, is_of_entry in edges:
        layout.inner[tag] = known[name]
        if is_of_entry:  # the library makes the value of an entry, whether it is given or not
            layout.size += sizes[name]
            layout.inner[tag] = MessageLayout(0)
            layout.inner[tag].inner = known[name].inner
    root = known[descriptor.full_name]
    if root.inner:
        # Of all types, since most types that are found at all are found at any depth.
        root.largest_inner = max(layout.size for layout in known.values())
    return root


def _messages_size(data: bytes, layout: MessageLayout, max_bytes: int) -> int:
    """Return what the messages within ``data`` take; at least ``max_bytes`` + 1 where it is more than that."""
    try:
        return _walk(data, layout, max_bytes)
    except IndexError as error:
        raise DecodeError("it is shorter than its schema says") from error


def _walk(data: bytes, layout: MessageLayout, max_bytes: int) -> int:  # noqa: C901, PLR0915
    size = position = 0
    end, in_group = len(data), False
    inner = layout.inner
    nothing: dict[int, MessageLayout] = {}
    around: list[tuple[int, bool, dict[int, MessageLayout]]] = []
    while True:
        if position >= end:
            if position > end or in_group:
                raise IndexError
            if not around:
                return size
            end, in_group, inner = around.pop()
            continue
        tag = data[position]
        position += 1
        if tag > 0x7F:
            tag, position = _varint(data, position - 1)
        kind = tag & 7
        if kind == _LENGTH:
            length = data[position]
            position += 1
            if length > 0x7F:
                length, position = _varint(data, position - 1)
            layout_of_field = inner.get(tag)
            if layout_of_field is None:
                position += length
                continue
            if position + length > end:
                raise IndexError
            around.append((end, in_group, inner))
            end, in_group, inner = position + length, False, layout_of_field.inner
            size += layout_of_field.size
        elif kind == _VARINT:
            while data[position] > 0x7F:
                position += 1
            position += 1
        elif kind == _FIXED64:
            position += 8
        elif kind == _FIXED32:
            position += 4
        elif kind == _GROUP:
            layout_of_field = inner.get(tag)
            around.append((end, in_group, inner))
            in_group, inner = True, nothing if layout_of_field is None else layout_of_field.inner
            size += 0 if layout_of_field is None else layout_of_field.size
        elif kind == _END_GROUP and in_group:
            _, in_group, inner = around.pop()
        else:
            raise DecodeError("it is not Protobuf: a field of no known kind")
        if len(around) > _MAX_DEPTH:
            raise DecodeError(f"its messages are nested more than {_MAX_DEPTH} deep")
        if size > max_bytes:
            return size


def _varint(data: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7
        if shift > 63:
            raise DecodeError("an integer of more than ten bytes")
