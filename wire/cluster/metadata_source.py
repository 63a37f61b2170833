"""Asks for metadata: known brokers, the most promising first, then the bootstrap servers (KIP-899, KIP-1102).

Owns whom a Metadata request (https://kafka.apache.org/protocol#The_Messages_Metadata) goes to, how long each broker may take, the
error that names every address tried and why, and the warning that no broker responds. It keeps nothing of a response: that is
:mod:`~pykafka_wire.wire.cluster.metadata`'s.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from pykafka_wire.wire.cluster.connection_pool import GENERAL, ConnectionPool
from pykafka_wire.wire.cluster.metadata_cache import Broker, brokers_of
from pykafka_wire.wire.cluster.retries import Backoff, Retry
from pykafka_wire.wire.connection.connection import Connection
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import (
    DeadlineExceededError,
    MisroutedConnectionError,
    NoBrokerAvailableError,
    ProtocolError,
    TransportError,
)
from pykafka_wire.wire.protocol.messages.metadata import MetadataRequest, MetadataResponse
from pykafka_wire.wire.settings import ClientSettings

logger = logging.getLogger(__name__)

#: A cluster that never responded is given up after this long, or once every bootstrap server has had its turn: a wrong
#: address must not cost a minute.
_FIRST_CONTACT_MS: Final = 6_000
#: What each bootstrap server gets of it at least, for connecting and the handshake: eight round trips with TLS and SCRAM. A
#: broker that accepts connections and responds to nothing (stopped, not dead) must not use up the others' time.
_MIN_ATTEMPT_MS: Final = 2_000
#: Known brokers that are all silent are worth a warning after this time, long before a call gives up; then each time that the
#: silence has lasted so many times as long. An election, or one broker's restart, is over sooner.
_WARN_AFTER_S: Final = 5.0
_WARN_FACTOR: Final = 4.0


class Silence:
    """The time for which metadata was asked for, and no broker has responded."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Count anew: the brokers that were asked are forgotten."""
        self._since: float | None = None
        self._warn_after_s = _WARN_AFTER_S

    def begin(self, now: float) -> None:
        """Count from now, unless no broker has responded to an earlier request either."""
        if self._since is None:
            self._since = now

    def end(self, address: str) -> None:
        """Note that the broker at this address has responded."""
        if self._warn_after_s > _WARN_AFTER_S:
            logger.info("broker %s has responded, after %.0f s without any", address, self.seconds())
        self.forget()

    def seconds(self) -> float:
        """Return how long it has lasted; 0 where no request is without a response."""
        return 0.0 if self._since is None else time.monotonic() - self._since

    def warn(self, reasons: Mapping[str, str], deadline: Deadline) -> None:
        """Log a warning if it has lasted for long, with the reason by address; and rarely again."""
        silent_s = self.seconds()
        if silent_s < self._warn_after_s:
            return
        self._warn_after_s = silent_s * _WARN_FACTOR
        logger.warning(
            "no broker has responded for %.0f s (%s); %s",
            silent_s,
            "; ".join(f"{address}: {reason}" for address, reason in reasons.items()),
            f"trying for another {deadline.remaining_ms() / 1000:.0f} s ({deadline.setting})"
            if deadline.setting
            else "trying again",
        )


class MetadataSource:
    """Sends Metadata requests to whichever broker responds first."""

    def __init__(self, settings: ClientSettings, connections: ConnectionPool, backoff: Backoff) -> None:
        self.settings = settings
        self.connections = connections
        self.backoff = backoff
        self.silence = Silence()

    def ask(
        self, request: MetadataRequest, nodes: Sequence[Broker], deadline: Deadline
    ) -> tuple[MetadataResponse, int]:
        """Return the first response of any broker, and its version; ``nodes`` are those that are known, none before the first
        contact.

        Raises:
            NoBrokerAvailableError: no broker responded: raised within seconds if none ever did, else at the deadline.
            AuthenticationError: a broker refused us. Others would too, and accounts get locked.
        """
        return _BrokerSearch(self, request, nodes, deadline).run()


