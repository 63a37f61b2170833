"""Reads the Protobuf messages of one type: in columns as far as that goes, else one by one.

One by one, google.protobuf parses and the fields that are wanted are converted. That is the reference for what is read in columns.

The library's maps are in an order that differs from process to process, and a replay must give the same rows. So what has maps is
parsed twice: by its own type, which decides whether it is valid, and by one with lists of entries, in the order of the bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from pykafka_wire.errors import ENVIRONMENT_ERRORS, DecodeError
from pykafka_wire.values.bulk.arrays import Flags
from pykafka_wire.values.bulk.reading import Payloads, leave_all
from pykafka_wire.values.protobuf.column_reader import Messages, column_plan, read_messages
from pykafka_wire.values.protobuf.conversion import MessageConversion, message_conversion
from pykafka_wire.values.protobuf.input_limits import Budget, MessageLayout, layout_of
from pykafka_wire.values.protobuf.json_mapping import NO_RULES, FieldRules, is_map
from pykafka_wire.values.protobuf.map_entries import files_of, without_maps

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
    from google.protobuf.message import Message

#: Of required fields that are missing.
_MAX_NAMED: Final = 10
#: Two calls for each, of 1,000 that Python's recursion has.
_MAX_CHAIN: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageReader:
    """Reads the messages of one type into one Arrow type.

    Attributes:
        plan: reads them in columns; None if none can be read so.
        parse: the message by its own type.
        parse_lists: the message with lists of entries in place of maps; None where no message has maps.
    """

    column_type: pa.DataType
    plan: Messages | None
    parse: Callable[[bytes], Any]
    parse_lists: Callable[[bytes], Any] | None
    layout: MessageLayout
    convert: MessageConversion
    has_proto2: bool

    def read_column(self, payloads: Payloads) -> tuple[pa.Array, Flags]:
        """Return ``(pa.Array, bool[n])``: the values, and the rows that are left to :meth:`read_one`."""
        if self.plan is None:
            return leave_all(payloads, self.column_type)
        return read_messages(payloads, self.plan)

    def read_one(self, content: bytes) -> Any:
        """Read one message. Raises DecodeError."""
        budget = Budget(len(content))
        try:
            self.layout.reserve(content, budget)
            message = self.parse(content)
            if self.has_proto2:
                if not message.IsInitialized():
                    missing = ", ".join(islice(_missing_fields(message), _MAX_NAMED))
                    raise DecodeError(f"required fields are missing: {missing}")
                if not content.isascii():
                    _check_texts(message)
            if self.parse_lists is not None:
                del message
                message = self.parse_lists(content)
            return self.convert(message, budget)
        except (DecodeError, *ENVIRONMENT_ERRORS):
            raise
        except (
            Exception
        ) as error:  # the library's DecodeError, an Any of a type that the schema lacks, a time out of range
            raise DecodeError(f"it is not what its schema says ({type(error).__name__})") from error


def message_reader(descriptor: Descriptor, wanted: pa.DataType, rules: FieldRules = NO_RULES) -> MessageReader:
    """Return what reads messages of a descriptor as ``wanted``.

    Args:
        rules: those of a merged message.

    Raises:
        DecodeError: the library cannot make a class of the message.
    """
    from google.protobuf.message_factory import GetMessageClass

    _check_chain(descriptor)
    lists = without_maps(descriptor.file)
    return MessageReader(
        column_type=wanted,
        plan=column_plan(descriptor, wanted, rules),
        parse=GetMessageClass(descriptor).FromString,
        parse_lists=None if lists is None else lists.message_class(descriptor).FromString,
        layout=layout_of(descriptor),
        convert=message_conversion(descriptor, wanted, lists, rules),
        has_proto2=_has_proto2(descriptor.file),
    )


def _check_chain(descriptor: Descriptor) -> None:
    """Raise DecodeError where a chain of messages, each a field of the one before, is too long for the library.

    It makes the classes of all messages that one leads to, field by field, by recursion. Where that fails, a second attempt finds
    some of the classes made and may not fail, so that a replay would give other rows.
    """
    known, around = {descriptor.full_name}, [iter(descriptor.fields)]
    while around:
        field = next(around[-1], None)
        if field is None:
            around.pop()
        elif field.message_type is not None and field.message_type.full_name not in known:
            known.add(field.message_type.full_name)
            around.append(iter(field.message_type.fields))
            if len(around) > _MAX_CHAIN:
                raise DecodeError(
                    f"its message {descriptor.full_name} leads to a chain of more than {_MAX_CHAIN} others"
                )


@lru_cache(maxsize=1_000)
def _has_proto2(file: FileDescriptor) -> bool:
    """Return whether a file, or one that it imports, is of proto2, in which a text may be other than UTF-8."""
    return any(dependency.syntax != "proto3" for dependency in files_of(file))


def _missing_fields(message: Message, path: str = "") -> Iterator[str]:
    """Yield the paths of required fields that are not set. The library's own list of them can be of any length."""
    for field in message.DESCRIPTOR.fields:
        if field.is_required and not message.HasField(field.name):
            yield path + field.name
    for field, value in type(message).ListFields(message):
        if field.message_type is None:
            continue
        name = f"{path}({field.full_name})" if field.is_extension else path + field.name
        if is_map(field):
            if field.message_type.fields_by_name["value"].message_type is not None:
                for key, item in value.items():
                    yield from _missing_fields(item, f"{name}[{key!r}].")
        elif field.is_repeated:
            for number, item in enumerate(value):
                yield from _missing_fields(item, f"{name}[{number}].")
        else:
            yield from _missing_fields(value, f"{name}.")


def _check_texts(message: Message) -> None:
    """Raise DecodeError for a text that is not UTF-8, which Protobuf gives as bytes, and its JSON mapping as their repr."""
    for field, value in type(message).ListFields(message):
        if isinstance(value, (str, int, float)):
            continue
        if isinstance(value, bytes) or hasattr(value, "ListFields"):
            _check_text(field, (value,))
        elif hasattr(value, "items"):
            entry = field.message_type.fields_by_name
            _check_text(entry["key"], value.keys())
            _check_text(entry["value"], value.values())
        else:
            _check_text(field, value)


def _check_text(field: FieldDescriptor, values: Iterable[Any]) -> None:
    if field.type == field.TYPE_STRING:
        if any(isinstance(value, bytes) for value in values):
            raise DecodeError(f"a text in its field {field.full_name} is not UTF-8")
    elif field.message_type is not None:
        for value in values:
            _check_texts(value)
