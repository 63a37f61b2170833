"""What is left of a decision of an earlier run: transactions that were to be committed, and those that were aborted instead.

A decided transaction can only be aborted by its time-out, or by an administrator. Then the records are in no reader's view, and
the replay's tasks with the same rows can be written in their place. Both ways of exactly-once writes use this: the marker that
they find may be of the other one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeAlias, TypeVar

from pykafka_wire.errors import ExactlyOnceError
from pykafka_wire.options.names import PREFIX
from pykafka_wire.sink.exactly_once.decision import missing_parts_text
from pykafka_wire.sink.exactly_once.marker import DecidedTask, Marker, digest_text
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.describe import DescribedTransaction, open_producers
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import BrokerError, DeadlineExceededError, UnsupportedVersionError
from pykafka_wire.wire.records.producer_identity import ProducerIdentity
from pykafka_wire.wire.topic_partitions import TopicPartition
from pykafka_wire.wire.transactions.bulk import End, abort_all, commit_all, describe_all, end_of
from pykafka_wire.wire.transactions.coordinator import TransactionHandle

_log = logging.getLogger(__name__)

#: Of a list of tasks, an error names so many.
_MAX_NAMED: Final = 20
#: For so long, and for a commit's usual time each, what the partitions say of transactions holds: an administrator who sees one
#: there needs longer to abort it.
_CHECK_HOLDS_MS: Final = 5_000
_MS_EACH: Final = 10
READ_IS_NEEDED: Final = (
    "The principal needs Read on the topics that it writes to: kafka-acls.sh --add --allow-principal User:YOU --operation Read "
    "--topic TOPIC."
)


class ReplayedTask(Protocol):
    """A task of this run, with its content."""

    @property
    def n_records(self) -> int: ...

    @property
    def digest(self) -> int: ...


TaskT = TypeVar("TaskT", bound=ReplayedTask)
#: Count and digest of rows.
Content: TypeAlias = tuple[int, str]
_NO_ROWS: Final[Content] = (0, digest_text(0))


def is_left(stored: object, batch: Marker, *, fail_on_missing: bool = True) -> bool:
    """Return whether a found marker has a list that a commit of this micro-batch must end first: its own list, or that of the one
    before.

    Args:
        fail_on_missing: else also that of any other marker which this micro-batch replaces, another query's or an older one:
            nobody could end a list that is no longer in the marker.
    """
    if not isinstance(stored, Marker) or stored.is_settled:
        return False
    if stored.query_id != batch.query_id:
        return not fail_on_missing
    return stored.batch_id <= batch.batch_id and (not fail_on_missing or stored.batch_id >= batch.batch_id - 1)


def closed_in_partitions(
    cluster: Cluster, first_offsets: Mapping[TransactionHandle, Mapping[TopicPartition, int]]
) -> list[TransactionHandle]:
    """Return the transactions that are not open in each of their partitions, from their first record on, as the leaders have it.

    A coordinator has a transaction for open, and accepts its commit, also after an administrator has aborted it in a partition
    (``kafka-transactions.sh abort``, KIP-664). Its records there stay aborted.

    Args:
        first_offsets: of each transaction, the offset of its first record by partition, -1 where that is unknown.

    Raises:
        UnsupportedVersionError: the brokers are older than Kafka 2.8.
        BrokerError: a topic may not be read, which DescribeProducers needs, or does not exist.
        DeadlineExceededError: a leader did not respond.
    """
    places = {tp for offsets in first_offsets.values() for tp in offsets}
    open_from = {
        (
            producer.topic_partition,
            ProducerIdentity(producer.producer_id, producer.producer_epoch),
        ): producer.start_offset
        for producer in (open_producers(cluster, places) if places else ())
    }

    def is_open(handle: TransactionHandle, tp: TopicPartition, first_offset: int) -> bool:
        start = open_from.get((tp, handle.identity))
        return start is not None and (first_offset < 0 or start <= first_offset)

    return [
        handle
        for handle, offsets in first_offsets.items()
        if not all(is_open(handle, tp, first_offset) for tp, first_offset in offsets.items())
    ]


def find_not_open(cluster: Cluster, tasks: Sequence[DecidedTask]) -> list[DecidedTask]:
    """Return the tasks whose transactions are not open in their partitions: ended by their coordinator, or aborted by an
    administrator.

    Raises:
        WireError: as :func:`closed_in_partitions`.
    """
    # Where a long list names no partitions, the coordinator does, as long as a transaction has not ended.
    unnamed = [task.transaction.transactional_id for task in tasks if not task.ranges]
    described = describe_all(cluster, unnamed) if unnamed else {}
    first_offsets: dict[TransactionHandle, dict[TopicPartition, int]] = {}
    for task in tasks:
        described_transaction = described.get(task.transaction.transactional_id)
        first_offsets[task.transaction] = {
            TopicPartition(r.topic, r.partition): r.first_offset for r in task.ranges
        } or dict.fromkeys(described_transaction.partitions if described_transaction is not None else (), -1)
    closed = set(closed_in_partitions(cluster, first_offsets))
    return [task for task in tasks if task.transaction in closed]


def commit_decided(
    cluster: Cluster, marker: Marker, *, fail_on_unknown: bool = True, fail_on_unchecked: bool = True
) -> list[DecidedTask]:
    """Commit the transactions of a marker's list; those that were aborted instead.

    One that an administrator has aborted in a partition is aborted as a whole: nothing of it is visible, and it can be replaced.
    The partitions are asked just before, and again where a coordinator keeps the commits waiting: between these two requests nobody
    may abort one in a partition.

    Args:
        fail_on_unknown: else one of which it is unknown how it has ended counts as committed.
        fail_on_unchecked: else they are committed also where the partitions may not be asked.

    Raises:
        ExactlyOnceError: how one has ended, or whether it is open in its partitions, is unknown.
        WireError: a coordinator does not respond.
    """
    handles = [task.transaction for task in marker.pending]
    ends: dict[TransactionHandle, End] = {}
    deadline = Deadline.after_ms(cluster.settings.default_api_timeout_ms)
    while len(ends) < len(handles):
        undecided = [task for task in marker.pending if task.transaction not in ends]
        ends |= _abort_what_is_aborted_in_partitions(
            cluster, marker, undecided, fail_on_unchecked=fail_on_unknown and fail_on_unchecked
        )
        left_handles = [handle for handle in handles if handle not in ends]
        soon = deadline.at_most_ms(_CHECK_HOLDS_MS + len(left_handles) * _MS_EACH)
        try:
            ends |= commit_all(cluster, left_handles, deadline=soon)
        except DeadlineExceededError:
            if deadline.expired:
                raise
    unknown = [task for task in marker.pending if ends[task.transaction] is End.UNKNOWN]
    if unknown:
        error = ExactlyOnceError(
            f"micro-batch {marker.batch_id} was decided, and it is unknown how {len(unknown)} of its transactions have ended: "
            f"{name_tasks(unknown)}. Their ids were used again, have expired (transactional.id.expiration.ms) or may not be "
            "described. Compare the topic with the source. Then set failOnMissingMarker=false for one start, which takes these for "
            "committed."
        )
        if fail_on_unknown:
            raise error
        _log.error("failOnMissingMarker=false: %s", error)
    return [task for task in marker.pending if ends[task.transaction] is End.ABORTED]


def _abort_what_is_aborted_in_partitions(
    cluster: Cluster, marker: Marker, tasks: Sequence[DecidedTask], *, fail_on_unchecked: bool
) -> dict[TransactionHandle, End]:
    """Return how those of the transactions have ended that are open for their coordinator, and not in their partitions."""
    try:
        suspects = find_not_open(cluster, tasks)
    except UnsupportedVersionError as error:
        _log.warning("Whether an administrator has aborted a decided transaction is not checked: %s", error)
        return {}
    except BrokerError as error:
        if not fail_on_unchecked:
            _log.info("Decided transactions are committed without a look at their partitions: %s", error)
            return {}
        raise ExactlyOnceError(
            f"micro-batch {marker.batch_id} is decided, and it is unknown whether its transactions are still open in their "
            f"partitions: {error.with_prefix(PREFIX).text} An administrator may have aborted some (kafka-transactions.sh abort). "
            f"{READ_IS_NEEDED} Then start the query again. Or set failOnMissingMarker=false for one start, which commits them "
            "without this check."
        ) from error
    if not suspects:
        return {}
    # Asked after the partitions: what a coordinator has ended, it ends there later.
    described = describe_all(cluster, [task.transaction.transactional_id for task in suspects])
    cut = [task for task in suspects if is_ongoing(described.get(task.transaction.transactional_id), task.transaction)]
    if not cut:
        return {}
    _log.warning(
        "Micro-batch %d is decided, and %d of its transactions were aborted in a partition, which a coordinator does not get to "
        "know (kafka-transactions.sh abort): %s. They are aborted in all of their partitions, and replaced",
        marker.batch_id,
        len(cut),
        name_tasks(cut),
    )
    codes = abort_all(cluster, [task.transaction for task in cut])
    ends = {handle: End.ABORTED for handle, code in codes.items() if not code}
    refused = [handle for handle in codes if handle not in ends]
    described = describe_all(cluster, [handle.transactional_id for handle in refused])
    return ends | {handle: end_of(handle, described.get(handle.transactional_id)) for handle in refused}


def is_ongoing(described: DescribedTransaction | None, handle: TransactionHandle) -> bool:
    """Return whether a coordinator has this very transaction for open."""
    return (
        described is not None
        and described.state == "Ongoing"
        and ProducerIdentity(described.producer_id, described.producer_epoch) == handle.identity
    )


def replacements(
    marker: Marker,
    aborted: Sequence[DecidedTask],
    tasks: Iterable[TaskT],
    *,
    fail_on_missing: bool = True,
    write_unlisted: bool = True,
) -> list[TaskT]:
    """Return tasks of this run with the rows of the aborted transactions, by count and digest: one for each, or where this run has
    divided the rows among other tasks, all tasks that together have the rows of all aborted ones.

    Args:
        write_unlisted: where a part of the list is missing, also the tasks with the rows that no part has which is left.

    Raises:
        ExactlyOnceError: there are none for some of them; names what is missing.
    """
    by_content: dict[tuple[int, str], list[TaskT]] = {}
    replayed = list(tasks)
    for task in replayed:
        by_content.setdefault((task.n_records, digest_text(task.digest)), []).append(task)

    def take(listed: DecidedTask) -> list[TaskT]:
        same = by_content.get((listed.n_records, listed.digest))
        return [same.pop()] if same else []

    replacing: list[TaskT] = []
    missing: list[DecidedTask] = []
    for lost in aborted:
        same = take(lost)
        replacing += same
        missing += [] if same else [lost]
    unlisted = _unlisted(marker) if write_unlisted and replayed else _NO_ROWS
    if missing or unlisted != _NO_ROWS:
        for committed in set(marker.pending) - set(aborted):
            take(committed)
        others = [task for same in by_content.values() for task in same]
        if _total(others) == _sum([unlisted, *map(_content, missing)]):
            replacing, missing, unlisted = replacing + others, [], _NO_ROWS
    if unlisted != _NO_ROWS:
        raise ExactlyOnceError(
            f"micro-batch {marker.batch_id} was decided, and {unlisted[0]} of its records are in no part that is left of the list "
            "of its transactions. No tasks of this run have just these rows. Write them, or do without them, then set "
            "onMarkerMismatch=skip for one start, which takes the micro-batch for complete."
        )
    if missing:
        is_same = _total(replayed) == (marker.n_records, marker.digest)
        error = missing_error(marker, missing, divided_otherwise=is_same)
        if fail_on_missing:
            raise error
        _log.error("failOnMissingMarker=false: %s", error)
    if replacing and aborted:
        _log.warning(
            "Micro-batch %d was decided, and %d of its transactions were aborted before they could be committed: %s. The tasks of "
            "this run with the same rows are written in their place",
            marker.batch_id,
            len(aborted),
            name_tasks(aborted),
        )
    return replacing


def _total(tasks: Iterable[ReplayedTask]) -> Content:
    """Count and digest of the rows of all tasks."""
    return _sum((task.n_records, digest_text(task.digest)) for task in tasks)


def _content(task: DecidedTask) -> Content:
    return task.n_records, task.digest


def _sum(contents: Iterable[Content]) -> Content:
    parts = list(contents)
    return sum(n_records for n_records, _ in parts), digest_text(sum(int(digest, 16) for _, digest in parts))


def _unlisted(marker: Marker) -> Content:
    """Return the rows of a decided micro-batch that no part of its list has which is left."""
    if not marker.missing_parts:
        return _NO_ROWS
    n_records, digest = _sum(map(_content, marker.pending))
    return marker.n_records - n_records, digest_text(int(marker.digest, 16) - int(digest, 16))


def incomplete_error(marker: Marker, *, is_replay: bool) -> ExactlyOnceError:
    """Return the error for a marker of whose list a part is missing, after the transactions that are left of it have ended.

    Args:
        is_replay: whether this run computes the marker's micro-batch, and can write its rows again.
    """
    ways_on = "failOnMissingMarker=false"
    if is_replay:
        ways_on += (
            ", which writes these records again, or onMarkerMismatch=skip, which takes the micro-batch for complete"
        )
    return ExactlyOnceError(
        f"micro-batch {marker.batch_id} of query {marker.query_id} was decided, and {missing_parts_text(marker)} of its "
        f"transactions is missing. The {len(marker.pending)} transactions that are left of the list are ended. It is unknown "
        f"whether {_unlisted(marker)[0]} records of the others are in the topic: those that are open end by their time-out. "
        f"Compare the topic with the source, then set for one start {ways_on}."
    )


def missing_error(
    marker: Marker, missing: Sequence[DecidedTask], *, divided_otherwise: bool = False
) -> ExactlyOnceError:
    """Return the error for aborted transactions that nothing can be written in place of.

    Args:
        divided_otherwise: this run has the rows of the micro-batch, in other tasks.
    """
    why = "no task of this run has the same rows, by which they could be written again. "
    if divided_otherwise:
        why = (
            "this run divides the same rows among other tasks, so that they cannot be written without the others. Start the query "
            "with what it had when the micro-batch was written: minPartitions, maxRecordsPerPartition, "
            "spark.sql.shuffle.partitions, and the release of pykafka-wire. If that is not possible: "
        )
    return ExactlyOnceError(
        f"micro-batch {marker.batch_id} was decided, and {len(missing)} of its transactions were aborted before they could be "
        f"committed (kafka.transaction.timeout.ms, or an administrator): {name_tasks(missing)}. Their "
        f"{sum(task.n_records for task in missing)} records are missing from the topic, and {why}A "
        "read_uncommitted consumer still reads them at these offsets. Write them, or do without them, then set "
        "failOnMissingMarker=false for one start, which takes the micro-batch for complete."
    )


def name_tasks(tasks: Sequence[DecidedTask]) -> str:
    """Return tasks with their transactions and where their records are, for an error's text."""

    def text(task: DecidedTask) -> str:
        places = ", ".join(f"{r.topic}-{r.partition} offsets {r.first_offset} to {r.last_offset}" for r in task.ranges)
        return (
            f"task {task.task} ({task.n_records} records, {task.transaction.transactional_id!r}"
            + (f", {places}" if places else "")
            + ")"
        )

    more = len(tasks) - _MAX_NAMED
    return "; ".join(map(text, tasks[:_MAX_NAMED])) + (f" and {more} more" if more > 0 else "")