class _BrokerSearch:
    """One request on its way from broker to broker, in cycles over all of them.

    A known broker gets twice the time in each further cycle. Before the first contact the bootstrap servers share a few seconds; if
    one of them used up its share, one more cycle gives each the whole time of an attempt.
    """

    def __init__(
        self, source: MetadataSource, request: MetadataRequest, nodes: Sequence[Broker], deadline: Deadline
    ) -> None:
        self._settings = source.settings
        self._connections = source.connections
        self._backoff = source.backoff
        self._silence = source.silence
        self._request = request
        self._nodes = nodes
        self._deadline = deadline
        #: For one broker to be connected to, and to respond.
        self._attempt_ms = float(self._settings.socket_connection_setup_timeout_ms)
        limit = deadline
        if not nodes:
            budget_ms = max(_FIRST_CONTACT_MS, self._attempt_ms)
            limit = deadline.at_most_ms(budget_ms)
            share_ms = budget_ms / len(self._settings.bootstrap_servers)
            self._attempt_ms = min(self._attempt_ms, max(_MIN_ATTEMPT_MS, share_ms))
        self._retry = Retry(self._backoff, limit)
        self._n_cycles = 0
        #: By address, why it gave no metadata, and what to do about it.
        self._reasons: dict[str, str] = {}
        self._remedies: dict[str, str] = {}

    def run(self) -> tuple[MetadataResponse, int]:
        """Return the first response, and its version; raises as :meth:`MetadataSource.ask`."""
        started = time.monotonic()
        self._silence.begin(started)
        with contextlib.suppress(DeadlineExceededError):
            return self._retry.run(self._cycle, "Metadata")
        raise NoBrokerAvailableError(
            f"no broker is available after {self._retry.deadline.spent(started)}",
            attempts=tuple(self._reasons.items()),
            remedy=" ".join(filter(None, dict.fromkeys(self._remedies.values()))),
        )

    def _cycle(self) -> tuple[MetadataResponse, int]:
        """Ask each broker once; raise TransportError where none responds."""
        n_slow = 0
        self._n_cycles += 1
        if self._nodes and self._n_cycles > 1:
            self._attempt_ms *= 2  # they are more likely slow than dead
        for node, (host, port) in self._candidates():
            # In the first cycle each is asked, so that the error names the reason for each.
            is_over = self._retry.deadline.expired and (self._n_cycles > 1 or self._deadline.expired)
            if is_over and self._reasons:
                break
            address = f"{host}:{port}"
            asked_at = time.monotonic()
            try:
                response = self._ask(node, host, port)
            except MisroutedConnectionError:
                self._nodes = ()  # any other of them may be another cluster's as well
                raise
            except (TransportError, ProtocolError) as error:
                logger.debug("%s gave no metadata: %s", address, error)
                n_slow += time.monotonic() - asked_at >= self._attempt_ms / 1000
                self._note_failure(address, error)
                continue
            if response is not None:
                self._silence.end(address)
                return response
            self._reasons[address] = "it does not know any broker yet"
        if not self._nodes and n_slow:
            self._give_time(n_slow)
        raise TransportError("no broker responded")

    def _note_failure(self, address: str, error: TransportError | ProtocolError) -> None:
        # An attempt that the deadline has cut off says less than an earlier attempt that had its time.
        if address not in self._reasons or not self._deadline.expired:
            self._reasons[address], self._remedies[address] = error.message, error.remedy
        if self._nodes:
            self._silence.warn(self._reasons, self._deadline)

    def _give_time(self, n_slow: int) -> None:
        """Give bootstrap servers that used up their share all the time of an attempt, once: they may be slow, not dead."""
        setup_ms = float(self._settings.socket_connection_setup_timeout_ms)
        if self._attempt_ms < setup_ms:
            self._attempt_ms = setup_ms
            self._retry.deadline = self._deadline.at_most_ms(n_slow * setup_ms + self._backoff.first_ms * 2)

    def _candidates(self) -> Iterator[tuple[Broker | None, tuple[str, int]]]:
        nodes = self._nodes
        known = [(node.host, node.port) for node in nodes]
        for node in self._connections.in_order(nodes):
            yield node, (node.host, node.port)
        if nodes and self._settings.metadata_recovery_strategy == "none":
            return
        for address in self._settings.bootstrap_servers:
            if address not in known:
                yield None, address

    def _ask(self, node: Broker | None, host: str, port: int) -> tuple[MetadataResponse, int] | None:
        """Return one broker's response; None if it has not joined its cluster yet, as one that is just starting.

        The time of an attempt limits opening a connection to each address of a name, and the response of a broker that may have
        died on an open one. Who has just gone through the handshake is alive, and gets the time of any request: metadata of many
        topics take theirs.
        """
        deadline, response_ms = self._deadline, float(self._settings.request_timeout_ms)
        seed = None
        if node is not None:
            connection = self._connections.get(node, GENERAL, deadline, attempt_ms=self._attempt_ms)
            response_ms = min(response_ms, self._attempt_ms)
        else:
            connection = seed = self._connections.open_seed(host, port, deadline, attempt_ms=self._attempt_ms)
        try:
            response_deadline = deadline.at_most_ms(response_ms)
            pending = connection.send(self._request, deadline=response_deadline)
            response: MetadataResponse = pending.result(response_deadline, deadline)
        except BaseException:
            if seed is not None:
                seed.close()
            raise
        if response.brokers:
            self._adopt(seed, response)
            return response, pending.version
        if seed is not None:
            seed.close()
        return None

    def _adopt(self, seed: Connection | None, response: MetadataResponse) -> None:
        """Keep a bootstrap connection whose address is a broker's own; close any other."""
        if seed is not None:
            behind = [node for node in brokers_of(response).values() if f"{node.host}:{node.port}" == seed.address]
            if not (behind and self._connections.adopt(seed, behind[0])):
                seed.close()
