"""The module that Spark's lookup finds: it imports every installed top-level ``pyspark_*`` module and registers the
``DefaultSource`` it holds, so that ``format("pykafka-wire")`` needs no ``register()`` call.

One such module that raises disables the lookup for all of them, so this one never does: without a usable pyspark it
simply offers no ``DefaultSource``.
"""

from __future__ import annotations

import logging

try:
    from pykafka_wire.datasource import PykafkaWireDataSource as DefaultSource
except Exception as error:
    logging.getLogger(__name__).warning("Spark's lookup will not find pykafka-wire: %s", error)
else:
    __all__ = ["DefaultSource"]
