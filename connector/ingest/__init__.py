"""Topics become tables: one Spark query that lands any number of topics, each in a Delta table of its own.

::

    from pykafka_wire.ingest import Ingest, Table

    ingest = Ingest(checkpoint="/lake/_checkpoints/shop", kafka={"bootstrap.servers": "broker:9092"}, topics=r"shop\\..*",
                    registry="https://registry:8081", into="/lake/shop")
    query = ingest.start(spark)  # Spark's StreamingQuery

``pykafka-wire ingest`` and ``python -m pykafka_wire.ingest shop.toml`` do the same from a file. Spark plans the micro-batches;
tasks of this package or Spark write the files. This package decides which offsets of which topic go into which table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pykafka_wire.errors import IngestError

if TYPE_CHECKING:
    from pykafka_wire.ingest.ingest import Ingest
    from pykafka_wire.ingest.settings.model import Table

__all__ = ["Ingest", "IngestError", "Table"]


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:  # Any: PEP 562 leaves no narrower type
    if name == "Ingest":  # loads Spark
        from pykafka_wire.ingest.ingest import Ingest

        return Ingest
    if name == "Table":  # loads all options
        from pykafka_wire.ingest.settings.model import Table

        return Table
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
