"""Whether a table holds each record of its topic exactly once: compared by partition and offset.

Ten million offsets are compared in pieces: of each 65,536 offsets a count and a sum of hashes, which find what is lost, doubled or
altered. Only pieces that differ are compared offset by offset.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name of it)

_PIECE: Final = 65_536
#: So many places are named of each kind; the counts are whole.
_MAX_NAMED: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What differs; ``lost``, ``doubled`` and ``unknown`` are the first places, ``(partition, offset)``.

    Attributes:
        n_expected: records that the table should have.
        lost: they should be there and are not.
        doubled: they are there more than once.
        unknown: they are there, and the topic has no such record.
    """

    n_expected: int
    n_lost: int = 0
    n_doubled: int = 0
    n_unknown: int = 0
    lost: tuple[tuple[int, int], ...] = ()
    doubled: tuple[tuple[int, int], ...] = ()
    unknown: tuple[tuple[int, int], ...] = ()

    @property
    def is_equal(self) -> bool:
        return not (self.n_lost or self.n_doubled or self.n_unknown)


def compare(expected: DataFrame, found: DataFrame) -> Comparison:
    """Compare the columns ``partition`` and ``offset`` of two frames, in which a record is one row."""
    pieces = [_pieces(each, name) for each, name in ((expected, "expected"), (found, "found"))]
    joined = pieces[0].join(pieces[1], ["partition", "piece"], "full").persist()
    try:
        n_expected = int(joined.agg(F.coalesce(F.sum("n_expected"), F.lit(0))).first()[0])  # type: ignore[index]
        same = F.col("n_expected").eqNullSafe(F.col("n_found")) & F.col("hash_expected").eqNullSafe(F.col("hash_found"))
        different = joined.where(~same).select("partition", "piece")
        if different.isEmpty():
            return Comparison(n_expected=n_expected)
        return _differences(expected, found, different, n_expected)
    finally:
        joined.unpersist()


def _piece() -> Any:
    return F.floor(F.col("offset") / _PIECE).alias("piece")


def _pieces(rows: DataFrame, name: str) -> DataFrame:
    digest = F.sum(F.xxhash64("partition", "offset").cast("decimal(38,0)"))
    return rows.groupBy("partition", _piece()).agg(F.count(F.lit(1)).alias(f"n_{name}"), digest.alias(f"hash_{name}"))


def _differences(expected: DataFrame, found: DataFrame, pieces: DataFrame, n_expected: int) -> Comparison:
    def counted(rows: DataFrame, name: str) -> DataFrame:
        inside = rows.withColumn("piece", _piece()).join(F.broadcast(pieces), ["partition", "piece"], "left_semi")
        return inside.groupBy("partition", "offset").agg(F.count(F.lit(1)).alias(name))

    both = counted(expected, "n_expected").join(counted(found, "n_found"), ["partition", "offset"], "full").persist()
    try:
        kinds = {
            "lost": F.col("n_found").isNull(),
            "doubled": F.col("n_found") > F.coalesce(F.col("n_expected"), F.lit(1)),
            "unknown": F.col("n_expected").isNull(),
        }
        numbers = both.agg(
            *(F.coalesce(F.sum(is_so.cast("long")), F.lit(0)).alias(f"n_{kind}") for kind, is_so in kinds.items())
        )
        places = {
            kind: tuple(
                (int(row[0]), int(row[1]))
                for row in both.where(is_so)
                .orderBy("partition", "offset")
                .limit(_MAX_NAMED)
                .select("partition", "offset")
                .collect()
            )
            for kind, is_so in kinds.items()
        }
        return Comparison(n_expected=n_expected, **numbers.first().asDict(), **places)  # type: ignore[union-attr, arg-type]
    finally:
        both.unpersist()
