"""Which broker a range is read from, and for how long: its leader, or the follower that its leader names (KIP-392).

Owns this choice for one range. It sends nothing and decides nothing about a response: what a response means is
:mod:`~pykafka_wire.wire.fetch.response_handler`'s. Its rules:

==============================================  ==========================================================================
what happens                                    where the range is read next
==============================================  ==========================================================================
the leader names a follower in the client's     from the follower, for ``metadata.max.age.ms``; then the leader is asked again
rack
another broker leads, or the time is up         from the leader, which may name a follower
a follower has no records (read without an end) from the leader once, which tells whether the log ends, and may name it again
a follower fails, or has no records for too     from the leader alone, for 45 seconds
long
==============================================  ==========================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: How long a follower may have nothing to give. Its high watermark trails the leader's until its next fetch from there, at
#: most replica.fetch.wait.max.ms (500 ms by default) in a healthy cluster.
FOLLOWER_WAIT_S: Final = 1.0
#: How long the leader serves a range itself after a follower failed it. By then a leader has dropped a follower that
#: trails from the in-sync replicas (1.5 times replica.lag.time.max.ms, which is 30 s by default), and names it no more.
_LEADER_ONLY_S: Final = 45.0


@dataclass(slots=True, eq=False)
class PreferredReadReplica:
    """The broker that one range is read from. All times are of the read's clock.

    Attributes:
        node: the follower, -1 for the leader.
        until: when to ask the leader again.
        leader_only_until: until then no follower is to be used.
        empty_since: since when followers have had no records, None where they have, or the leader's log ends here.
    """

    node: int = -1
    until: float = 0.0
    leader_only_until: float = 0.0
    empty_since: float | None = None

    def choose(self, leader: int, *, has_moved: bool, now: float) -> int:
        """Return the broker to ask: the follower until its time is up or the leader has moved, else `leader`."""
        if has_moved or now >= self.until:
            self.node = -1
        return self.node if self.node >= 0 else leader

    def may_redirect(self, now: float) -> bool:
        """Return whether the leader may name a follower."""
        return now >= self.leader_only_until

    def redirect(self, node: int, now: float, max_age_s: float) -> None:
        """Read from the follower `node` for `max_age_s` seconds, at least for as long as a follower may have nothing to give."""
        self.node = node
        self.until = now + max(max_age_s, FOLLOWER_WAIT_S)

    def ask_leader(self, now: float) -> None:
        """Ask the leader once, since the follower has no records."""
        self.miss_records(now)
        self.node = -1

    def leave(self, now: float) -> None:
        """Go back to the leader, without a rack for a while: the leader would name the same follower again."""
        self.node, self.leader_only_until, self.empty_since = -1, now + _LEADER_ONLY_S, None

    def miss_records(self, now: float) -> None:
        """Note that a follower has no records."""
        if self.empty_since is None:
            self.empty_since = now

    def expect_records(self, now: float) -> None:
        """Note that the leader has records from now on: the time that a follower has to get them begins."""
        self.empty_since = now

    def settle(self) -> None:
        """Note that records came, or that the leader's log ends here: nothing is missing."""
        self.empty_since = None

    @property
    def is_empty(self) -> bool:
        """Return whether a follower has had no records, though the leader's log did not end here."""
        return self.empty_since is not None

    def waited_s(self, now: float) -> float:
        """Return for how many seconds followers have had no records, though the leader's log did not end here."""
        return 0.0 if self.empty_since is None else now - self.empty_since
