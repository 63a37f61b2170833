"""What is left of a decision of an earlier run: transactions that were to be committed, and those that were aborted instead.

A decided transaction can only be aborted by its time-out, or by an administrator. Then the records are in no reader's view, and the
replay's task with the same rows can be written in their place. Both ways of exactly-once writes use this: the marker that they find
may be of the other one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Final, Protocol, TypeVar

from pykafka_wire.errors import ExactlyOnceError
from pykafka_wire.sink.exactly_once.marker import DecidedTask, Marker
from pykafka_wire.wire.cluster.cluster import Cluster
from pykafka_wire.wire.transactions.many import End, commit_all

_log = logging.getLogger(__name__)

#: Of a list of tasks, an error names so many.
_MOST_NAMED: Final = 20


class ReplayedTask(Protocol):
    """A task of this run, with its content."""

    @property
    def n_records(self) -> int: ...

    @property
    def digest(self) -> int: ...


TaskT = TypeVar("TaskT", bound=ReplayedTask)


def is_left(marker: object, query_id: str, batch_id: int) -> bool:
    """Whether a marker has a list that a commit of this micro-batch must end first: its own list, or that of the one before."""
    return (
        isinstance(marker, Marker)
        and bool(marker.pending)
        and marker.query_id == query_id
        and marker.batch_id in (batch_id, batch_id - 1)
    )


def commit_decided(cluster: Cluster, marker: Marker, *, fail_on_unknown: bool = True) -> list[DecidedTask]:
    """Commit the transactions of a marker's list; those that were aborted instead.

    Args:
        fail_on_unknown: else one of which it is unknown how it has ended counts as committed.

    Raises:
        ExactlyOnceError: how one has ended is unknown.
        WireError: a coordinator does not answer.
    """
    ends = commit_all(cluster, [task.transaction for task in marker.pending])
    unknown = [task for task in marker.pending if ends[task.transaction] is End.UNKNOWN]
    if unknown:
        error = ExactlyOnceError(
            f"micro-batch {marker.batch_id} was decided, and it is unknown how {len(unknown)} of its transactions have ended: "
            f"{named(unknown)}. Their ids were used again, have expired (transactional.id.expiration.ms) or may not be described. "
            "Compare the topic with the source. Then set failOnMissingMarker=false for one start, which takes these for committed."
        )
        if fail_on_unknown:
            raise error
        _log.error("failOnMissingMarker=false: %s", error)
    return [task for task in marker.pending if ends[task.transaction] is End.ABORTED]


def replacements(
    marker: Marker, aborted: Sequence[DecidedTask], tasks: Iterable[TaskT], *, fail_on_missing: bool = True
) -> list[TaskT]:
    """For each aborted transaction a task of this run with the same rows, by count and digest; no task twice.

    Raises:
        ExactlyOnceError: there is none for some of them; names what is missing.
    """
    by_content: dict[tuple[int, str], list[TaskT]] = {}
    for task in tasks:
        by_content.setdefault((task.n_records, digest_text(task.digest)), []).append(task)
    found: list[TaskT] = []
    missing: list[DecidedTask] = []
    for lost in aborted:
        same = by_content.get((lost.n_records, lost.digest))
        if same:
            found.append(same.pop())
        else:
            missing.append(lost)
    if missing and fail_on_missing:
        raise missing_error(marker, missing)
    if missing:
        _log.error("failOnMissingMarker=false: %s", missing_error(marker, missing))
    if found:
        _log.warning(
            "Micro-batch %d was decided, and %d of its transactions were aborted before they could be committed: %s. The tasks of "
            "this run with the same rows are written in their place",
            marker.batch_id,
            len(aborted),
            named(aborted),
        )
    return found


def missing_error(marker: Marker, missing: Sequence[DecidedTask]) -> ExactlyOnceError:
    """The error for aborted transactions that nothing can be written in place of."""
    return ExactlyOnceError(
        f"micro-batch {marker.batch_id} was decided, and {len(missing)} of its transactions were aborted before they could be "
        f"committed (kafka.transaction.timeout.ms): {named(missing)}. Their {sum(each.n_records for each in missing)} records are "
        "missing from the topic, and no task of this run has the same rows, by which they could be written again. A "
        "read_uncommitted consumer still reads them at these offsets. Write them, or do without them, then set "
        "failOnMissingMarker=false for one start, which takes the micro-batch for complete."
    )


def digest_text(digest: int) -> str:
    """A digest as markers have it."""
    return f"{digest & 0xFFFFFFFFFFFFFFFF:016x}"


def named(tasks: Sequence[DecidedTask]) -> str:
    """Tasks with their transactions and where their records are, for an error's text."""

    def text(task: DecidedTask) -> str:
        places = ", ".join(f"{r.topic}-{r.partition} offsets {r.first_offset} to {r.last_offset}" for r in task.ranges)
        return (
            f"task {task.task} ({task.n_records} records, {task.transaction.transactional_id!r}"
            + (f", {places}" if places else "")
            + ")"
        )

    more = len(tasks) - _MOST_NAMED
    return "; ".join(map(text, tasks[:_MOST_NAMED])) + (f" and {more} more" if more > 0 else "")
