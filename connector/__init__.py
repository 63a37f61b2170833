"""Kafka for PySpark without a jar: the data source ``pykafka-wire`` and the Kafka client beneath it.

``spark.readStream.format("pykafka-wire")`` finds the source by itself once the package is installed (Spark 4.0 and
newer import every installed top-level ``pyspark_*`` module). Where that lookup does not reach, as with ``--py-files``::

    from pykafka_wire import PykafkaWireDataSource

    spark.dataSource.register(PykafkaWireDataSource)

This module imports nothing of pyspark until the class is asked for: :func:`read_topic`, which gives topics to DuckDB, Polars and
whatever else takes Arrow, and the client in :mod:`pykafka_wire.wire` work without Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pykafka_wire.arrow_reader import read_topic
    from pykafka_wire.checkpoints.spark_files import checkpoint_position
    from pykafka_wire.checkpoints.tables import table_position
    from pykafka_wire.datasource import PykafkaWireDataSource
    from pykafka_wire.lag_listener import LagListener

__version__ = "0.1.0"
__all__ = ["LagListener", "PykafkaWireDataSource", "__version__", "checkpoint_position", "read_topic", "table_position"]


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:  # Any: PEP 562 leaves no narrower type
    if name == "PykafkaWireDataSource":
        try:
            from pykafka_wire.datasource import PykafkaWireDataSource
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "pyspark":
                raise
            raise _spark_missing(error) from error
        return PykafkaWireDataSource
    if name == "LagListener":
        from pykafka_wire.lag_listener import LagListener

        return LagListener
    if name == "checkpoint_position":
        from pykafka_wire.checkpoints.spark_files import checkpoint_position

        return checkpoint_position
    if name == "table_position":
        from pykafka_wire.checkpoints.tables import table_position

        return table_position
    if name == "read_topic":
        from pykafka_wire.arrow_reader import read_topic

        return read_topic
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _spark_missing(error: ModuleNotFoundError) -> ImportError:
    """Return the error where pyspark is not installed, or is too old for data sources in Python."""
    try:
        import pyspark
    except ModuleNotFoundError:
        return ImportError(
            "[PYKAFKA_WIRE_SPARK_VERSION] pyspark is not installed. pip install 'pykafka-wire[spark]', or use the Python "
            "that your platform's Spark brings along."
        )
    return ImportError(
        f"[PYKAFKA_WIRE_SPARK_VERSION] pyspark {pyspark.__version__} has no data sources in Python ({error}). Spark 4.0 or "
        "newer is needed, on the driver and on executors: pip install 'pyspark>=4.0'."
    )
