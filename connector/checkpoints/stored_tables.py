"""Where a Delta table with Kafka's columns ends, read by its path and without Spark, by the library deltalake.

The source's own process has no Spark session. A table's own rows are the position: the highest offset of each topic-partition. It
does not know about records behind that, which were filtered out or are not there for another reason. The table of an ingest also
says of which topic, by its id, its rows are: offsets say nothing about a topic that was made again.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from pykafka_wire.checkpoints.positions import IsWanted, QueryPosition
from pykafka_wire.checkpoints.query_offsets import QueryOffsets, decode_uuid
from pykafka_wire.checkpoints.reference import CheckpointReference
from pykafka_wire.errors import MissingLibraryError, OffsetsError
from pykafka_wire.places import table_uri
from pykafka_wire.wire.masking import without_secrets
from pykafka_wire.wire.topic_partitions import TopicPartition

#: The prefixes that Kafka's columns may have: that of ``pykafka-wire ingest``, beside which the record's own fields may have any
#: name, and none.
_PREFIXES: Final = ("_kafka_", "")
#: The properties with the topic of an ingest's table, and the topic's id.
TOPIC_PROPERTY: Final = "pykafka-wire.topic"
TOPIC_ID_PROPERTY: Final = "pykafka-wire.topic-id"
#: As terminals have it.
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")


def stored_position(
    reference: CheckpointReference, topics: Iterable[str], is_wanted: IsWanted, option: str
) -> QueryPosition:
    """Return where a Delta table ends, in what is wanted.

    Args:
        topics: those that are read. If the table has no column for the topic, its rows are of this one topic.
        option: the option's name, for errors.

    Raises:
        MissingLibraryError: deltalake is not installed.
        OffsetsError: deltalake cannot read the table, or it has not the columns, or no rows.
    """
    table, shown = reference.path, without_secrets(reference.path)
    with_spark = f"set {option} to table_position(spark, {shown!r}), from pykafka_wire"
    try:
        import deltalake
        import deltalake.exceptions
    except ModuleNotFoundError as error:
        raise MissingLibraryError(
            f"{option}=table:PATH needs the module {error.name}, which is not installed: pip install "
            f"'pykafka-wire[deltalake]', on the driver; or {with_spark}."
        ) from error
    try:
        stored = deltalake.DeltaTable(table_uri(table))
        names = names_in([field.name for field in stored.schema().fields], table, reference.prefix)
        last, topic_ids = _last_offsets(stored, names), topic_ids_in(stored.metadata().configuration)
    except (deltalake.exceptions.DeltaError, OSError, pa.ArrowException) as error:
        # Not chained: the text may quote a URI with credentials. It has line breaks and colours.
        text = " ".join(_COLOUR.sub("", str(error)).replace(table, shown).split())[:300]
        raise OffsetsError(
            f"{option}: the table {shown} cannot be read by the library deltalake ({text}): check the path, the permissions "
            f"and the credentials of the driver's Python process. If Spark can read it, {with_spark}."
        ) from None
    if "topic" in names:
        ends = {TopicPartition(topic, partition): offset + 1 for topic, partition, offset in last}
    elif len(read := list(topics)) == 1:
        ends = {TopicPartition(read[0], partition): offset + 1 for _, partition, offset in last}
    else:
        raise no_topic(table, read)
    position = position_of(ends, table, topic_ids)
    wanted = {tp: end for tp, end in ends.items() if is_wanted(tp)}
    return replace(position, offsets=replace(position.offsets, offsets=wanted))


def _last_offsets(stored: Any, names: Mapping[str, str]) -> list[tuple[str, int, int]]:
    """Return topic, partition and highest offset; deltalake reads no other columns, and these piece by piece."""
    from deltalake import QueryBuilder

    quoted = {name: '"' + text.replace('"', '""') + '"' for name, text in names.items()}
    topic, partition, offset = quoted.get("topic", "''"), quoted["partition"], quoted["offset"]
    last_offsets = (
        QueryBuilder()
        .register("stored", stored)
        .execute(
            f"SELECT {topic} AS topic, CAST({partition} AS INT) AS partition, MAX(CAST({offset} AS BIGINT)) AS last FROM stored "
            f"WHERE {topic} IS NOT NULL AND {partition} IS NOT NULL AND {offset} IS NOT NULL GROUP BY 1, 2"
        )
    )
    rows = pa.RecordBatchReader.from_stream(last_offsets).read_all().to_pylist()
    return [(row["topic"], row["partition"], row["last"]) for row in rows]


def names_in(columns: Sequence[str], table: str, prefix: str | None) -> dict[str, str]:
    """Return the names that a table has for Kafka's columns, by Kafka's own, whatever the case.

    Raises:
        OffsetsError: it has no columns ``partition`` and ``offset``.
    """
    by_lower = {name.lower(): name for name in columns}
    for possible in _PREFIXES if prefix is None else (prefix,):
        lower = {name: f"{possible}{name}".lower() for name in ("topic", "partition", "offset", "timestamp")}
        names = {name: by_lower[text] for name, text in lower.items() if text in by_lower}
        if {"partition", "offset"} <= names.keys():
            return names
    raise OffsetsError(
        f"the table {without_secrets(table)} has no columns partition and offset"
        + (", nor _kafka_partition and _kafka_offset" if prefix is None else f" with the prefix {prefix!r}")
        + f": it has {', '.join(columns[:20])}. Select Kafka's columns into the table, or name the columns that have them."
    )


def no_topic(table: str, topics: Sequence[str]) -> OffsetsError:
    """Return the error of a table in whose rows nothing says which of several topics they are of."""
    return OffsetsError(
        f"the table {without_secrets(table)} has no column for the topic, and the query reads {len(topics)} topics "
        f"({', '.join(topics[:10])}): select the topic into the table, too."
    )


def topic_ids_in(properties: Mapping[str, str]) -> dict[str, uuid.UUID]:
    """Return the id of the topic whose records a table holds, by the table's properties; nothing of a table of another program."""
    topic, text = properties.get(TOPIC_PROPERTY), properties.get(TOPIC_ID_PROPERTY)
    return {topic: decode_uuid(text)} if topic and text else {}


def position_of(ends: Mapping[TopicPartition, int], table: str, topic_ids: Mapping[str, uuid.UUID]) -> QueryPosition:
    """Return the position behind a table's rows.

    Args:
        topic_ids: the ids of the topics that the rows are of, as far as they are known.

    Raises:
        OffsetsError: the table has none.
    """
    if not ends:
        raise OffsetsError(
            f"the table {without_secrets(table)} has no rows with an offset, so that it has no end: start at earliest."
        )
    return QueryPosition(
        batch_id=None,
        is_committed=True,
        offsets=QueryOffsets(
            offsets=ends, topic_ids={tp.topic: topic_ids[tp.topic] for tp in ends if tp.topic in topic_ids}
        ),
        topics=frozenset(tp.topic for tp in ends),
    )
