"""Orders written by google.protobuf: Spark's to_protobuf is in a jar that was not found for Scala 2.13.

Executors get this module by value: they cannot import it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import DataFrame

SCHEMA = """syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Order {
  int64 id = 1;
  string country = 2;
  double amount = 3;
  int32 quantity = 4;
  optional string note = 5;
  google.protobuf.Timestamp at = 6;
  bool paid = 7;
  string sku = 8;
}
"""


def encoded(frame: DataFrame, *, prefix: bytes) -> DataFrame:
    """``frame`` (id bigint, value struct) with each ``value`` as a message behind `prefix`."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])

    def encode(batches: Iterator[Any]) -> Iterator[Any]:  # Any: pyarrow has no types
        import pyarrow as pa

        message = message_class()
        for batch in batches:
            values = []
            for row in batch.column("value").to_pylist():
                moment = row.pop("at")
                order = message(**{name: value for name, value in row.items() if value is not None})
                order.at.FromDatetime(moment)
                values.append(prefix + order.SerializeToString())
            yield pa.record_batch([batch.column("id"), pa.array(values, pa.binary())], ["id", "value"])

    return frame.mapInArrow(encode, "id bigint, value binary")


def message_class() -> Any:  # Any: google.protobuf makes the class
    """The class of SCHEMA's message, built without a compiler of .proto files."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

    file = descriptor_pb2.FileDescriptorProto(name="order.proto", syntax="proto3")
    file.dependency.append(timestamp_pb2.DESCRIPTOR.name)
    order = file.message_type.add(name="Order")
    field = descriptor_pb2.FieldDescriptorProto
    types = {
        "id": field.TYPE_INT64,
        "country": field.TYPE_STRING,
        "amount": field.TYPE_DOUBLE,
        "quantity": field.TYPE_INT32,
        "note": field.TYPE_STRING,
        "at": field.TYPE_MESSAGE,
        "paid": field.TYPE_BOOL,
        "sku": field.TYPE_STRING,
    }
    for number, (name, type_) in enumerate(types.items(), 1):
        order.field.add(name=name, number=number, type=type_, label=field.LABEL_OPTIONAL)
    order.field[5].type_name = ".google.protobuf.Timestamp"
    order.field[4].proto3_optional, order.field[4].oneof_index = True, 0
    order.oneof_decl.add(name="_note")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Order"))
