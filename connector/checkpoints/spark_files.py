"""Checkpoints in file systems that Spark knows and pyarrow does not, read by the user's session, classic or Connect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pykafka_wire.checkpoints.files import LoggedFile
from pykafka_wire.checkpoints.positions import position_at
from pykafka_wire.checkpoints.query_log import QueryLog
from pykafka_wire.checkpoints.reference import PREFIX, parse_reference
from pykafka_wire.wire.masking import without_secrets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NOT_FOUND: Final = "PATH_NOT_FOUND"


def default_file_system(spark: SparkSession) -> str:
    """Return the URI of the file system in which a classic session takes paths that name none."""
    return str(spark._jsparkSession.sessionState().newHadoopConf().get("fs.defaultFS"))


class SparkFiles:
    """A checkpoint that Spark reads, as ``CheckpointFiles``: a small job for each question."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._path = path

    @property
    def shown(self) -> str:
        return without_secrets(self._path)

    def logged(self, folder: str) -> list[LoggedFile]:
        rows = self._rows(folder, "path", "modificationTime")
        named = [(path.rpartition("/")[2], modified) for path, modified in rows]
        return [
            LoggedFile(int(name), int(modified.timestamp() * 1000))
            for name, modified in named
            if name.isascii() and name.isdigit()
        ]

    def read(self, name: str) -> str | None:
        rows = self._rows(name, "content")
        return bytes(rows[0][0]).decode("utf-8", errors="replace") if rows else None

    def _rows(self, name: str, *columns: str) -> list[tuple[Any, ...]]:  # Any: columns of several types
        from pyspark.errors import AnalysisException

        frame: DataFrame
        try:
            frame = self._spark.read.format("binaryFile").load(f"{self._path}/{name}").select(*columns)
            return [tuple(row) for row in frame.collect()]
        except AnalysisException as error:
            if error.getCondition() != _NOT_FOUND:
                raise
            return []


def checkpoint_position(spark: SparkSession, place: str) -> str:
    """Return where a query stands, as text for ``startingOffsets`` or ``endingOffsets``.

    The option ``checkpoint:PATH`` does the same for file systems that pyarrow knows. This reads the checkpoint through the
    session, from any file system that Spark knows, with Spark's own credentials.

    Args:
        place: ``PATH``, ``PATH#MICRO_BATCH``, ``PATH#MICRO_BATCH/SOURCE`` or ``PATH#/SOURCE``.

    Raises:
        OptionError: the place is malformed.
        OffsetsError: there is no such checkpoint, micro-batch or source; or two sources have different offsets of a topic.
    """
    reference = parse_reference(place, "the place")
    position = position_at(QueryLog(SparkFiles(spark, reference.path)), reference, lambda _: True)
    return PREFIX + position.to_json(str(reference))
