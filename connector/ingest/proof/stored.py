"""The table that `prove` compares. The user names only its place: a path, or a name in Spark's catalog."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pykafka_wire.checkpoints.stored_tables import TOPIC_PROPERTY
from pykafka_wire.checkpoints.tables import KafkaColumns
from pykafka_wire.errors import OffsetsError
from pykafka_wire.ingest.records.ranges import TopicRange
from pykafka_wire.ingest.settings.model import DEFAULT_REJECTS
from pykafka_wire.ingest.tables.definition import SUBSET_PROPERTY
from pykafka_wire.ingest.tables.formats import format_at
from pykafka_wire.ingest.tables.position import Landed
from pykafka_wire.ingest.tables.topic_table import (
    COLUMNS_PROPERTY,
    QUERY_PROPERTY,
    START_PROPERTY,
    start_of,
)
from pykafka_wire.wire.masking import without_secrets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTable:
    """A table to prove: its Kafka columns, properties and position.

    Attributes:
        landed: the position in the newest commit of an ingest; None if there is none.
    """

    columns: KafkaColumns
    properties: Mapping[str, str]
    landed: Landed | None

    def landed_range(self) -> TopicRange | None:
        """Return the range that an ingest's table holds of its own topic; None for any other table.

        Raises:
            OffsetsError: only the settings of the ingest show what the table should hold.
        """
        table, topic, query = self.columns.table, *map(self.properties.get, (TOPIC_PROPERTY, QUERY_PROPERTY))
        if query is not None and topic is None:
            raise OffsetsError(
                f"the table {table} holds the rejects of an ingest: pass it as --rejects, together with the table whose rejects "
                "they are."
            )
        holds = "a row for each key" if COLUMNS_PROPERTY in self.properties else None
        if (subset := self.properties.get(SUBSET_PROPERTY)) is not None:
            holds = f"a subset of its topic's records ({subset})"
        if holds is not None:
            raise OffsetsError(
                f"the table {table} has {holds}, so only its ingest can compare it, by the settings: "
                "pykafka-wire ingest FILE.toml --verify."
            )
        return None if topic is None or self.landed is None else range_of(self.landed, self.properties)

    def check_query(self, query: str | None, checkpoint: str) -> None:
        """Raise OffsetsError if a checkpoint, whose query has the id ``query``, says nothing about the rows that an ingest has
        landed."""
        table, owner = self.columns.table, self.properties.get(QUERY_PROPERTY)
        if owner is not None and query not in (None, owner):
            raise OffsetsError(
                f"the table {table} belongs to the ingest whose query has the id {owner}, but {without_secrets(checkpoint)} is the "
                f"checkpoint of query {query}: use the checkpoint of that ingest, or omit the checkpoint."
            )
        if owner is not None and self.landed is None:
            raise OffsetsError(
                f"no remaining commit of the table {table} has the table's position: it is a copy, or its log no longer has the "
                f"commits of the ingest. Compare it without the checkpoint: pykafka-wire prove {table}."
            )


def range_of(landed: Landed, properties: Mapping[str, str]) -> TopicRange:
    """Return the range that a table holds, by its newest commit and its properties."""
    started = start_of(properties[START_PROPERTY])
    start = {p: started.get(p, 0) for p in landed.end}
    return TopicRange(topic=properties[TOPIC_PROPERTY], topic_id=landed.topic_id, start=start, end=landed.end)


@contextmanager
def open_stored(
    session: SparkSession, place: str, names: Mapping[str, str], prefix: str | None
) -> Iterator[StoredTable]:
    """Lend the table at a place.

    Args:
        names: the table's own names of Kafka's columns, by Kafka's names.
        prefix: as in :meth:`KafkaColumns.of`.

    Raises:
        OffsetsError: there is no table, or it cannot be compared.
    """
    if (found := format_at(place)) is None:
        raise OffsetsError(f"there is no table in {without_secrets(place)}.")
    columns = sorted({name.split(".")[0] for name in names.values()})
    with found.placed.open(session, place, columns or None) as table:
        yield StoredTable(
            columns=KafkaColumns.of(table.rows, place, prefix, names), properties=table.properties, landed=table.landed
        )


def rejects_beside(session: SparkSession, place: str, stored: StoredTable) -> str | None:
    """Return the place of the rejects of a table's ingest, if they have the default name; None if there is no such table."""
    owner, of_table = stored.properties.get(QUERY_PROPERTY), format_at(place)
    if owner is None or of_table is None:
        return None
    rejects = of_table.placed.beside(place, DEFAULT_REJECTS)
    of_rejects = format_at(rejects)
    is_owned = of_rejects is not None and of_rejects.placed.properties(session, rejects).get(QUERY_PROPERTY) == owner
    return rejects if is_owned else None
