"""The largest record batch that a topic accepts, as the brokers describe it."""

from __future__ import annotations

import logging
import time
from typing import Final

from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.admin import describe_topic_configs
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import WireError
from pykafka_wire.wire.settings import ClientSettings

logger = logging.getLogger(__name__)

_LIMIT_SETTING: Final = "max.message.bytes"


class BatchLimits:
    """The largest record batch that each topic accepts: what the brokers describe as its ``max.message.bytes``, not older than
    ``metadata.max.age.ms``. Brokers compare it with a batch as it is sent: compressed, with its header."""

    def __init__(self, cluster: Cluster, settings: ClientSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._known: dict[str, tuple[float, int | None]] = {}

    def limit(self, topic: str) -> int | None:
        """Return the limit of `topic`; None if it is unknown, as without the right to describe the topic's settings."""
        known = self._known.get(topic)
        if known is None or (time.monotonic() - known[0]) * 1000 > self._settings.metadata_max_age_ms:
            known = self._known[topic] = time.monotonic(), self._ask(topic)
        return known[1]

    def lower(self, topic: str, n_bytes: int) -> None:
        """Lower the limit to half of `n_bytes`, which was too large, if the known limit allows it."""
        if topic in self._known:
            asked_at, limit = self._known[topic]
            if limit is None or limit >= n_bytes:
                self._known[topic] = asked_at, max(1, n_bytes // 2)

    def _ask(self, topic: str) -> int | None:
        deadline = Deadline.after_ms(self._settings.request_timeout_ms)
        try:
            configs = describe_topic_configs(self._cluster, [topic], [_LIMIT_SETTING], deadline=deadline)
            return int(configs[topic][_LIMIT_SETTING] or 0) or None
        except (WireError, KeyError, ValueError) as error:
            logger.debug("%s of %s is not known: %s", _LIMIT_SETTING, topic, error)
            return None
