"""Items over values with schemas: reads into typed columns, and writes of them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from item import Item
from memory import Memory
from runs import Unit
from typed_datasets import FLAT, NESTED, TypedDataset, ValueFormat
from typed_reads import (
    BYTES_DECODE_AVRO,
    BYTES_DECODE_PROTOBUF,
    BYTES_FROM_AVRO,
    BYTES_FROM_JSON,
    BYTES_PROTOBUF_BY_ROWS,
    JVM_FROM_AVRO,
    JVM_FROM_JSON,
    TWO_SUMS,
    TYPED,
    TYPED_TWO_FIELDS,
    TYPED_TWO_OF_ALL,
    TYPED_WITH_PLACE,
    TypedRead,
    Way,
    read_typed,
)
from typed_writes import JVM_TO_AVRO, LIMITED_BY_ROWS, AvroWrite


def typed_items(n_records: int) -> Iterator[Item]:
    """Every format, against what one would do without it; eight flat fields where the name says nothing else."""
    avro = TypedDataset(n_records=n_records)
    json = TypedDataset(n_records=n_records, value_format=ValueFormat.JSON)
    fewer = n_records // 3  # of what some of the ways take seconds for
    protobuf = TypedDataset(n_records=fewer, value_format=ValueFormat.PROTOBUF)
    nested = TypedDataset(n_records=fewer, order=NESTED)
    reads: tuple[tuple[str, str, TypedDataset, tuple[Way, ...], dict[str, float]], ...] = (
        ("avro", "Avro", avro, (TYPED, TYPED_WITH_PLACE, JVM_FROM_AVRO, BYTES_FROM_AVRO), {JVM_FROM_AVRO.name: 1.5}),
        ("json", "JSON", json, (TYPED, TYPED_WITH_PLACE, JVM_FROM_JSON, BYTES_FROM_JSON), {JVM_FROM_JSON.name: 2.0}),
        (
            "protobuf",
            "Protobuf",
            protobuf,
            (TYPED, BYTES_PROTOBUF_BY_ROWS, BYTES_DECODE_PROTOBUF),
            {BYTES_PROTOBUF_BY_ROWS.name: 4.0},
        ),
        (
            "avro-nested",
            "Avro, three levels of records, two arrays of records, a map",
            nested,
            (TYPED, JVM_FROM_AVRO, BYTES_FROM_AVRO),
            {JVM_FROM_AVRO.name: 1.0},
        ),
        (
            "decode-avro",
            "decode_avro on a column, in the same plan as from_avro",
            avro,
            (BYTES_DECODE_AVRO, BYTES_FROM_AVRO),
            {BYTES_FROM_AVRO.name: 0.6},
        ),
    )
    for name, title, dataset, ways, goals in reads:
        yield Item(
            name=f"typed-{name}",
            title=f"typed read, {title}",
            unit=Unit.RATE,
            work=TypedRead(dataset=dataset, ways=ways),
            goals=goals,
            seconds=60,
        )
    yield Item(
        name="typed-avro-pruned",
        title="typed read, Avro, two fields of eight",
        unit=Unit.RATE,
        work=TypedRead(dataset=avro, ways=(TYPED_TWO_FIELDS, TYPED, TYPED_TWO_OF_ALL), common=TWO_SUMS),
        goals={TYPED.name: 1.3},
        seconds=30,
    )
    for name, title, conf in (
        ("typed-avro-write", "typed write, Avro", {}),
        ("typed-avro-write-rows", "typed write, Avro, Arrow batches limited by rows alone", LIMITED_BY_ROWS),
    ):
        yield Item(
            name=name,
            title=title,
            unit=Unit.RATE,
            work=AvroWrite(dataset=TypedDataset(n_records=fewer, order=FLAT)),
            goals={JVM_TO_AVRO: 1.0},
            conf=conf,
            seconds=90,
        )
    for dataset, what in ((avro, "Avro"), (json, "JSON"), (protobuf, "Protobuf"), (nested, "nested Avro")):
        yield Item(
            name=f"typed-memory-{what.lower().replace(' ', '-')}",
            title=f"peak memory of a Python worker, typed read, {what}",
            unit=Unit.MEMORY,
            work=Memory(dataset=dataset, transfer=partial(read_typed, dataset)),
            limit=300.0,
            seconds=25,
        )
