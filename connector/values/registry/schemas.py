"""Which schema a value has: by the id before it, or by its subject; the schemas it refers to; the one that values are written with.

A subject is found by one of Confluent's three naming strategies. A strategy has Confluent's Java class name, with or without its
package (``TopicRecordNameStrategy``), or the short name of its other clients (``TOPIC_RECORD``).
https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Literal

from pykafka_wire.errors import DecodeError, OptionError, SchemaError
from pykafka_wire.values.bulk.reading import PayloadReader
from pykafka_wire.values.registry.address import Registry
from pykafka_wire.values.registry.client import RegistryClient
from pykafka_wire.values.registry.framing import SchemaId, encode_frame
from pykafka_wire.values.registry.registered_schema import RegistryId, Schema
from pykafka_wire.wire.masking import quoted

SubjectStrategy = Literal["TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy"]

_STRATEGIES: Final[dict[str, SubjectStrategy]] = {
    "topic": "TopicNameStrategy",
    "record": "RecordNameStrategy",
    "topicrecord": "TopicRecordNameStrategy",
}


def subject_of(
    strategy: str,
    topic: str,
    column: Literal["key", "value"],
    *,
    record_name: str | None = None,
    registry: Registry | None = None,
) -> str:
    """Return the subject by a strategy, as the user named it in ``value.subject.name.strategy``. In AWS Glue it is the schema's
    name.

    Args:
        record_name: the full name of the Avro record or Protobuf message; a reader does not know it before it has the schema.

    Raises:
        OptionError: the strategy is unknown, or needs the record's name.
    """
    known = strategy_of(strategy, column)
    if known == "TopicNameStrategy":
        return f"{topic}-{column}" if registry is None else registry.subject_of_topic(topic, column)
    if record_name is None:
        raise OptionError(
            f"{column}.subject.name.strategy is {known}, whose subjects contain the record's name, and that is not known before "
            f"its schema: name the subject in {column}Subject, as in {column}Subject={_example(known, topic)}."
        )
    return record_name if known == "RecordNameStrategy" else f"{topic}-{record_name}"


def strategy_of(strategy: str, column: str) -> SubjectStrategy:
    """Return the strategy of a name that a user gave. Raises OptionError for an unknown one."""
    short = strategy.strip().rpartition(".")[2].lower().replace("_", "").removesuffix("namestrategy")
    known = _STRATEGIES.get(short)
    if known is None:
        raise OptionError(
            f"{column}.subject.name.strategy is {quoted(strategy)}: use {', '.join(_STRATEGIES.values())}, or name the subject in "
            f"{column}Subject."
        )
    return known


def _example(strategy: SubjectStrategy, topic: str) -> str:
    return "com.example.Order" if strategy == "RecordNameStrategy" else f"{topic}-com.example.Order"


#: Far more than schemas have. References to references could otherwise go on for ever.
_MAX_REFERENCES: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterSchema:
    """The schema that values are written with, looked up once, before any value is written.

    Attributes:
        schema_id: None for values without a frame.
    """

    schema_id: RegistryId | None
    schema: Schema

    def frame(self, message_indexes: bytes = b"") -> bytes:
        """Return what stands before each value; nothing without an id."""
        return b"" if self.schema_id is None else encode_frame(self.schema_id, message_indexes)

    @classmethod
    def of(cls, registry: Registry, kind: str, subject: str, schema: Schema | str | None) -> WriterSchema:
        """Return the subject's newest schema, or the one given, registered if it is new.

        Raises:
            OptionError: the subject has none, or one of another kind.
            RegistryError: the registry does not respond, or refuses the schema.
        """
        registry = registry.for_subject(subject)
        if isinstance(schema, str):
            schema = Schema(kind=kind, text=schema)
        if schema is not None:
            schema_id = RegistryClient(registry).register(subject, schema)
            refuse_rules(subject, RegistryClient(registry).by_id(schema_id))
            return cls(schema_id=schema_id, schema=schema)
        try:
            schema_id, newest = RegistryClient(registry).latest(subject)
        except DecodeError as error:
            raise OptionError(f"subject {subject}: {error}. Give the schema to register it.") from error
        if newest.kind != kind:
            raise OptionError(f"subject {subject} is {newest.kind}, not {kind}: use the functions for {newest.kind}.")
        refuse_rules(subject, newest)
        return cls(schema_id=schema_id, schema=newest)


def refuse_rules(subject: str, schema: Schema, applied: Collection[str] = ()) -> None:
    """Raise SchemaError where Confluent's serializers would encrypt, check or change what is written.

    Args:
        applied: the types of rules that are applied here.
    """
    rule = schema.rule("WRITE", "WRITEREAD", but=applied)
    if rule is not None:
        raise SchemaError(
            f"subject {subject} has {rule}, which Confluent's serializers apply to each value that they write, and this package "
            "does not: values would be written unencrypted, unchecked or unchanged. Write values that Confluent's serializer has "
            "encoded, as binary; or write to another subject; or name in rule.executors what applies it to Avro; or disable it."
        )


def applied_rules(registry: Registry, kind: str) -> Collection[str]:
    """Return the types of rules that the registry's executors apply to values of a kind. Raises OptionError."""
    if not registry.rule_executors or kind == "PROTOBUF":
        return ()
    from pykafka_wire.values.registry.rules import applied  # which few values need

    return applied(registry)


