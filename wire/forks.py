"""Whether the process forked since an object was made: a child must not go on under its parent's producer id.

Owns a count of the forks that lead to this process, and the list of what a child must repair. Whoever keeps a producer id,
sequences, records or a thread of its own process remembers :data:`generation` with them, and compares before each use. A module's
attribute, not a call or ``os.getpid()``: it is compared for each record that is sent. Calls in threads do it in one place
(:mod:`~pykafka_wire.wire.background_call`); futures of a child's copies of connections fail.

A child that wrote under its parent's producer id would lose records: the broker takes its first batch for a duplicate of the
parent's, acknowledges it and drops it. So the child's producer gets a new id; it fails if the parent had unacknowledged records.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol

from pykafka_wire.wire.errors import ForkedConsumerError, ForkedProducerError

#: How many forks separate this process from the one that imported this module first. Changes in forked children only.
generation: int = 0


class HasAfterFork(Protocol):
    """What a forked child must repair before it uses it: sockets that are its parent's, locks that no thread of its own holds."""

    def after_fork(self) -> None: ...


_mended_in_child: weakref.WeakSet[HasAfterFork] = weakref.WeakSet()


def call_in_child(owner: HasAfterFork) -> None:
    """Have ``owner.after_fork`` called in each child that this process forks, as long as somebody else keeps ``owner``."""
    _mended_in_child.add(owner)


def _after_fork() -> None:
    global generation
    generation += 1
    for owner in _mended_in_child:
        owner.after_fork()


def forked_producer_error() -> ForkedProducerError:
    """Return the error for a child whose parent's producer held records at the fork, or had failed."""
    return ForkedProducerError(
        "this process was forked while its parent's producer held unacknowledged records, or after that producer had failed",
        remedy="Records from before the fork are the parent's to write. Call reset(), or make a producer in the child.",
    )


def forked_transaction_error(transactional_id: str) -> ForkedProducerError:
    """Return the error for a child whose parent had a transaction open at the fork."""
    return ForkedProducerError(
        f"the transaction of transactional id {transactional_id!r} was begun before this process was forked",
        remedy="Only the process that began it may continue it.",
    )


def forked_consumer_error(group: str) -> ForkedConsumerError:
    """Return the error for a child whose parent is a member of a consumer group."""
    return ForkedConsumerError(
        f"this process was forked after its parent subscribed as a member of group {group!r}",
        remedy="Make a consumer in the child: it becomes a member of its own.",
    )


os.register_at_fork(after_in_child=_after_fork)
