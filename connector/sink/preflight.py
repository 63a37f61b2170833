"""Checks on the driver, of what would fail every task: brokers, topics and the partitioner."""

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

#: The time for a micro-batch's check: for the first contact, and for the topics, a new one of which some brokers may not know yet.
_CONTACT_MS: Final = 3_000
_TOPICS_MS: Final = UNKNOWN_TOPIC_GRACE_MS + 3_000


def check_batch_write(options: SinkOptions) -> None:
    """Check what would fail every task of a batch write.

    Raises:
        WireError: no broker responds, or a topic does not exist.
        SettingsError: the partitioner cannot be imported.
    """
    Partitioner(options.client)
    cluster = shared_cluster(options.client)
    cluster.metadata.brokers()
    if topics := _named_topics(options):
        cluster.metadata.topics(topics)


def check_stream_write(options: SinkOptions) -> None:
    """As :func:`check_batch_write`, for a writer that Spark builds anew for every micro-batch. Only definite errors are raised.

    An outage is left to the tasks and their retries. This process cannot know whether the query has written before: Spark starts
    a new one after a minute without a micro-batch. In one that lives on, metadata that is fresh enough is not requested again.

    Raises:
        UnknownTopicError: a topic does not exist.
        AuthenticationError: each task would try the same credentials again, and accounts get locked.
        SettingsError: the partitioner cannot be imported.
    """
    Partitioner(options.client)
    cluster = shared_cluster(options.client)
    try:
        cluster.metadata.brokers(deadline=Deadline.after_ms(_CONTACT_MS))
        if topics := _named_topics(options):
            deadline = Deadline.after_ms(_TOPICS_MS)
            cluster.metadata.topics(topics, max_age_ms=options.client.metadata_max_age_ms, deadline=deadline)
    except (UnknownTopicError, AuthenticationError, SettingsError):
        raise
    except WireError as error:
        _log.debug("Brokers and topics could not be checked before the tasks: %s", error)


def check_brokers(options: SinkOptions) -> None:
    """Check that the brokers respond, after a new query's first micro-batch had no rows: none of its tasks has connected.

    Raises:
        WireError: no broker responds.
    """
    shared_cluster(options.client).metadata.brokers()


def _named_topics(options: SinkOptions) -> list[str]:
    """The topics that the options name: those of a column are known to the tasks only."""
    marker_topic = None if options.exactly_once is None else options.exactly_once.marker_topic
    named = (options.topic, options.dead_letter_topic, marker_topic)
    return list(dict.fromkeys(topic for topic in named if topic is not None))
