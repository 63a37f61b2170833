"""The subject that has the schema of a topic's keys or values, by Confluent's three naming strategies.

A strategy has Confluent's Java class name, with or without its package (``TopicRecordNameStrategy``), or the short name of its
other clients (``TOPIC_RECORD``). https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html
"""

from __future__ import annotations

from typing import Final, Literal

from pykafka_wire.errors import OptionError
from pykafka_wire.wire.masking import quoted

Strategy = Literal["TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy"]

_STRATEGIES: Final[dict[str, Strategy]] = {
    "topic": "TopicNameStrategy",
    "record": "RecordNameStrategy",
    "topicrecord": "TopicRecordNameStrategy",
}


def subject_of(strategy: str, topic: str, column: Literal["key", "value"], *, record_name: str | None = None) -> str:
    """The subject by a strategy, as the user named it in ``value.subject.name.strategy``.

    Args:
        record_name: the full name of the Avro record or Protobuf message; a reader does not know it before it has the schema.

    Raises:
        OptionError: the strategy is unknown, or needs the record's name.
    """
    known = _known(strategy, column)
    if known == "TopicNameStrategy":
        return f"{topic}-{column}"
    if record_name is None:
        raise OptionError(
            f"{column}.subject.name.strategy is {known}, whose subjects contain the record's name, and that is not known before "
            f"its schema: name the subject in {column}Subject, as in {column}Subject={_example(known, topic)}."
        )
    return record_name if known == "RecordNameStrategy" else f"{topic}-{record_name}"


def _known(strategy: str, column: str) -> Strategy:
    short = strategy.strip().rpartition(".")[2].lower().replace("_", "").removesuffix("namestrategy")
    found = _STRATEGIES.get(short)
    if found is None:
        raise OptionError(
            f"{column}.subject.name.strategy is {quoted(strategy)}: use {', '.join(_STRATEGIES.values())}, or name the subject in "
            f"{column}Subject."
        )
    return found


def _example(strategy: Strategy, topic: str) -> str:
    return "com.example.Order" if strategy == "RecordNameStrategy" else f"{topic}-com.example.Order"
