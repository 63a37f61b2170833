"""A query as a member of its consumer group, which it is where ``groupMembership=static`` asks for it.

One static member a query (KIP-345), whose instance id is the query's, so that a restart takes the same place over and a double of
the query is fenced. What the group assigns means nothing to Spark, which plans by itself; membership makes the query visible to
tools, keeps its offsets from expiring, and keeps others from committing over them. Heartbeats come from a thread of their own,
however long a batch takes.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from dataclasses import replace
from types import FrameType
from typing import NoReturn

from pykafka_wire.offsets import QueryOffsets
from pykafka_wire.wire.cluster.cluster import Cluster, Deadline
from pykafka_wire.wire.errors import DeadlineExceededError
from pykafka_wire.wire.groups.member import GroupMember, LiveMember, membership
from pykafka_wire.wire.groups.membership import Identity
from pykafka_wire.wire.settings import ClientSettings

_log = logging.getLogger(__name__)


class StaticMember:
    """Joins when the query is first known, leaves by its instance id when it stops."""

    def __init__(self, cluster: Cluster, client: ClientSettings) -> None:
        self._cluster = cluster
        self._client = client
        self._member: LiveMember | None = None
        self._said_others = False

    def attend(self, progress: QueryOffsets) -> LiveMember:
        """The member for a query's progress: joins in the background at first, and again when it reads other topics."""
        topics = tuple(sorted({tp.topic for tp in progress.offsets}))
        member = self._member
        if member is None:
            _exit_on_sigterm()
            instance_id = self._client.group_instance_id or f"pykafka-wire-{progress.query}"
            machine = membership(replace(self._client, group_instance_id=instance_id), progress.group, topics)
            member = self._member = LiveMember(GroupMember(self._cluster, machine), self._client, rejoins=True)
            member.join()
        elif member.machine.topics != topics and not member.joining and member.error is None:
            member.machine.topics = topics
            member.machine.rejoin()
            member.join()
        return member

    def identity(self, progress: QueryOffsets, deadline: Deadline) -> Identity:
        """Who commits; waits for a place in the group until ``deadline``.

        Raises:
            DeadlineExceededError: the group is still rebalancing.
            WireError: the member is out for good.
        """
        member = self.attend(progress)
        if not member.wait(deadline):
            raise DeadlineExceededError(f"group {progress.group} is still rebalancing", api="JoinGroup")
        if not member.machine.alone and not self._said_others:
            self._said_others = True
            _log.warning(
                "Group %s has other members than this query: both commit for the same partitions, or for a part of them. Give "
                "each query a kafka.group.id of its own.",
                progress.group,
            )
        return member.machine.identity

    def has_moved_on(self, identity: Identity) -> bool:
        """Whether the member has joined again, or is about to, since it had ``identity``."""
        member = self._member
        return member is not None and member.error is None and (member.joining or member.machine.identity != identity)

    def close(self) -> None:
        """Leave the group."""
        if self._member is not None:
            self._member.close()


def _exit_on_sigterm() -> None:
    """Spark ends the process of a stopped query by SIGTERM and does not ask the reader to stop; where that is an exit rather
    than a sudden death, Spark's runner still does so. Spark sends the signal twice, to the worker and to all of its factory's
    workers: the second one must not cut the leaving short."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        return  # somebody else sees to it

    def end(number: int, _: FrameType | None) -> NoReturn:
        signal.signal(number, signal.SIG_IGN)
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, end)
