"""Record values as columns: JSON, and Avro, JSON Schema and Protobuf as Confluent's serializers frame them.

Knows neither Spark nor brokers: :class:`~pykafka_wire.values.converter.Converter` works on Arrow arrays, and
:mod:`pykafka_wire.functions` makes functions for Spark's columns of it. ``pip install 'pykafka-wire[values]'`` brings the
libraries; JSON alone needs none.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pykafka_wire.values.converter import OnError
    from pykafka_wire.values.registry.address import Registry
    from pykafka_wire.values.registry.registered_schema import Schema
    from pykafka_wire.values.registry.settings import registry_of

#: Loaded when they are asked for: a worker that reads JSON needs no registry.
_MODULES: Final = {
    "OnError": "converter",
    "Registry": "registry.address",
    "Schema": "registry.registered_schema",
    "registry_of": "registry.settings",
}

__all__ = [
    "OnError",
    "Registry",
    "Schema",
    "registry_of",
]


def __getattr__(name: str) -> Any:  # Any: PEP 562 leaves no narrower type
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
