"""An input partition crosses to the executors, and Spark prints it."""

from __future__ import annotations

import pickle
import uuid

from pyspark.sql.datasource import InputPartition

from pykafka_wire.source.input_partition import KafkaInputPartition
from pykafka_wire.wire.topic_partitions import OffsetRange


def range_of(partition: int) -> OffsetRange:
    return OffsetRange(
        topic="orders", partition=partition, start_offset=1, end_offset=5, leader_epoch=2, topic_id=uuid.UUID(int=9)
    )


def test_the_ranges_survive_pickling() -> None:
    found = pickle.loads(pickle.dumps(KafkaInputPartition([range_of(0), range_of(1)])))
    assert isinstance(found, InputPartition)
    assert found.ranges == (range_of(0), range_of(1))


def test_the_text_names_the_ranges_and_stays_short() -> None:
    assert repr(KafkaInputPartition([range_of(3)])) == "KafkaInputPartition(orders-3 [1, 5))"
    assert len(repr(KafkaInputPartition([range_of(p) for p in range(1000)]))) < 200


def test_it_holds_nothing_else() -> None:
    assert vars(KafkaInputPartition([range_of(0)])).keys() == {"ranges", "query", "reader_schemas", "receiver"}
