"""The marker of an exactly-once query: a committed offset that names the last micro-batch in Kafka.

Owns the marker's serialized form, the names of its groups, and how it is read and committed. What a marker means for the next
micro-batch is :mod:`~pykafka_wire.sink.exactly_once.decision`'s.

The marker of micro-batch b is the offset b + 1 on partition 0 of the marker topic, in a consumer group of the query's own. Its
metadata are a JSON object, at most 4096 characters on the broker (``offset.metadata.max.bytes``):

=========  =======  ==================================================================================
field      type     meaning
=========  =======  ==================================================================================
version    int      1, or 2 with a list of transactions; absent in the first form, otherwise as 1
query      string   Spark's query id, from the checkpoint
batch      int      the micro-batch's id
count      int      its records
digest     string   16 hex digits of its rows, see :func:`~pykafka_wire.sink.exactly_once.digest.digest_of`
protocol   string   version 2: TV1 or TV2, the version of the transaction protocol that the list is written in
parts      int      version 2: the list is in so many offsets: this one, and one in each further group
tasks      array    version 2: the decided transactions that may not have ended yet, see below
=========  =======  ==================================================================================

Version 1: all of the micro-batch is in Kafka. Version 2: it is decided, and the transactions of the list are to be committed. An
element of ``tasks`` is an array: the task's index, the transactional id without the query's, producer id, epoch, count, digest, and
where the records are, as arrays of topic, partition, first and last offset. Long lists leave these out, and so does a task that
wrote to many partitions. The further parts of a list have the fields version, query, batch, part (from 1) and tasks.

A reader ignores fields that it does not know, so a later form may add some under the same version. A form that an older
reader must not act on needs the next version: the reader refuses it.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from pykafka_wire.sink.exactly_once.task_ids import task_id, task_name
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.groups.committed_offsets import CommittedOffset, fetch_offsets
from pykafka_wire.wire.records.producer_identity import ProducerIdentity
from pykafka_wire.wire.topic_partitions import TopicPartition
from pykafka_wire.wire.transactions.coordinator import TransactionHandle, TransactionVersion

if TYPE_CHECKING:  # commands that read markers need no codecs
    from pykafka_wire.options.sink import ExactlyOnceOptions
    from pykafka_wire.wire.transactions.transaction import Transaction

#: The newest version that is read. A marker without a list is written in version 1.
VERSION: Final = 2
_SETTLED: Final = 1
#: The broker's default of ``offset.metadata.max.bytes``.
_MAX_CHARACTERS: Final = 4096
#: A list of more parts leaves out where its records are, which only errors name.
_MAX_PARTS_WITH_RANGES: Final = 16
#: So does a task that would take more characters with them: each part must have room for any of its tasks.
_MAX_TASK_CHARACTERS: Final = 1024
#: Other programs' metadata are quoted in errors up to this length.
_MAX_QUOTED: Final = 60


class WrittenRange(NamedTuple):
    """Where a task's records are in a topic-partition; other records may stand between them."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedTask:
    """A task's transaction that is to be committed.

    Attributes:
        task: the task's index in its stage.
        n_records, digest: its content, by which a replay's task is found to be the same.
        ranges: empty in a long list, and where there are many.
    """

    task: int
    transaction: TransactionHandle
    n_records: int
    digest: str
    ranges: tuple[WrittenRange, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """A micro-batch that is in Kafka, is decided, or is to be written.

    Attributes:
        n_records, digest: its content; the digest depends neither on the order of the rows nor on their split into tasks.
        pending: transactions that were decided with it, and that may not have ended yet.
        missing_parts: parts of their list that are not there any more, so that it is not known what else was decided.
    """

    query_id: str
    batch_id: int
    n_records: int
    digest: str
    pending: tuple[DecidedTask, ...] = ()
    missing_parts: tuple[int, ...] = ()

    @property
    def is_settled(self) -> bool:
        """Return whether all of it is in Kafka."""
        return not self.pending and not self.missing_parts

    def settle(self) -> Marker:
        """Return the marker after all of its transactions have ended."""
        return replace(self, pending=(), missing_parts=())


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


def digest_text(digest: int) -> str:
    """Return a digest as markers have it."""
    return f"{digest & 0xFFFFFFFFFFFFFFFF:016x}"


def encode_marker(marker: Marker, transactional_id: str) -> list[CommittedOffset]:
    """Return a marker as the offsets to commit: the first in the marker's group, each further one in a group of its own."""
    offset = marker.batch_id + 1
    fields: dict[str, Any] = {
        "version": VERSION if marker.pending else _SETTLED,
        "query": marker.query_id,
        "batch": marker.batch_id,
        "count": marker.n_records,
        "digest": marker.digest,
    }
    if not marker.pending:
        return [CommittedOffset(offset, metadata=json.dumps(fields))]
    fields["protocol"] = marker.pending[0].transaction.version.name
    parts = _parts(fields, [_task_fields(task, transactional_id) for task in marker.pending])
    if len(parts) > _MAX_PARTS_WITH_RANGES:
        without = [_task_fields(replace(task, ranges=()), transactional_id) for task in marker.pending]
        parts = _parts(fields, without)
    return [CommittedOffset(offset, metadata=_compact(part)) for part in parts]


def _parts(fields: Mapping[str, Any], tasks: Sequence[list[Any]]) -> list[dict[str, Any]]:
    """Return the metadata of the parts; each has as many tasks as fit."""
    further = {name: fields[name] for name in ("version", "query", "batch")}
    parts: list[dict[str, Any]] = [{**fields, "parts": len(tasks), "tasks": []}]
    room = _MAX_CHARACTERS - len(_compact(parts[0]))
    for task in tasks:
        size = len(_compact(task)) + 1
        if size > room and parts[-1]["tasks"]:
            parts.append({**further, "part": len(parts), "tasks": []})
            room = _MAX_CHARACTERS - len(_compact(parts[-1]))
        parts[-1]["tasks"].append(task)
        room -= size
    parts[0]["parts"] = len(parts)
    return parts


def _task_fields(task: DecidedTask, transactional_id: str) -> list[Any]:
    identity = task.transaction.identity
    name = task_name(transactional_id, task.transaction.transactional_id)
    fields = [task.task, name, identity.producer_id, identity.producer_epoch, task.n_records, task.digest]
    with_ranges = [*fields, [list(written) for written in task.ranges]]
    return with_ranges if task.ranges and len(_compact(with_ranges)) <= _MAX_TASK_CHARACTERS else fields


def _compact(fields: object) -> str:
    return json.dumps(fields, separators=(",", ":"))


def decode_marker(committed: Sequence[CommittedOffset | None], transactional_id: str) -> FoundMarker:
    """Return the marker in committed offsets, of any version up to :data:`VERSION`; None where the first one is missing.

    Args:
        committed: the offset of the marker's group, and as many further ones as :func:`n_parts` says.
    """
    first = committed[0]
    if first is None:
        return None
    quoted = repr(first.metadata[:_MAX_QUOTED])
    foreign = UnreadableMarker(description=f"offset {first.offset} with the metadata {quoted}, which is no marker")
    try:
        fields = json.loads(first.metadata)
        version = int(fields.get("version", 0))
        if version > VERSION:
            return UnreadableMarker(description=f"a marker of version {version}", version=version)
        marker = Marker(
            query_id=str(fields["query"]),
            batch_id=int(fields["batch"]),
            n_records=int(fields["count"]),
            digest=str(fields["digest"]),
        )
        if version > _SETTLED:
            parts = [fields, *_further_parts(fields, committed[1:])]
            marker = replace(
                marker,
                pending=_pending(fields, [part for part in parts if part is not None], transactional_id),
                missing_parts=tuple(number for number, part in enumerate(parts) if part is None),
            )
    except (ValueError, KeyError, TypeError, AttributeError):
        return foreign
    if marker.batch_id + 1 != first.offset:  # set by a tool, as kafka-consumer-groups --reset-offsets
        return UnreadableMarker(
            description=f"offset {first.offset} with the metadata of micro-batch {marker.batch_id}; was it reset by a tool?"
        )
    return marker


def is_marker(metadata: str) -> bool:
    """Return whether an offset's metadata are those of a marker, or of a further part of one, of any version."""
    try:
        fields = json.loads(metadata)
        return {"query", "batch"} <= fields.keys() and bool({"digest", "part"} & fields.keys())
    except (ValueError, AttributeError):
        return False


def n_parts(first: CommittedOffset | None) -> int:
    """Return how many offsets a marker has, by the first one; 1 where that is no marker with a list."""
    try:
        fields = json.loads(first.metadata) if first is not None else {}
        return max(1, int(fields["parts"])) if fields["version"] == VERSION else 1
    except (ValueError, KeyError, TypeError):
        return 1


def _further_parts(
    fields: Mapping[str, Any], further: Sequence[CommittedOffset | None]
) -> Iterator[Mapping[str, Any] | None]:
    """Yield the fields of each part after the first one; None for a part that is missing, or has other metadata in its place."""
    for number in range(1, int(fields["parts"])):
        wanted = {"query": fields["query"], "batch": fields["batch"], "part": number}
        committed = further[number - 1] if number <= len(further) else None
        try:
            part = json.loads(committed.metadata) if committed is not None else {}
            yield part if wanted.items() <= part.items() else None
        except (ValueError, AttributeError):
            yield None


def _pending(
    fields: Mapping[str, Any], parts: Sequence[Mapping[str, Any]], transactional_id: str
) -> tuple[DecidedTask, ...]:
    version = TransactionVersion[fields["protocol"]]
    return tuple(
        DecidedTask(
            task=int(task),
            transaction=TransactionHandle(
                transactional_id=task_id(transactional_id, str(name)),
                identity=ProducerIdentity(int(producer_id), int(epoch)),
                version=version,
            ),
            n_records=int(count),
            digest=str(digest),
            ranges=tuple(WrittenRange(*values) for values in itertools.chain.from_iterable(ranges)),
        )
        for task, name, producer_id, epoch, count, digest, *ranges in itertools.chain.from_iterable(
            part["tasks"] for part in parts
        )
    )


def marker_group(transactional_id: str, part: int = 0) -> str:
    """Return the consumer group that holds a part of the marker; an ACL for the transactional id as a prefix covers all of them."""
    return f"{transactional_id}.marker" + (f".{part}" if part else "")


def read_markers(cluster: Cluster, transactional_id: str, marker_topic: str | None = None) -> dict[str, FoundMarker]:
    """Return what is committed in the marker's group, by topic: under more than one if a query's ``markerTopic`` has changed.
    Waits until no transaction on it is open.

    Args:
        marker_topic: a topic that the principal must be allowed to describe; others that it may not are left out.

    Raises:
        WireError: a group may not be read, or its coordinator does not respond.
    """

    def part(number: int, place: TopicPartition) -> CommittedOffset | None:
        return fetch_offsets(cluster, marker_group(transactional_id, number), [place], require_stable=True).get(place)

    group = marker_group(transactional_id)
    first_parts = fetch_offsets(cluster, group, None, require_stable=True)
    if marker_topic is not None and (first_part := TopicPartition(marker_topic, 0)) not in first_parts:
        first_parts |= fetch_offsets(cluster, group, [first_part], require_stable=True)
    return {
        place.topic: decode_marker(
            [first, *(part(number, place) for number in range(1, n_parts(first)))], transactional_id
        )
        for place, first in sorted(first_parts.items())
        if place.partition == 0
    }


def commit_marker(transaction: Transaction, options: ExactlyOnceOptions, marker: Marker) -> None:
    """Commit a marker in the driver's transaction, all of its parts.

    Raises:
        WireError: as :meth:`Transaction.commit_offsets`.
    """
    place = TopicPartition(options.marker_topic, 0)
    for number, offset in enumerate(encode_marker(marker, options.transactional_id)):
        transaction.commit_offsets(marker_group(options.transactional_id, number), {place: offset})
