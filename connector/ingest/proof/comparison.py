"""Compares a table with a range of its topic by partition and offset: does it hold each record exactly once?

Many offsets are compared in pieces of 65,536: a count and a sum of hashes for each piece show whether records are lost, doubled or
altered. Only pieces that differ are compared offset by offset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name of it)

from pykafka_wire.ingest.records.ranges import before
from pykafka_wire.ingest.spark.sql import any_of

_PIECE: Final = 65_536
#: A lost range: partition, start offset, end offset; None means the end of the log.
LostRange = tuple[int, int, int | None]
#: The most places listed for each kind. The counts are complete.
_MAX_NAMED: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The differences; ``lost``, ``doubled`` and ``unknown`` list the first places as ``(partition, offset)``.

    Attributes:
        n_expected: the number of records that the table should have.
        lost: records that are missing in the table.
        doubled: records that the table has more than once.
        unknown: rows of the table for which the topic has no record.
        n_in_ledger: missing offsets that the ledger of lost ranges names.
        n_gone: rows before the first offset that the topic still has.
        n_compacted: rows whose records a compacted topic no longer has.
    """

    n_expected: int
    n_lost: int = 0
    n_doubled: int = 0
    n_unknown: int = 0
    n_in_ledger: int = 0
    n_gone: int = 0
    n_compacted: int = 0
    lost: tuple[tuple[int, int], ...] = ()
    doubled: tuple[tuple[int, int], ...] = ()
    unknown: tuple[tuple[int, int], ...] = ()

    @property
    def is_equal(self) -> bool:
        return not (self.n_lost or self.n_doubled or self.n_unknown)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanations:
    """Facts that explain differences between a table and its topic.

    Attributes:
        first: the first offset that the topic still has, by partition.
        end: the end of the range, by partition. Compaction explains no difference after it.
        is_compacted: whether the topic is compacted.
    """

    first: Mapping[int, int] = field(default_factory=dict)
    end: Mapping[int, int] = field(default_factory=dict)
    is_compacted: bool = False
    ledger: Sequence[LostRange] = ()

    def is_gone(self) -> Column:
        return before(self.first)

    def is_compacted_away(self) -> Column:
        return F.lit(self.is_compacted) & before(self.end)

    def is_in_ledger(self) -> Column:
        offset = F.col("offset")
        return any_of(
            [
                (F.col("partition") == partition) & (offset >= start) & (F.lit(True) if end is None else offset < end)
                for partition, start, end in self.ledger
            ]
        )


def compare(expected: DataFrame, actual: DataFrame, explanations: Explanations | None = None) -> Comparison:
    """Compare the columns ``partition`` and ``offset`` of two DataFrames with one row for each record."""
    pieces = [_pieces(rows, name) for rows, name in ((expected, "expected"), (actual, "found"))]
    joined = pieces[0].join(pieces[1], ["partition", "piece"], "full").persist()
    try:
        n_expected = int(joined.agg(F.coalesce(F.sum("n_expected"), F.lit(0))).first()[0])  # type: ignore[index]
        same = F.col("n_expected").eqNullSafe(F.col("n_found")) & F.col("hash_expected").eqNullSafe(F.col("hash_found"))
        different = joined.where(~same).select("partition", "piece")
        if different.isEmpty():
            return Comparison(n_expected=n_expected)
        return _differences(expected, actual, different, n_expected, explanations or Explanations())
    finally:
        joined.unpersist()


def _piece() -> Column:
    return F.floor(F.col("offset") / _PIECE).alias("piece")


def _pieces(rows: DataFrame, name: str) -> DataFrame:
    hashed = F.xxhash64("offset")
    halves = F.struct(
        F.sum(F.shiftrightunsigned(hashed, 32)), F.sum(hashed.bitwiseAND(0xFFFF_FFFF))
    )  # no sum overflows
    return rows.groupBy("partition", _piece()).agg(F.count(F.lit(1)).alias(f"n_{name}"), halves.alias(f"hash_{name}"))


def _differences(
    expected: DataFrame, actual: DataFrame, pieces: DataFrame, n_expected: int, explanations: Explanations
) -> Comparison:
    def counted(rows: DataFrame, name: str) -> DataFrame:
        inside = rows.withColumn("piece", _piece()).join(F.broadcast(pieces), ["partition", "piece"], "left_semi")
        return inside.groupBy("partition", "offset").agg(F.count(F.lit(1)).alias(name))

    both = counted(expected, "n_expected").join(counted(actual, "n_found"), ["partition", "offset"], "full").persist()
    try:
        is_missing, is_extra = F.col("n_found").isNull(), F.col("n_expected").isNull()
        is_gone, is_compacted = explanations.is_gone(), explanations.is_compacted_away()
        kinds = {
            "lost": is_missing & ~explanations.is_in_ledger(),
            "doubled": F.col("n_found") > F.coalesce(F.col("n_expected"), F.lit(1)),
            "unknown": is_extra & ~is_gone & ~is_compacted,
            "in_ledger": is_missing & explanations.is_in_ledger(),
            "gone": is_extra & is_gone,
            "compacted": is_extra & ~is_gone & is_compacted,
        }
        numbers = both.agg(
            *(F.coalesce(F.sum(is_so.cast("long")), F.lit(0)).alias(f"n_{kind}") for kind, is_so in kinds.items())
        )
        counts = numbers.first().asDict()  # type: ignore[union-attr]
        places = {
            kind: tuple(
                (int(row[0]), int(row[1]))
                for row in both.where(kinds[kind])
                .orderBy("partition", "offset")
                .limit(_MAX_NAMED)
                .select("partition", "offset")
                .collect()
            )
            for kind in ("lost", "doubled", "unknown")
            if counts[f"n_{kind}"]
        }
        return Comparison(n_expected=n_expected, **counts, **places)  # type: ignore[arg-type]
    finally:
        both.unpersist()
