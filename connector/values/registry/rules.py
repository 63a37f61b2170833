"""Rules of data contracts, applied by Confluent's own client for Python: encryption of fields, checks, transformations.

Owns what confluent-kafka's serializers ask of a registry, and the way through them: a value is decoded by them, changed, and
encoded again under the same schema, one value after the other. Executors are those of ``rule.executors``, loaded where values are
read and written. https://docs.confluent.io/platform/current/schema-registry/fundamentals/data-contracts.html
"""

from __future__ import annotations

import importlib
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from typing import Any, Final

import numpy as np
import pyarrow as pa

from pykafka_wire.errors import (
    ConnectorError,
    DecodeError,
    EncodeError,
    MissingLibraryError,
    OptionError,
    RegistryError,
)
from pykafka_wire.values.bulk.arrays import Flags
from pykafka_wire.values.bulk.reading import PayloadReader, Payloads
from pykafka_wire.values.bulk.writing import ColumnWriter
from pykafka_wire.values.registry.address import Registry
from pykafka_wire.values.registry.client import RegistryClient
from pykafka_wire.values.registry.framing import encode_frame
from pykafka_wire.values.registry.registered_schema import Reference, Schema
from pykafka_wire.values.single_json.text import json_text, parse_json
from pykafka_wire.wire.security.secret_references import resolve

_WHAT: Final = "rule.executors"
_FRAME_BYTES: Final = 5
#: The release that was tried. How it applies rules within unions of records has changed over time.
_LOWEST: Final = (2, 16)
#: Errors of these packages, and Python's own, are about the value. Any other is an outage, such as of a service that holds keys.
_OF_VALUES: Final = frozenset({"builtins", "confluent_kafka", "decimal", "fastavro", "jsonschema", "tink"})


def applied(registry: Registry) -> frozenset[str]:
    """Return the types of rules that the registry's executors apply.

    Raises:
        OptionError: ``rule.executors`` names something that is no executor.
    """
    return frozenset(executor.type() for executor in _executors(registry.rule_executors).get_executors())


def _confluent(name: str) -> Any:  # Any: a module of confluent-kafka
    try:
        return importlib.import_module(f"confluent_kafka.{name}")
    except ModuleNotFoundError as error:
        raise MissingLibraryError(
            f"{_WHAT} needs the module {error.name}, which is not installed: pip install "
            "'confluent-kafka[avro,json,rules,schemaregistry]', on the driver and on every executor."
        ) from error


@lru_cache(maxsize=16)
def _executors(names: tuple[str, ...]) -> Any:  # Any: confluent-kafka's own classes
    executors = _confluent("schema_registry.rule_registry").RuleRegistry()
    if tuple(map(int, version("confluent-kafka").split(".")[:2])) < _LOWEST:
        raise OptionError(f"{_WHAT} needs confluent-kafka {'.'.join(map(str, _LOWEST))} or newer.")
    for name in names:
        module, _, attribute = name.partition(":")
        try:
            executors.register_executor(getattr(importlib.import_module(module), attribute)())
        except Exception as error:
            raise OptionError(
                f"{_WHAT} names {name!r}, which cannot be used ({type(error).__name__}: {error}): it must be module:Class of a "
                "RuleExecutor of confluent-kafka, installed on the driver and on every executor."
            ) from error
    return executors


@dataclass(frozen=True, slots=True)
class _Client:
    """What confluent-kafka's serializers ask of their client for a schema registry."""

    registry: Registry
    subject: str
    schema_id: int
    schema: Schema

    def config(self) -> dict[str, Any]:
        """Return the configuration for executors that have keys in the registry: its first address and what gives access to it."""
        user, ca_file = self.registry.basic_auth, self.registry.ca_file
        settings = {"url": self.registry.urls[0]}
        settings |= {"basic.auth.user.info": resolve(user, "basic.auth.user.info")} if user else {}
        return settings | ({"ssl.ca.location": ca_file} if ca_file else {})

    def get_schema(self, *_: Any) -> Any:
        return self._theirs(self.schema)

    def get_latest_version(self, *_: Any) -> Any:
        return self._registered(self.schema)

    def get_version(self, subject: str, version: int, *_: Any) -> Any:
        return self._registered(
            RegistryClient(self.registry).version(Reference(name=subject, subject=subject, version=version))
        )

    def _registered(self, schema: Schema) -> Any:
        kind = _confluent("schema_registry").RegisteredSchema
        return kind(subject=self.subject, version=1, schema_id=self.schema_id, guid=None, schema=self._theirs(schema))

    def _theirs(self, schema: Schema) -> Any:
        references = [
            {"name": reference.name, "subject": reference.subject, "version": reference.version}
            for reference in schema.references
        ]
        registered = {"schema": schema.text, "schemaType": schema.kind, "references": references}
        return _confluent("schema_registry").Schema.from_dict(registered | json.loads(schema.contract or "{}"))


