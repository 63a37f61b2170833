"""Commits a query's progress to its consumer group, so that every Kafka tool sees the lag.

The checkpoint alone decides where a query goes on. Committed offsets are for lag tools and for ``startingOffsets=group``.
So a refused commit warns once, is counted, and never stops a query.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from pykafka_wire.checkpoints.query_offsets import QueryOffsets
from pykafka_wire.source.progress.static_member import StaticMember
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.error_codes import ErrorCode
from pykafka_wire.wire.errors import BrokerError, WireError
from pykafka_wire.wire.fetch.range_progress import Position
from pykafka_wire.wire.groups.committed_offsets import CommittedOffset, commit_offsets, fetch_offsets
from pykafka_wire.wire.groups.membership import NO_MEMBER
from pykafka_wire.wire.topic_partitions import TopicPartition

_log = logging.getLogger(__name__)

#: A commit that takes longer delays the next micro-batch more than it is worth.
COMMIT_DEADLINE_MS: Final = 5_000
#: Offsets of a group without members expire (offsets.retention.minutes, 7 days by default): all are committed again daily.
_REPEAT_S: Final = 24 * 3600.0
#: How often a commit first looks for others' offsets in the group. Micro-batches may follow each other in a tenth of it.
_LOOK_FOR_OTHERS_S: Final = 1.0
#: After a failure the next tries wait, doubling, so that a lost coordinator does not slow every micro-batch.
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0


class GroupCommitter:
    """Commits offsets of one query through the group's coordinator, only when they changed."""

    def __init__(
        self, cluster: Cluster, *, member: StaticMember | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._cluster = cluster
        self._member = member
        self._fenced = False
        self._clock = clock
        #: What was committed last, and the ids of the topics then: a group's offsets of a topic go when it is deleted.
        self._last: Mapping[TopicPartition, Position] = {}
        self._last_ids: Mapping[str, uuid.UUID] = {}
        self._all_committed_at = float("-inf")
        self._pause_s = 0.0
        self._paused_until = float("-inf")
        #: What a last commit was tried with, within a pause.
        self._last_tried: Mapping[TopicPartition, Position] = {}
        self._warned: set[str] = set()
        self._found_others = False
        self._looked_for_others_at = float("-inf")
        self.successes = 0
        self.failures = 0

    def is_due(self, progress: QueryOffsets) -> bool:
        """Return whether :meth:`commit` would send anything now, where the query goes on."""
        now = self._clock()
        return now >= self._paused_until and self._has_news(progress, now)

    def _has_news(self, progress: QueryOffsets, now: float) -> bool:
        if self._fenced or not progress.group or not progress.offsets:
            return False
        known = (self._last, self._last_ids)
        return (_positions_of(progress), progress.topic_ids) != known or self._are_all_due(now)

    def _are_all_due(self, now: float) -> bool:
        return now - self._all_committed_at >= _REPEAT_S

    def commit(self, progress: QueryOffsets, *, is_last: bool = False) -> None:
        """Commit ``progress`` to its group unless that was done already; never raises for an error of brokers.

        Args:
            is_last: the query may end now. One try is made although a failed commit has begun a pause.
        """
        now = self._clock()
        if not self._has_news(progress, now):
            return
        positions = _positions_of(progress)
        if now < self._paused_until:
            if not is_last or positions == self._last_tried:
                return
            self._last_tried = positions
        all_due = self._are_all_due(now)
        metadata = json.dumps({"query": progress.query}, separators=(",", ":"))
        changed = {
            tp: CommittedOffset(offset=position.offset, leader_epoch=position.leader_epoch, metadata=metadata)
            for tp, position in positions.items()
            if all_due
            or self._last.get(tp) != position
            or self._last_ids.get(tp.topic) != progress.topic_ids.get(tp.topic)
        }
        if not changed:  # a topic was deleted
            self._remember(progress)
            return
        deadline = Deadline.after_ms(COMMIT_DEADLINE_MS)
        member = NO_MEMBER
        try:
            if self._member is not None:
                member = self._member.identity(progress, deadline)
            if not self._found_others and now - self._looked_for_others_at >= _LOOK_FOR_OTHERS_S:
                self._looked_for_others_at = now
                self._check_for_others(progress.group, changed, metadata, deadline)
            commit_offsets(
                self._cluster,
                progress.group,
                changed,
                member=member,
                deadline=deadline,
            )
        except WireError as error:
            self.failures += 1
            rejoined = self._member is not None and member != NO_MEMBER and self._member.has_moved_on(member)
            # Another member has taken this query's place: a commit would overwrite its progress.
            if isinstance(error, BrokerError) and error.code == ErrorCode.FENCED_INSTANCE_ID and not rejoined:
                self._fenced = True
                self._warn_once(
                    "fenced",
                    "Another member has taken this query's place in group %s: the query continues without commits. %s",
                    progress.group,
                    error,
                )
                return
            self._pause_s = min(_LONGEST_PAUSE_S, self._pause_s * 2 or _FIRST_PAUSE_S)
            self._paused_until = self._clock() + self._pause_s  # the attempt itself may have taken seconds
            self._warn_once(
                type(error).__name__,
                "Progress could not be committed to group %s; the query continues: %s",
                progress.group,
                error,
            )
            return
        self.successes += 1
        self._pause_s = 0.0
        self._remember(progress)
        if all_due:
            self._all_committed_at = now
        _log.debug("Committed %d offsets to group %s", len(changed), progress.group)

    def _remember(self, progress: QueryOffsets) -> None:
        self._last, self._last_ids = _positions_of(progress), dict(progress.topic_ids)

    def join_group(self, progress: QueryOffsets) -> None:
        """Join the group early, in the background, where the query is to be a member: its first batch may take long."""
        if self._member is not None and progress.group and not self._fenced:
            self._member.join(progress)

    def close(self) -> None:
        """Leave the group; call it before the cluster is closed."""
        if self._member is not None:
            self._member.close()

    def _check_for_others(
        self, group: str, offsets: Iterable[TopicPartition], metadata: str, deadline: Deadline
    ) -> None:
        """Warn once of others that commit ``offsets`` to the group, too; they may have started with this query, or after it."""
        committed = fetch_offsets(self._cluster, group, offsets, deadline=deadline)
        others = {c.metadata for c in committed.values() if c.offset >= 0 and c.metadata not in ("", metadata)}
        if not others:
            return
        self._found_others = True
        _log.warning(
            "Group %s holds offsets of another query or consumer (%s): this query overwrites them. Give each query a "
            "kafka.group.id of its own.",
            group,
            ", ".join(sorted(others))[:200],
        )

    def _warn_once(self, kind: str, text: str, *arguments: object) -> None:
        log = _log.debug if kind in self._warned else _log.warning
        self._warned.add(kind)
        log(text, *arguments)


def _positions_of(progress: QueryOffsets) -> dict[TopicPartition, Position]:
    return {tp: Position(offset, progress.epochs.get(tp, -1)) for tp, offset in progress.offsets.items()}
