"""What the driver does with a micro-batch, by the marker that it finds: write it, skip it, or refuse.

Owns the rule and the errors' texts. Pure: it neither reads nor writes a marker. M is the micro-batch to commit.

==========================================  ===================================================
the marker found                            decision
==========================================  ===================================================
of M, with the same count and digest        SKIP
of M, with others                           refuse; KEEP with ``onMarkerMismatch=skip``
of the micro-batch before M                 WRITE
of a later micro-batch                      refuse: the checkpoint was set back
of a newer version of this package          refuse
none, and M is 0                            WRITE; refuse if the id has committed before
anything else                               refuse; WRITE with ``failOnMissingMarker=false``
==========================================  ===================================================

Whatever is found under the option's ``markerTopic``: refuse if M's query has a later marker under another topic.

"Anything else" is no marker, an older one, another query's, or an offset that is no marker. Then it is unknown whether M is in
Kafka: also for M = 0, which a crashed driver may have written before the marker was lost. What such a marker lists is committed
before M replaces it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from pykafka_wire.errors import ExactlyOnceError
from pykafka_wire.sink.exactly_once.marker import VERSION, FoundMarker, Marker, UnreadableMarker


class Decision(Enum):
    """What to do with a micro-batch."""

    WRITE = "write"
    #: It is in Kafka, with the same rows.
    SKIP = "skip"
    #: It is in Kafka, with other rows, which are kept.
    KEEP = "keep"


def marker_of(batch: Marker, markers: Mapping[str, FoundMarker], marker_topic: str) -> FoundMarker:
    """Return the marker that decides on a micro-batch: the one under the query's marker topic.

    Args:
        markers: what is committed in the marker's group, by topic.

    Raises:
        ExactlyOnceError: the query's last marker is under another topic: the option has changed.
    """
    stored = markers.get(marker_topic)
    last = stored.batch_id if isinstance(stored, Marker) and stored.query_id == batch.query_id else -1
    for topic, marker in markers.items():
        if isinstance(marker, Marker) and marker.query_id == batch.query_id and marker.batch_id > last:
            raise ExactlyOnceError(
                f"markerTopic is {marker_topic}, and the marker of query {batch.query_id}, of micro-batch {marker.batch_id}, is "
                f"under the topic {topic}: set markerTopic={topic}. Without the option it is the topic that is written to."
            )
    return stored


def decide(
    batch: Marker,
    stored: FoundMarker,
    *,
    fail_on_missing: bool = True,
    keep_on_mismatch: bool = False,
    id_has_committed: bool = False,
) -> Decision:
    """Return the decision on a micro-batch.

    Args:
        batch: the micro-batch to commit.
        stored: what is committed in the marker's place.
        id_has_committed: whether the query's transactional id, or one of its tasks', has committed before, as far as is known.

    Raises:
        ExactlyOnceError: the micro-batch must not be written, because the marker does not match the checkpoint.
    """
    if isinstance(stored, UnreadableMarker) and stored.version is not None:
        raise ExactlyOnceError(
            f"the query's marker has version {stored.version}, and this pykafka-wire reads up to {VERSION}: a newer one wrote "
            "it. Upgrade pykafka-wire."
        )
    if isinstance(stored, Marker) and stored.query_id == batch.query_id:
        if stored.batch_id == batch.batch_id:
            if (stored.n_records, stored.digest) == (batch.n_records, batch.digest):
                return Decision.SKIP
            if keep_on_mismatch:
                return Decision.KEEP
            raise _mismatch(batch, stored)
        if stored.batch_id > batch.batch_id:
            raise ExactlyOnceError(
                f"micro-batch {stored.batch_id} is in Kafka already, and the query is at {batch.batch_id}: its checkpoint was "
                "set back, or a second run of the query is active. Use the checkpoint that matches the marker, or a new "
                "checkpoint with a kafka.transactional.id of its own."
            )
        if stored.batch_id == batch.batch_id - 1:
            return Decision.WRITE
    if not fail_on_missing or (stored is None and batch.batch_id == 0 and not id_has_committed):
        return Decision.WRITE
    raise _missing(batch, stored)


def _mismatch(batch: Marker, stored: Marker) -> ExactlyOnceError:
    return ExactlyOnceError(
        f"micro-batch {batch.batch_id} is in Kafka already, with {stored.n_records} records (digest {stored.digest}), and this "
        f"run computed it with {batch.n_records} (digest {batch.digest}): the query does not return the same rows when a "
        "micro-batch runs again, or the registry has a newer schema that encodes its typed columns differently. To keep what is "
        "in Kafka and continue, set onMarkerMismatch=skip for one start; then make the query deterministic (no rand(), "
        "current_timestamp() or changing lookup tables), or set valueSchema to write with one schema."
    )


def missing_parts_text(marker: Marker) -> str:
    """Return which parts of a list are missing, for an error's text."""
    numbers = ", ".join(map(str, marker.missing_parts))
    return f"part {numbers} of the list (was its consumer group, which ends with .marker.{marker.missing_parts[0]}, deleted?)"


def _missing(batch: Marker, stored: FoundMarker) -> ExactlyOnceError:
    if stored is None and batch.batch_id == 0:
        seen = (
            "there is no marker, though its kafka.transactional.id has committed a transaction (was the marker's group "
            "deleted? does another producer use the id?)"
        )
    elif stored is None:
        seen = (
            "there is no marker (did it expire, offsets.retention.minutes? was its group deleted? did the query run without "
            "exactly-once, or with another kafka.transactional.id?)"
        )
    elif isinstance(stored, UnreadableMarker):
        seen = f"in the marker's place there is {stored.description}"
    elif stored.query_id != batch.query_id:
        seen = (
            f"the marker is of query {stored.query_id}, micro-batch {stored.batch_id} (another query with the same "
            "kafka.transactional.id, or this one with another checkpoint)"
        )
    else:
        seen = f"the marker is of micro-batch {stored.batch_id}"
    listed = ""
    if isinstance(stored, Marker) and not stored.is_settled:
        without = f", without {missing_parts_text(stored)}" if stored.missing_parts else ""
        listed = (
            f" The marker lists {len(stored.pending)} decided transactions{without}, which may not have ended: "
            "failOnMissingMarker=false commits them first."
        )
    return ExactlyOnceError(
        f"query {batch.query_id} is at micro-batch {batch.batch_id}, and {seen}: it is unknown whether micro-batch "
        f"{batch.batch_id} is in Kafka. Use a kafka.transactional.id of this query's own, or compare the topic with the "
        "source and set failOnMissingMarker=false for one start." + listed
    )
