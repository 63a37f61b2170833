"""A consumer's commits: those that it asks for, and the automatic ones, which go on in the background.

Owns what was committed last, when the next automatic commit is due, and that none overtakes another. The requests are
:mod:`~pykafka_wire.wire.groups.committed_offsets`'; positions are the caller's.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from pykafka_wire.wire import forks
from pykafka_wire.wire.background_call import BackgroundCall
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.error_codes import ErrorCode
from pykafka_wire.wire.errors import BrokerError, SettingsError, WireError
from pykafka_wire.wire.groups.committed_offsets import (
    CommittedOffset,
    GroupMetadata,
    commit_offsets,
    fetch_offsets,
)
from pykafka_wire.wire.groups.membership import NO_MEMBER, MemberIdentity, Membership
from pykafka_wire.wire.topic_partitions import TopicPartition

logger = logging.getLogger(__name__)

#: The member may have a newer identity soon. The group rebalances just now, or (KIP-848) the epoch is an old one.
_STALE_IDENTITY: Final = frozenset(
    {ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.STALE_MEMBER_EPOCH}
)
ResultT = TypeVar("ResultT")
#: Offset and leader epoch (-1 if unknown) by topic-partition.
Positions = Mapping[TopicPartition, tuple[int, int]]
_Offsets = Mapping[TopicPartition, int]
_Commit = BackgroundCall[_Offsets]


class GroupCommits:
    """Commits and committed offsets of one consumer. Not thread-safe, but :meth:`fetch` may be called from any thread."""

    def __init__(self, cluster: Cluster) -> None:
        """Begin without knowing what is committed."""
        #: The member that commits, None outside of the group.
        self.membership: Membership | None = None
        self._cluster = cluster
        self._settings = cluster.settings
        self._committed: dict[TopicPartition, int] = {}
        self._committed_at = time.monotonic()
        #: The automatic commit in progress, and the positions for which the one before a revocation has begun.
        self._committing: _Commit | None = None
        self._fork_generation = forks.generation
        self._before_revocation: Positions | None = None

    @property
    def group(self) -> str:
        """Return the group's name. Raises SettingsError where there is none."""
        if self._settings.group_id is None:
            raise SettingsError("{setting} is missing.", setting="group.id", remedy="Name the consumer group.")
        return self._settings.group_id

    def group_metadata(self) -> GroupMetadata:
        """Return the group and its member that commits now. Raises BrokerError where it has lost its place."""
        return GroupMetadata(group=self.group, member=self._member(), topic_ids=self._topic_ids())

    def commit(self, positions: Positions, deadline: Deadline) -> None:
        """Commit these positions, after the automatic commit in progress: it must not overwrite this one.

        Raises: as :meth:`~pykafka_wire.wire.consumer.Consumer.commit`.
        """
        self._end_auto_commit(deadline)
        call = self._call(positions)
        self._forget_committed(positions)
        self._committed |= call(deadline)
        self._committed_at = time.monotonic()

    def fetch(
        self, partitions: Iterable[TopicPartition], deadline: Deadline, *, as_member: bool = False
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return the group's committed offsets, without those that there are not; after the automatic commit in progress.

        Args:
            as_member: let the coordinator reject a member of the consumer protocol (KIP-848) that has lost its place.
        """
        if (committing := self._committing) is not None:
            committing.wait(deadline)
        stable = self._settings.isolation_level == "read_committed"
        wanted = list(partitions)

        def fetch(member: MemberIdentity) -> dict[TopicPartition, CommittedOffset]:
            return fetch_offsets(
                self._cluster, self.group, wanted, member=member, require_stable=stable, deadline=deadline
            )

        names_itself = as_member and self.membership is not None and self._settings.group_protocol == "consumer"
        return self._as_member(self._member() if names_itself else NO_MEMBER, fetch, deadline)

    def record(self, committed: Mapping[TopicPartition, int]) -> None:
        """Note that these offsets are committed already: an automatic commit leaves them out."""
        self._committed |= committed

    # --- automatic commits: in the background, since a poll must not wait for the coordinator -----------------------

    def auto_commit_if_due(self, positions: Positions) -> None:
        """Begin an automatic commit every ``auto.commit.interval.ms``, and log one that has failed."""
        self._leave_to_parent(positions)
        if not self._end_auto_commit(Deadline.after_ms(0)):
            return
        if time.monotonic() - self._committed_at >= self._settings.auto_commit_interval_ms / 1000:
            self.begin_auto_commit(positions)

    def commit_before_revocation(self, positions: Positions, deadline: Deadline) -> bool:
        """Return whether the automatic commit before a revocation has ended; waits until the deadline, and a later call
        continues.
        """
        if self._before_revocation != positions:
            if not self._end_auto_commit(deadline):
                return False
            self.begin_auto_commit(positions)
            self._before_revocation = dict(positions)
        return self._end_auto_commit(deadline)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget these partitions, which are revoked: what others commit for them is not known here."""
        self._forget_committed(partitions)
        self._before_revocation = None

    def _forget_committed(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget what is committed for these partitions: while a commit goes on, and after one that failed, which the
        coordinator may have processed all the same. A position that goes back must be committed then."""
        for tp in partitions:
            self._committed.pop(tp, None)

    def cancel(self) -> None:
        """End the automatic commit in progress."""
        if self._committing is not None:
            self._committing.cancel()

    def begin_auto_commit(self, positions: Positions) -> None:
        """Begin an automatic commit of what is not committed yet, behind the one in progress."""
        self._leave_to_parent(positions)
        settings = self._settings
        changed = {tp: position for tp, position in positions.items() if self._committed.get(tp) != position[0]}
        self._committed_at = time.monotonic()
        if not settings.enable_auto_commit or settings.group_id is None or not changed:
            return
        try:
            self._committing = BackgroundCall(
                self._behind(self._committing, self._call(changed)),
                deadline=Deadline.of_call(settings),
                name=f"pykafka-wire commit of {settings.group_id}",
            )
        except WireError as error:
            logger.warning("group %s: the commit of positions failed: %s", settings.group_id, error)
        else:
            self._forget_committed(changed)

    def _leave_to_parent(self, positions: Positions) -> None:
        """Leave it to the parent, in a forked child: the positions until here are the parent's to commit. It may have gone on
        since, and committing them would set the group back."""
        if self._fork_generation != forks.generation:
            self._fork_generation = forks.generation
            self._committing = None
            self._committed |= {tp: offset for tp, (offset, _) in positions.items()}

    def _behind(self, before: _Commit | None, call: Callable[[Deadline], _Offsets]) -> Callable[[Deadline], _Offsets]:
        """Return a call that waits for the end of the one before, which must not overwrite it."""
        if before is None:
            return call

        def wait_and_call(deadline: Deadline) -> _Offsets:
            before.wait(deadline)
            return call(deadline)

        return wait_and_call

    def _end_auto_commit(self, deadline: Deadline) -> bool:
        """Return whether no automatic commit is in progress; waits for its end until the deadline."""
        if self._committing is None or self._committing.is_lost:
            self._committing = None
            return True
        if not self._committing.wait(deadline):
            return False
        call, self._committing = self._committing, None
        try:
            self._committed |= call.result()
        except WireError as error:
            logger.warning("group %s: the commit of positions failed: %s", self._settings.group_id, error)
        return True

    def _call(self, positions: Positions) -> Callable[[Deadline], _Offsets]:
        """Return a call that commits positions under the present generation, and returns their offsets."""
        group, member = self.group, self._member()
        topic_ids = self._topic_ids()
        offsets = {tp: CommittedOffset(offset, leader_epoch) for tp, (offset, leader_epoch) in positions.items()}

        def call(deadline: Deadline) -> _Offsets:
            def commit(current: MemberIdentity) -> None:
                commit_offsets(self._cluster, group, offsets, member=current, topic_ids=topic_ids, deadline=deadline)

            self._as_member(member, commit, deadline)
            return {tp: committed.offset for tp, committed in offsets.items()}

        return call

    def _member(self) -> MemberIdentity:
        """Return the member that commits now. Raises BrokerError where it has lost its place."""
        return NO_MEMBER if self.membership is None else self.membership.identity

    def _topic_ids(self) -> Mapping[TopicPartition, uuid.UUID]:
        return {} if self.membership is None else self.membership.topic_ids()

    def _as_member(
        self, member: MemberIdentity, request: Callable[[MemberIdentity], ResultT], deadline: Deadline
    ) -> ResultT:
        """Return what ``request`` returns; sent again where the member's identity was stale, and it has a newer one (KIP-848,
        KIP-429).
        """
        while True:
            try:
                return request(member)
            except BrokerError as error:
                if error.code not in _STALE_IDENTITY or self.membership is None:
                    raise
                newer = self.membership.newer_identity(member, deadline)
                if newer is None:
                    raise
                member = newer
