"""Reads into typed columns: ours at the source against decoding expressions behind bytes, ours and the JVM connector's."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from connectors import JVM_TUNED, OURS, connector_named
from processes import CpuTime
from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import col, expr, from_json
from reads import cpu_per_record
from rig import Rig
from row_by_row import decode_protobuf_by_rows
from runs import Contender, Run
from typed_datasets import CHECK, TypedDataset

from pykafka_wire.functions import decode_avro, decode_json, decode_protobuf
from pykafka_wire.values import Registry

#: Bytes of Confluent's frame before an Avro value; SQL counts from 1.
_AFTER_FRAME = 6

#: A read's columns: ``value`` as a struct, ``partition`` and ``offset``.
Frame = Callable[[Rig, TypedDataset], DataFrame]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way from a topic to a typed column.

    Attributes:
        sums: SQL expressions that are measured; the order's own, over all fields, when empty.
        checked: with ``partition`` and ``offset``, where ``frame`` lacks them.
    """

    name: str
    frame: Frame
    sums: tuple[str, ...] = ()
    checked: Frame | None = None


def typed(rig: Rig, dataset: TypedDataset, columns: str = "") -> DataFrame:
    """Ours, decoded at the source; ``columns`` is the option, without it a row has all columns."""
    selected = {"columns": columns} if columns else {}
    options = _options(rig, dataset) | dataset.read_options(rig) | selected
    return connector_named(OURS).reader(rig.spark.read, options).load()


def behind(
    connector: str, expression: Callable[[Rig, TypedDataset], Column], rig: Rig, dataset: TypedDataset
) -> DataFrame:
    """A connector's bytes, and an expression that decodes ``value``."""
    frame = connector_named(connector).reader(rig.spark.read, _options(rig, dataset)).load()
    return frame.select(expression(rig, dataset).alias("value"), "partition", "offset")


def spark_avro(rig: Rig, dataset: TypedDataset) -> Column:
    """Spark's from_avro, behind the frame; the schema is one for all, whatever a frame says."""
    from pyspark.sql.avro.functions import from_avro

    return from_avro(expr(f"substring(value, {_AFTER_FRAME})"), dataset.order.avro)


def spark_json(rig: Rig, dataset: TypedDataset) -> Column:
    return from_json(col("value").cast("string"), dataset.order.ddl)


def column_avro(rig: Rig, dataset: TypedDataset) -> Column:
    return decode_avro(Registry(rig.registry_url), dataset.order.ddl)("value")


def column_json(rig: Rig, dataset: TypedDataset) -> Column:
    return decode_json(dataset.order.ddl)("value")


def column_protobuf(rig: Rig, dataset: TypedDataset) -> Column:
    return decode_protobuf(Registry(rig.registry_url), dataset.order.ddl)("value")


def rows_protobuf(rig: Rig, dataset: TypedDataset) -> Column:
    return decode_protobuf_by_rows(Registry(rig.registry_url), dataset.order.ddl)("value")


TYPED = Way(
    name=f"{OURS}, typed, columns=value",
    frame=partial(typed, columns="value"),
    checked=partial(typed, columns="value, partition, offset"),
)
TYPED_WITH_PLACE = Way(name=f"{OURS}, typed, all columns of a record", frame=typed)
JVM_FROM_AVRO = Way(name=f"{JVM_TUNED}, from_avro", frame=partial(behind, JVM_TUNED, spark_avro))
JVM_FROM_JSON = Way(name=f"{JVM_TUNED}, from_json", frame=partial(behind, JVM_TUNED, spark_json))
BYTES_FROM_AVRO = Way(name=f"{OURS}'s bytes, from_avro", frame=partial(behind, OURS, spark_avro))
BYTES_FROM_JSON = Way(name=f"{OURS}'s bytes, from_json", frame=partial(behind, OURS, spark_json))
BYTES_DECODE_AVRO = Way(name=f"{OURS}'s bytes, decode_avro", frame=partial(behind, OURS, column_avro))
BYTES_DECODE_JSON = Way(name=f"{OURS}'s bytes, decode_json", frame=partial(behind, OURS, column_json))
BYTES_DECODE_PROTOBUF = Way(name=f"{OURS}'s bytes, decode_protobuf", frame=partial(behind, OURS, column_protobuf))
BYTES_PROTOBUF_BY_ROWS = Way(
    name=f"{OURS}'s bytes, decode_protobuf by rows", frame=partial(behind, OURS, rows_protobuf)
)

#: Two of the eight fields, and what a query may compute of them.
_TWO_FIELDS = "value.id, value.amount"
TWO_SUMS = ("count(1)", "sum(value.id)", "sum(value.amount)")
TYPED_TWO_FIELDS = Way(
    name=f"{OURS}, columns=value.id, value.amount",
    frame=partial(typed, columns=_TWO_FIELDS),
    sums=TWO_SUMS,
)
TYPED_TWO_OF_ALL = Way(name=f"{OURS}, typed, two fields of all eight", frame=TYPED.frame, sums=TWO_SUMS)


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedRead:
    """All ways read the same topic whole into one aggregate; planning counts in. The first way is ours.

    Attributes:
        common: those of the sums that all ways compute, where they differ: these must agree. Else all of them must, and in a
            check before the runs the hash of every value beside its offset, too.
    """

    dataset: TypedDataset
    ways: tuple[Way, ...]
    common: tuple[str, ...] = ()

    def datasets(self) -> tuple[TypedDataset, ...]:
        return (self.dataset,)

    @contextlib.contextmanager
    def contenders(self, rig: Rig) -> Iterator[Sequence[Contender]]:
        rig.topic(self.dataset)

        def contender(way: Way) -> Contender:
            def check() -> object:
                return tuple((way.checked or way.frame)(rig, self.dataset).selectExpr(*CHECK).collect()[0])

            return Contender(name=way.name, run=partial(self._run, rig, way), check=None if self.common else check)

        yield [contender(way) for way in self.ways]

    def _run(self, rig: Rig, way: Way) -> Run:
        """CPU time stands beside the rate: it hardly changes when something else keeps the machine busy."""
        sums = way.sums or self.dataset.order.sums
        with CpuTime(rig.jvm_pid) as cpu:
            started = time.perf_counter()
            (row,) = way.frame(rig, self.dataset).selectExpr(*sums).collect()
            took_s = time.perf_counter() - started
        n_records = rig.n_records(self.dataset)
        result = tuple(row[sums.index(name)] for name in self.common or sums)
        return Run(value=n_records / took_s, result=result, beside=cpu_per_record(cpu, n_records))


def read_typed(dataset: TypedDataset, rig: Rig, options: dict[str, str]) -> None:
    """Reads a topic whole, all fields of it, for :class:`memory.Memory`."""
    typed(rig, dataset).selectExpr(*dataset.order.sums).collect()


def _options(rig: Rig, dataset: TypedDataset) -> dict[str, str]:
    return {"kafka.bootstrap.servers": rig.bootstrap_servers, "subscribe": rig.topic(dataset)}