def behind_rules(registry: Registry, schema_id: SchemaId, schema: Schema, reader: PayloadReader) -> PayloadReader:
    """Return a reader that applies the schema's rules first, where it has any.

    Raises:
        DecodeError: the subject, which executors need, is unknown.
        RegistryError: the registry does not respond.
    """
    if schema.rule("READ", "WRITEREAD") is None:
        return reader
    from pykafka_wire.values.registry.rules import ReaderByRules, change_by_rules

    number = schema_id.id
    subjects = RegistryClient(registry).subjects_of(number) if isinstance(number, int) else ()
    if not isinstance(number, int) or len(subjects) != 1:
        raise DecodeError(
            f"its schema, {number}, has rules, and {len(subjects) or 'no known'} subjects have it: rules are applied where one has"
        )
    return ReaderByRules(reader, change_by_rules(registry, subjects[0], number, schema, on_read=True))


#: No registry gives the id 0.
_EIGHT_BYTES: Final = (
    ". An id that begins with four zero bytes is one of 8 bytes, as Apicurio's serializers write it by default, which is not "
    "looked up here: set apicurio.registry.as-confluent=true and apicurio.registry.use-id=contentId for the producers"
)


def schema_of(
    registry: Registry, schema_id: SchemaId, kind: str, read: Schema | None = None, *, applied: Collection[str] = ()
) -> Schema:
    """Return the schema that a frame names.

    Args:
        read: the reader's, whose rules may be for values of other versions.
        applied: the types of rules for reads that the caller applies (:func:`behind_rules`).

    Raises:
        DecodeError: the registry does not know it, it is of another kind, or its values have to pass rules, which are not applied
            here.
        RegistryError: the registry does not respond.
    """
    try:
        schema = RegistryClient(registry).by_id(schema_id.id)
    except DecodeError as error:
        named = "id" if isinstance(schema_id.id, int) else "version" if registry.is_glue else "GUID"
        hint = _EIGHT_BYTES if schema_id.id == 0 else ""
        raise DecodeError(f"its schema with the {named} {schema_id.id} in {registry.url}: {error}{hint}") from error
    if schema.kind != kind:
        raise DecodeError(f"its schema, {schema_id.id}, is {schema.kind} and not {kind}")
    rule = schema.rule("READ", "WRITEREAD", but=applied)
    if rule is None and read is not None and not read.has_same_types(schema):
        rule = read.rule("UPGRADE", "DOWNGRADE", "UPDOWN") or schema.rule("UPGRADE", "DOWNGRADE", "UPDOWN")
    if rule is not None:
        raise DecodeError(
            f"its schema, {schema_id.id}, has {rule}, which is not applied here: Confluent's deserializers would decrypt, check or "
            "change the value"
        )
    return schema


def look_up_references(registry: Registry | None, schema: Schema) -> dict[str, str]:
    """Return the text of every schema that this one needs, by the name it is known under; what others need stands before them.

    Raises:
        DecodeError: the registry does not have one of them, or they are more than any schema needs.
    """
    texts: dict[str, str] = {}
    opened: set[str] = set()
    waiting = [(reference, False) for reference in reversed(schema.references)]
    while waiting:
        reference, has_its_own = waiting.pop()
        if registry is None:
            raise DecodeError(f"its schema refers to {reference.name}, and there is no registry that has it")
        inner = RegistryClient(registry).version(reference)
        if has_its_own:
            texts.setdefault(reference.name, inner.text)
        elif reference.name not in opened:
            opened.add(reference.name)
            if len(opened) > _MAX_REFERENCES:
                raise DecodeError(f"its schema refers to more than {_MAX_REFERENCES} others")
            waiting.append((reference, True))
            waiting += [(reference, False) for reference in reversed(inner.references)]
    return texts
