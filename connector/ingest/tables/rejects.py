"""The rejects of one table, in the table that holds the rejects of all tables.

A reject belongs to a table and a topic: an earlier table of the same name may have landed another topic, or a deleted topic of the
same name, which had another id and may have had the same offsets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name of it)

from pykafka_wire.ingest.settings.model import Destination
from pykafka_wire.ingest.spark.sql import sql_text
from pykafka_wire.ingest.tables.topic_table import TopicTable

#: The column with the id of a reject's topic, as text; null if the brokers have no topic ids.
TOPIC_ID: Final = "topic_id"


@dataclass(frozen=True, slots=True)
class RejectOwner:
    """The table and the topic that a reject belongs to.

    Attributes:
        table: the table's name.
    """

    topic: str
    table: str

    @classmethod
    def of(cls, destination: Destination) -> RejectOwner:
        """Return the owner of the rejects of one table of one topic."""
        return cls(topic=destination.topic, table=destination.name)

    def may_be(self, destination: Destination) -> bool:
        """Return whether the owner may be a table: under its name, or under an older name if the topic has one table."""
        return self == RejectOwner.of(destination) or (
            self.topic == destination.topic and not destination.table.is_subset
        )

    @property
    def condition(self) -> str:
        """Return the SQL condition of the owner's rejects."""
        return f"(topic = {sql_text(self.topic)} AND table = {sql_text(self.table)})"


class Rejects:
    """Reads and deletes the rejects of one table."""

    def __init__(self, stored: TopicTable, owners: Iterable[RejectOwner], topic_id: str = "") -> None:
        """Store the table of all rejects, which may not exist yet.

        Args:
            owners: the table under its name; and under older names, if it was renamed.
            topic_id: the id of the table's topic: rejects of a topic with another id are not the table's. Empty if the id is
                unknown; then all rejects of the owners are.
        """
        self._stored = stored
        self._owners = tuple(owners)
        self._topic_id = topic_id

    def of_topic(self, topic_id: str) -> Rejects:
        """Return the rejects of the table if its topic has this id; an empty id is unknown."""
        return Rejects(self._stored, self._owners, topic_id)

    @property
    def _condition(self) -> str:
        of_owners = f"({' OR '.join(owner.condition for owner in self._owners) or 'false'})"
        of_topic = of_topic_id(self._stored.schema.names, self._topic_id) if self._topic_id else None
        return of_owners if of_topic is None else f"{of_owners} AND {of_topic}"

    @property
    def exists(self) -> bool:
        """Return whether the table of rejects exists."""
        return self._stored.exists

    @property
    def rows(self) -> DataFrame:
        """Return the rejects, with all columns of the table."""
        return self._stored.rows.where(self._condition)

    def delete(self, places: DataFrame) -> None:
        """Delete the rejects at the given ``partition`` and ``offset``."""
        self._stored.delete(self._condition, places)

    def delete_from(self, start: Mapping[int, int]) -> None:
        """Delete the rejects from these offsets on, by partition."""
        places = " OR ".join(f"(partition = {partition} AND offset >= {offset})" for partition, offset in start.items())
        self._stored.delete(f"{self._condition} AND ({places or 'false'})", None)


def of_topic_id(columns: Collection[str], topic_id: str) -> str | None:
    """Return the SQL condition of rejects that may be of the topic with this id; None if nothing in a reject shows that.

    Args:
        columns: the columns of the table of rejects. One that an older version has created may have no topic ids.
        topic_id: empty if the id is unknown.
    """
    if not topic_id or TOPIC_ID not in columns:
        return None
    return f"({TOPIC_ID} IS NULL OR {TOPIC_ID} = {sql_text(topic_id)})"


def count_by_owner(stored: TopicTable) -> dict[RejectOwner, int]:
    """Return the number of rejects of each owner."""
    counted = stored.rows.groupBy("topic", "table").agg(F.count(F.lit(1)).alias("n")).orderBy("topic", "table")
    return {RejectOwner(row.topic, row.table): row.n for row in counted.collect()}
