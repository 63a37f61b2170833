"""The fields of a message in all versions of its schema, and the text of a schema with some of them.

Fields are the same if their numbers are; a field has the name and the type that its newest version gives.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto

from pykafka_wire.values.protobuf.linker import messages_of

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

#: The beginnings of files that a schema may import without a reference.
_KNOWN_FILES: Final = ("google/", "confluent/")


@dataclass(frozen=True, slots=True)
class MessageVersions:
    """Versions of one message, the newest first."""

    versions: Sequence[Descriptor]

    def fields(self) -> dict[int, FieldDescriptor]:
        """Return the newest version of each field, by number."""
        return {field.number: field for message in reversed(self.versions) for field in message.fields}

    def text(self, numbers: Collection[int], optional: Collection[int] = ()) -> str | None:
        """Return the schema of a message with some of the fields: the newest file as a descriptor in base64, as registries keep it.

        Args:
            optional: fields that are null where a message lacks them.

        Returns:
            None if there is no such schema: two of the fields have the same name, or the type of a field is not in the newest file.
        """
        newest = self.versions[0]
        file = FileDescriptorProto()
        newest.file.CopyToProto(file)
        fields = {number: field for number, field in self.fields().items() if number in numbers}
        names = {field.name for field in fields.values()}
        if len(names) < len(fields) or not all(name.startswith(_KNOWN_FILES) for name in file.dependency):
            return None
        message: Any = next(message for name, message in messages_of(file) if name == newest.full_name)
        del message.field[:], message.oneof_decl[:]
        for number, field in fields.items():
            if not _is_type_known(field, newest):
                return None
            written = _proto(field)
            # A member of a oneof is null where it is not set: so are the fields of proto3 that are declared as optional.
            written.ClearField("oneof_index")
            written.proto3_optional = False
            if number in optional and written.label == written.LABEL_REQUIRED:
                written.label = written.LABEL_OPTIONAL
            may_be_null = number in optional or (field.has_presence and field.message_type is None)
            if may_be_null and file.syntax == "proto3" and written.label == written.LABEL_OPTIONAL:
                written.proto3_optional = True
                written.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{written.name}")
            message.field.append(written)
        return base64.b64encode(file.SerializeToString()).decode()


def _proto(field: FieldDescriptor) -> Any:
    """Return a copy of a field's declaration, a FieldDescriptorProto."""
    message = DescriptorProto()
    field.containing_type.CopyToProto(message)
    return next(proto for proto in message.field if proto.number == field.number)


def _is_type_known(field: FieldDescriptor, newest: Descriptor) -> bool:
    """Return whether the newest file, or a file that it imports, has the type of a field."""
    named = field.message_type or field.enum_type
    if named is None:
        return True
    find = newest.file.pool.FindMessageTypeByName if field.message_type else newest.file.pool.FindEnumTypeByName
    try:
        find(named.full_name)
    except KeyError:
        return False
    return True