@lru_cache(maxsize=100)
def _serdes(registry: Registry, subject: str, schema_id: int, schema: Schema) -> tuple[Any, Any, Any, Any]:
    """Return Confluent's serializer and deserializer, and between them a value's Python object to its bytes and back, without
    rules."""
    client, executors = _Client(registry, subject, schema_id, schema), _executors(registry.rule_executors)
    naming = {"subject.name.strategy": lambda *_: subject}
    writing = {**naming, "auto.register.schemas": False, "use.latest.version": True}
    if schema.kind == "JSON":
        module = _confluent("schema_registry.json_schema")
        their_schema = client.get_schema()
        return (
            module.JSONSerializer(their_schema, client, conf=writing, json_encode=json_text, rule_registry=executors),
            module.JSONDeserializer(
                their_schema, schema_registry_client=client, conf={**naming, "validate": False}, rule_registry=executors,
                json_decode=parse_json,
            ),
            lambda value: json_text(value).encode(),
            parse_json,
        )  # fmt: skip
    module = _confluent("schema_registry.avro")
    fastavro = importlib.import_module("fastavro")  # which confluent-kafka needs for Avro
    deserializer = module.AvroDeserializer(client, conf=naming, rule_registry=executors, return_record_name=True)
    parsed = deserializer._get_parsed_schema(client.get_schema())
    if (
        parsed.get("type") if isinstance(parsed, dict) else parsed
    ) == "bytes":  # Confluent's serializer writes them as they are
        return module.AvroSerializer(client, conf=writing, rule_registry=executors), deserializer, bytes, bytes

    def encode(value: Any) -> bytes:
        written = io.BytesIO()
        fastavro.schemaless_writer(written, parsed, value)
        return written.getvalue()

    def decode(payload: bytes) -> pa.Array:
        return fastavro.schemaless_reader(io.BytesIO(payload), parsed, None, return_record_name=True)

    return module.AvroSerializer(client, conf=writing, rule_registry=executors), deserializer, encode, decode


def change_by_rules(
    registry: Registry, subject: str, schema_id: int, schema: Schema, *, on_read: bool
) -> Callable[[bytes], bytes]:
    """Return a function from a payload to the one that the schema's rules make of it, of the same schema; both are without
    frames.

    It raises DecodeError where a rule rejects a value, and RegistryError where one cannot be applied now.
    """
    serializer, deserializer, encode, decode = _serdes(registry, subject, schema_id, schema)
    serialization = _confluent("serialization")
    field = serialization.MessageField.KEY if subject.endswith("-key") else serialization.MessageField.VALUE
    context = serialization.SerializationContext(subject.removesuffix(f"-{field}"), field)

    def change(payload: bytes) -> bytes:
        try:
            if on_read:
                changed_payload: bytes = encode(deserializer(encode_frame(schema_id, payload), context))
                return changed_payload
            return bytes(serializer(decode(payload), context))[_FRAME_BYTES:]
        except (ConnectorError, MemoryError):
            raise
        except Exception as error:
            raise _failure(error, subject) from error

    return change


def _failure(error: BaseException, subject: str) -> Exception:
    """Return an error without what the value holds: of a rule only what its author wrote."""
    chain = [error]
    while (below := chain[-1].__cause__ or chain[-1].__context__) is not None and below not in chain:
        chain.append(below)
    names = " from ".join(type(error).__name__ for error in chain)
    rejected = next((f": {error}" for error in chain if type(error).__name__ == "RuleConditionError"), "")
    is_outage = any(
        isinstance(error, OSError)
        or type(error).__name__ == "SchemaRegistryError"
        or type(error).__module__.partition(".")[0] not in _OF_VALUES
        for error in chain
    )
    if is_outage and not rejected:
        return RegistryError(
            f"the rules of subject {subject} cannot be applied ({names}): check what their executors need."
        )
    return DecodeError(f"the rules of subject {subject} cannot be applied to it ({names}{rejected})")


@dataclass(frozen=True, slots=True)
class ReaderByRules:
    """Reads values of one schema whose rules change them first: see :class:`~pykafka_wire.values.bulk.reading.PayloadReader`."""

    reader: PayloadReader
    change: Callable[[bytes], bytes]

    def read_one(self, payload: bytes) -> Any:
        return self.reader.read_one(self.change(payload))

    def read_column(self, payloads: Payloads) -> tuple[pa.Array, Flags]:
        values: list[bytes | None] = []
        for row in range(len(payloads)):
            try:
                values.append(self.change(payloads[row]))
            except DecodeError:  # which read_one raises again, for the reason
                values.append(None)
        column, unread = self.reader.read_column(Payloads.of(pa.array(values, pa.binary())))
        return column, unread | np.array([value is None for value in values], dtype=np.bool_)


@dataclass(frozen=True, slots=True)
class WriterByRules:
    """Writes a column, and changes each value by the rules of its schema then; picklable."""

    writer: ColumnWriter
    registry: Registry
    subject: str
    schema_id: int
    schema: Schema

    def write(self, column: pa.BinaryArray) -> pa.BinaryArray:
        """Return pa.BinaryArray: see :class:`~pykafka_wire.values.bulk.writing.ColumnWriter`. Raises RegistryError, too."""
        change = change_by_rules(self.registry, self.subject, self.schema_id, self.schema, on_read=False)
        values: list[bytes | None] = []
        reasons: dict[int, str] = {}
        for row, value in enumerate(self.writer.write(column).to_pylist()):
            try:
                values.append(None if value is None else encode_frame(self.schema_id, change(value[_FRAME_BYTES:])))
            except DecodeError as error:
                reasons[row] = str(error)
        if reasons:
            raise EncodeError(reasons)
        return pa.array(values, pa.binary())
