"""A query as a member of its consumer group, which it is where ``groupMembership=static`` asks for it.

Each query is one static member (KIP-345). Its instance id comes from the query's id, so that a restarted query takes its old
place, and a second copy of the query is fenced. Spark ignores what the group assigns and plans by itself. Membership makes the
query visible to tools, keeps its offsets from expiring, and keeps others from committing over them. A thread sends the
heartbeats, however long a micro-batch takes.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from dataclasses import replace
from types import FrameType
from typing import NoReturn

from pykafka_wire.checkpoints.query_offsets import QueryOffsets
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import DeadlineExceededError
from pykafka_wire.wire.groups.classic.membership import ClassicMembership, GroupMember, member_state_machine
from pykafka_wire.wire.groups.membership import MemberIdentity
from pykafka_wire.wire.settings import ClientSettings

_log = logging.getLogger(__name__)


class StaticMember:
    """Joins when the query is first known, leaves by its instance id when it stops."""

    def __init__(self, cluster: Cluster, client: ClientSettings) -> None:
        self._cluster = cluster
        self._client = client
        self._member: ClassicMembership | None = None
        self._warned_of_others = False

    def join(self, progress: QueryOffsets) -> ClassicMembership:
        """Return the member of a query; joins in the background at first, and again when the query reads other topics."""
        topics = tuple(sorted({tp.topic for tp in progress.offsets}))
        member = self._member
        if member is None:
            _exit_on_sigterm()
            instance_id = self._client.group_instance_id or f"pykafka-wire-{progress.query}"
            state_machine = member_state_machine(
                replace(self._client, group_instance_id=instance_id), progress.group, topics
            )
            member = self._member = ClassicMembership(
                GroupMember(self._cluster, state_machine), self._client, rejoins=True
            )
            member.request_join()
        elif member.state_machine.topics != topics and not member.joining and member.error is None:
            member.state_machine.topics = topics
            member.state_machine.rejoin()
            member.request_join()
        return member

    def identity(self, progress: QueryOffsets, deadline: Deadline) -> MemberIdentity:
        """Return the member's identity for a commit; waits until ``deadline`` for the group to have it as a member.

        Raises:
            DeadlineExceededError: the group is still rebalancing.
            WireError: the member cannot join again.
        """
        member = self.join(progress)
        if not member.wait_until_stable(deadline):
            raise DeadlineExceededError(f"group {progress.group} is still rebalancing", api="JoinGroup")
        if not member.state_machine.is_only_member and not self._warned_of_others:
            self._warned_of_others = True
            _log.warning(
                "Group %s has other members than this query: both commit for the same partitions, or for a part of them. Give "
                "each query a kafka.group.id of its own.",
                progress.group,
            )
        return member.state_machine.identity

    def has_moved_on(self, identity: MemberIdentity) -> bool:
        """Return whether the member has joined again, or is about to, since it had ``identity``."""
        member = self._member
        return (
            member is not None
            and member.error is None
            and (member.joining or member.state_machine.identity != identity)
        )

    def close(self) -> None:
        """Leave the group."""
        if self._member is not None:
            self._member.close()


def _exit_on_sigterm() -> None:
    """Make SIGTERM an exit, so that Spark's runner still calls ``stop()``. Spark ends a stopped query's process by that signal.

    Spark sends it twice, to the worker and to all workers of its factory. The second one is ignored: it would interrupt the
    LeaveGroup."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        return  # the process handles the signal itself

    def end(number: int, _: FrameType | None) -> NoReturn:
        signal.signal(number, signal.SIG_IGN)
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, end)
