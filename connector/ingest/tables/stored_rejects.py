"""The rejects of an ingest, and the tables that they belong to."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from pyspark.sql import SparkSession

from pykafka_wire.checkpoints.stored_tables import TOPIC_PROPERTY
from pykafka_wire.errors import IngestError
from pykafka_wire.ingest.settings.model import Destination, Settings
from pykafka_wire.ingest.tables.formats import format_of
from pykafka_wire.ingest.tables.rejects import RejectOwner, Rejects, count_by_owner


def are_none_without_spark(settings: Settings) -> bool:
    """Return whether an ingest has no rejects; False also if only Spark can tell."""
    try:
        tables = format_of(settings).datasets(settings)
        if not tables:  # Spark may find tables in another file system
            return False
        if settings.rejects not in tables:
            return True
        rows = tables[settings.rejects]()
        return not (rows.num_rows if isinstance(rows, pa.Table) else rows.count_rows())
    except Exception:  # pyarrow, deltalake and pyiceberg raise errors of many classes
        return False


class StoredRejects:
    """The rejects of an ingest, with the tables that they belong to."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self._spark = spark
        self._settings = settings
        self._stored = format_of(settings).open_table(spark, settings, settings.rejects)
        #: Empty if the table of rejects does not exist, as after a crash in the first micro-batch.
        self.owners = [*count_by_owner(self._stored)] if self._stored.exists else []

    def of(self, destination: Destination) -> Rejects:
        """Return the rejects of a table, also those that it had under an older name."""
        names = {destination.name}
        if not destination.table.is_subset and destination.name == self._settings.name_of(destination.topic):
            names |= {each.table for each in self.owners if each.topic == destination.topic and self._is_renamed(each)}
        return Rejects(self._stored, [RejectOwner(destination.topic, name) for name in sorted(names)])

    def destination(self, owner: RejectOwner) -> Destination:
        """Return the table that rejects belong to.

        Raises:
            IngestError: the topic has several tables, but none of this name.
        """
        destinations = self._settings.destinations(owner.topic)
        if not destinations[0].table.is_subset:
            if owner.table == destinations[0].name or self._is_renamed(owner):
                return destinations[0]
            # The settings are those of another table: they may not redefine this one.
            return replace(destinations[0], name=owner.table, table=replace(destinations[0].table, redefine=()))
        by_name = {destination.name: destination for destination in destinations}
        if owner.table not in by_name:
            raise IngestError(
                f"the settings have no table {owner.table} of topic {owner.topic}: restore its [[table]], or delete these rejects."
            )
        return by_name[owner.table]

    def _is_renamed(self, owner: RejectOwner) -> bool:
        """Return whether the only table of a topic has another name now: no table of the old name holds the topic."""
        if owner.table == self._settings.name_of(owner.topic):
            return False
        old = format_of(self._settings).open_table(self._spark, self._settings, owner.table)
        return not old.exists or old.properties().get(TOPIC_PROPERTY) != owner.topic
