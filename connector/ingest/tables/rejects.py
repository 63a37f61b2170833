"""The rejects of one table, in the table that holds the rejects of all tables.

A reject belongs to a table and a topic: an earlier table of the same name may have landed another topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name of it)

from pykafka_wire.ingest.settings.model import Destination
from pykafka_wire.ingest.spark.sql import sql_text
from pykafka_wire.ingest.tables.topic_table import TopicTable


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

    def __init__(self, stored: TopicTable, owners: Iterable[RejectOwner]) -> None:
        """Store the table of all rejects, which may not exist yet.

        Args:
            owners: the table under its name; and under older names, if it was renamed.
        """
        self._stored = stored
        self._condition = f"({' OR '.join(owner.condition for owner in owners) or 'false'})"

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


def count_by_owner(stored: TopicTable) -> dict[RejectOwner, int]:
    """Return the number of rejects of each owner."""
    counted = stored.rows.groupBy("topic", "table").agg(F.count(F.lit(1)).alias("n")).orderBy("topic", "table")
    return {RejectOwner(row.topic, row.table): row.n for row in counted.collect()}
