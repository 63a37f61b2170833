"""The marker of an exactly-once query: a committed offset that names the last micro-batch in Kafka.

Owns the marker's serialized form and the name of its group. Does no I/O. What a marker means for the next micro-batch is
:mod:`~pykafka_wire.sink.exactly_once.decision`'s.

The marker of micro-batch b is the offset b + 1 on partition 0 of the marker topic, in a consumer group of the query's own, and
is committed in the same transaction as the records. Its metadata are a JSON object, at most 4096 bytes on the broker
(``offset.metadata.max.bytes``):

=========  =======  ==================================================================================
field      type     meaning
=========  =======  ==================================================================================
version    int      1; absent in the first form, which is otherwise the same
query      string   Spark's query id, from the checkpoint
batch      int      the micro-batch's id
count      int      its records
digest     string   16 hex digits of its rows, see :func:`~pykafka_wire.sink.exactly_once.digest.digest_of`
=========  =======  ==================================================================================

A reader ignores fields that it does not know, so a later form may add some under the same version. A form that an older
reader must not act on needs the next version: the reader refuses it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final, TypeAlias

from pykafka_wire.wire.groups.committed_offsets import CommittedOffset

VERSION: Final = 1
#: Other programs' metadata are quoted in errors up to this length.
_QUOTED: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """A micro-batch that is in Kafka, or is to be written.

    Attributes:
        n_records, digest: its content; the digest depends neither on the order of the rows nor on their split into tasks.
    """

    query_id: str
    batch_id: int
    n_records: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableMarker:
    """A committed offset in the marker's place that is not a marker, or one of a newer version.

    Attributes:
        description: what was found instead, for an error's text.
        version: the newer version, else None.
    """

    description: str
    version: int | None = None


#: What is committed in the marker's place; None for nothing.
FoundMarker: TypeAlias = Marker | UnreadableMarker | None


def encode_marker(marker: Marker) -> CommittedOffset:
    """A marker as the offset to commit."""
    fields = {
        "version": VERSION,
        "query": marker.query_id,
        "batch": marker.batch_id,
        "count": marker.n_records,
        "digest": marker.digest,
    }
    return CommittedOffset(marker.batch_id + 1, metadata=json.dumps(fields))


def decode_marker(committed: CommittedOffset | None) -> FoundMarker:
    """The marker in a committed offset, of version 1 or of the form before it; None for no offset."""
    if committed is None:
        return None
    quoted = repr(committed.metadata[:_QUOTED])
    foreign = UnreadableMarker(description=f"offset {committed.offset} with the metadata {quoted}, which is no marker")
    try:
        fields = json.loads(committed.metadata)
        version = int(fields.get("version", 0))
        if version > VERSION:
            return UnreadableMarker(description=f"a marker of version {version}", version=version)
        marker = Marker(
            query_id=str(fields["query"]),
            batch_id=int(fields["batch"]),
            n_records=int(fields["count"]),
            digest=str(fields["digest"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return foreign
    if marker.batch_id + 1 != committed.offset:  # set by a tool, as kafka-consumer-groups --reset-offsets
        return UnreadableMarker(
            description=f"offset {committed.offset} with the metadata of micro-batch {marker.batch_id}; was it reset by a tool?"
        )
    return marker


def marker_group(transactional_id: str) -> str:
    """The consumer group that holds the marker; an ACL for the transactional id as a prefix covers it."""
    return f"{transactional_id}.marker"
