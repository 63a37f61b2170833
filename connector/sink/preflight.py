"""Checks on the driver before any task runs: brokers, topics and the partitioner."""

from __future__ import annotations

import logging
from typing import Final

from pykafka_wire.options.sink import SinkOptions
from pykafka_wire.wire.cluster.cluster import Deadline
from pykafka_wire.wire.error_codes import UNKNOWN_TOPIC_GRACE_MS
from pykafka_wire.wire.errors import AuthenticationError, SettingsError, UnknownTopicError, WireError
from pykafka_wire.wire.process_clients import shared_cluster
from pykafka_wire.wire.produce.partitioner import Partitioner

_log = logging.getLogger(__name__)

#: The time for a micro-batch's check, beyond the time for which a new topic may be unknown to some brokers.
_CHECK_MS: Final = UNKNOWN_TOPIC_GRACE_MS + 3_000


def check_batch_write(options: SinkOptions) -> None:
    """Check what would fail every task of a batch write.

    Raises:
        WireError: no broker answers, or a topic does not exist.
        SettingsError: the partitioner cannot be imported.
    """
    Partitioner(options.client)
    cluster = shared_cluster(options.client)
    cluster.brokers()
    if topics := _named_topics(options):
        cluster.topics(topics)


def check_stream_write(options: SinkOptions) -> None:
    """As :func:`check_batch_write`, for a writer that Spark builds anew for every micro-batch.

    Spark reuses the processes, so metadata that is fresh enough is not requested again. A cluster that has never answered
    this process fails the query, even where the micro-batch has no rows and its tasks would never connect. Once it has
    answered, an outage is left to the tasks and their retries: only definite errors are raised here.
    """
    Partitioner(options.client)
    cluster = shared_cluster(options.client)
    cluster.brokers()
    if topics := _named_topics(options):
        deadline = Deadline.after_ms(_CHECK_MS)
        try:
            cluster.topics(topics, max_age_ms=options.client.metadata_max_age_ms, deadline=deadline)
        except (UnknownTopicError, AuthenticationError, SettingsError):
            raise  # each task would try the same credentials again, and accounts get locked
        except WireError as error:
            _log.debug("The topics %s could not be checked before the tasks: %s", topics, error)


def _named_topics(options: SinkOptions) -> list[str]:
    """The topics that the options name: those of a column are known to the tasks only."""
    marker_topic = None if options.exactly_once is None else options.exactly_once.marker_topic
    named = (options.topic, options.dead_letter_topic, marker_topic)
    return list(dict.fromkeys(topic for topic in named if topic is not None))
