"""Protobuf in Confluent's framing. Registries keep .proto text, so each worker compiles a schema once, with protoc.

Values pass through Protobuf's own JSON mapping (https://protobuf.dev/programming-guides/json/), under the fields' own names.
"""

from __future__ import annotations

import base64
import importlib
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from pykafka_wire.errors import OptionError, PoisonError
from pykafka_wire.values.json.writing import json_text
from pykafka_wire.values.libraries import library
from pykafka_wire.values.registry.cache import cached
from pykafka_wire.values.registry.client import Registry, Schema
from pykafka_wire.values.registry.schemas import WriterSchema, referenced, schema_of
from pykafka_wire.values.registry.wire_format import decode_message_place, encode_message_place, frame

#: A file of a hundred messages takes protoc a tenth of a second; the rest is Python starting on a busy machine.
_PROTOC_TIMEOUT_S: Final = 120
_ROOT: Final = "pykafka_wire_schema.proto"
#: Protobuf's own files that schemas import; each comes after those it imports itself.
_GOOGLES: Final = ("any", "duration", "empty", "field_mask", "struct", "timestamp", "wrappers", "descriptor")


@dataclass(frozen=True, slots=True, kw_only=True)
class Protobuf:
    """Protobuf messages. ``message`` names the one to write, where its file has several."""

    registry: Registry
    writer: WriterSchema | None = None
    message: str | None = None

    def decode(self, value: bytes) -> Any:
        schema, payload = schema_of(self.registry, value, "PROTOBUF")
        place, content = decode_message_place(payload)
        try:
            cls = _message(self.registry, schema, place)
        except IndexError as error:
            raise PoisonError(f"its schema has no message {place}") from error
        from google.protobuf.json_format import MessageToDict

        try:
            return MessageToDict(
                cls.FromString(content), preserving_proto_field_name=True, always_print_fields_with_no_presence=True
            )
        except Exception as error:  # DecodeError, and what an Any of a foreign type raises
            raise PoisonError(f"it is not what its schema says ({type(error).__name__})") from error

    def encode(self, value: Any) -> bytes:
        assert self.writer is not None
        place = self.place()
        cls = _message(self.registry, self.writer.schema, place)
        from google.protobuf.json_format import Parse

        try:
            content = Parse(json_text(value), cls()).SerializeToString()
        except Exception as error:  # ParseError, and ValueErrors of well-known types
            raise PoisonError(f"its schema cannot hold it ({type(error).__name__})") from error
        return frame(self.writer.schema_id, encode_message_place(place) + content)

    def place(self) -> tuple[int, ...]:
        """Where the message to write stands in its file. A map counts as a message of the one it is in, as descriptors have it.

        Raises:
            OptionError: there is none of that name.
        """
        assert self.writer is not None
        if self.message is None:
            return (0,)
        level, place = list(_file(self.registry, self.writer.schema).message_types_by_name.values()), []
        for name in self.message.split("."):
            names = [each.name for each in level]
            if name not in names:
                raise OptionError(f"the schema has no message {self.message} (there are {', '.join(names) or 'none'}).")
            place.append(names.index(name))
            level = list(level[place[-1]].nested_types)
        return tuple(place)


@cached
def _message(registry: Registry, schema: Schema, place: tuple[int, ...]) -> Any:
    from google.protobuf.message_factory import GetMessageClass

    found = list(_file(registry, schema).message_types_by_name.values())[place[0]]
    for number in place[1:]:
        found = found.nested_types[number]
    return GetMessageClass(found)


@cached
def _file(registry: Registry, schema: Schema) -> Any:
    """The descriptor of a schema's file, in a pool of its own: two versions of a message have the same name."""
    library("grpc_tools", "Protobuf")
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool

    files = {**referenced(registry, schema), _ROOT: schema.text}
    descriptors = [_descriptor(name, text) for name, text in files.items()]
    pool = DescriptorPool()
    try:
        if all(descriptors):
            for name in _GOOGLES:
                pool.AddSerializedFile(importlib.import_module(f"google.protobuf.{name}_pb2").DESCRIPTOR.serialized_pb)
            for each in descriptors:
                pool.Add(each)
        else:
            for each in FileDescriptorSet.FromString(_compiled(files)).file:
                pool.Add(each)
        return pool.FindFileByName(_ROOT)
    except (KeyError, TypeError) as error:
        raise PoisonError(f"its schema needs what the registry does not have with it ({error})") from error


def _descriptor(name: str, text: str) -> Any:
    """What confluent-kafka's Python client registers instead of text, and some registries keep: a descriptor in base64."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        found = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (ValueError, DecodeError):
        return None
    found.name = name
    return found


def _compiled(files: dict[str, str]) -> bytes:
    """A FileDescriptorSet of the files, and of Protobuf's own that they import."""
    with tempfile.TemporaryDirectory(prefix="pykafka-wire-proto-") as folder:
        for name, text in files.items():
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts:
                raise PoisonError(f"its schema refers to {name!r}, which is no file beside it")
            target = Path(folder, *path.parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        out = Path(folder, "descriptors")
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", f"--descriptor_set_out={out}"]
        done = subprocess.run(
            [*command, "--include_imports", _ROOT],
            capture_output=True,
            text=True,
            timeout=_PROTOC_TIMEOUT_S,
            cwd=folder,
        )
        if done.returncode != 0:
            raise PoisonError(f"protoc refuses its schema: {done.stderr.strip().splitlines()[-1:]}")
        return out.read_bytes()
