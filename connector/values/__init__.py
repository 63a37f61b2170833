"""Record values as columns: JSON, and Avro, JSON Schema and Protobuf as Confluent's serializers frame them.

    from pykafka_wire.values import Registry, decode_avro, encode_avro

    registry = Registry("https://registry:8081", basic_auth="env:REGISTRY_USER_INFO")
    order = decode_avro(registry, "id BIGINT, pieces INT", on_error="divert")
    decoded = topic.select("*", order("value").alias("order"))
    good = decoded.where("order.error IS NULL").select("order.value.*")
    broken = decoded.where("order.error IS NOT NULL").select("topic", "partition", "offset", "order.error")

Each ``decode_*`` and ``encode_*`` makes an Arrow UDF: call it with a column, or register it for SQL with
``spark.udf.register``. Spark 4.1 or newer. :class:`~pykafka_wire.values.converter.Converter` beneath works on Arrow arrays
without Spark. ``pip install 'pykafka-wire[values]'`` brings the libraries; JSON alone needs none.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pykafka_wire.values.converter import OnError
    from pykafka_wire.values.functions import (
        decode_avro,
        decode_json,
        decode_json_schema,
        decode_protobuf,
        encode_avro,
        encode_json_schema,
        encode_protobuf,
    )
    from pykafka_wire.values.registry.client import Registry
    from pykafka_wire.values.registry.registered_schema import Schema
    from pykafka_wire.values.registry.settings import registry_of

#: Loaded when they are asked for: a worker that reads Avro needs no Protobuf, and none needs to write.
_MODULES: Final = {
    "OnError": "converter",
    "Registry": "registry.client",
    "Schema": "registry.registered_schema",
    "registry_of": "registry.settings",
}

__all__ = [
    "OnError",
    "Registry",
    "Schema",
    "decode_avro",
    "decode_json",
    "decode_json_schema",
    "decode_protobuf",
    "encode_avro",
    "encode_json_schema",
    "encode_protobuf",
    "registry_of",
]


def __getattr__(name: str) -> Any:  # Any: PEP 562 leaves no narrower type
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'functions')}"), name)
