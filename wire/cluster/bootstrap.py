"""Asks for metadata: first the known brokers, the most promising first, then the bootstrap servers, each in turn.

Owns the order in which brokers are asked for metadata, how long each may take, and the error that names every address tried
and why. It knows nothing of what the response is used for. KIP-899 and KIP-1102 (rebootstrap);
https://kafka.apache.org/protocol#protocol_partitioning
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from pykafka_wire.wire.backoff import Backoff
from pykafka_wire.wire.cluster.connection_pool import GENERAL, ConnectionPool
from pykafka_wire.wire.cluster.metadata_cache import Broker, brokers_of
from pykafka_wire.wire.cluster.retries import Retry
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


class MetadataFound(NamedTuple):
    """A Metadata response and its version."""

    response: MetadataResponse
    version: int


class MetadataSource:
    """Asks for metadata: known brokers first, then the bootstrap servers."""

    def __init__(self, settings: ClientSettings, connections: ConnectionPool, backoff: Backoff) -> None:
        self._settings = settings
        self._connections = connections
        self._backoff = backoff
        #: Since when metadata was asked for and not had, None once a response came.
        self._silent_since: float | None = None
        self._warn_after_s = _WARN_AFTER_S

    def silent_s(self) -> float:
        """For how long metadata was asked for, and no broker has responded."""
        return 0.0 if self._silent_since is None else time.monotonic() - self._silent_since

    def forget_silence(self) -> None:
        """The brokers that were asked are forgotten: count anew."""
        self._silent_since = None
        self._warn_after_s = _WARN_AFTER_S

    def ask(self, request: MetadataRequest, nodes: Sequence[Broker], deadline: Deadline) -> MetadataFound:
        """The first response of any broker; ``nodes`` are those that are known, none before the first contact.

        Raises:
            NoBrokerAvailableError: no broker responded: raised within seconds if none ever did, else at the deadline.
            AuthenticationError: a broker refused us. Others would too, and accounts get locked.
        """
        limit, attempt_ms = deadline, float(self._settings.socket_connection_setup_timeout_ms)
        if not nodes:
            budget_ms = max(_FIRST_CONTACT_MS, attempt_ms)
            limit = deadline.at_most_ms(budget_ms)
            share_ms = budget_ms / len(self._settings.bootstrap_servers)
            attempt_ms = min(attempt_ms, max(_MIN_ATTEMPT_MS, share_ms))
        reasons: dict[str, str] = {}
        started = time.monotonic()
        if self._silent_since is None:
            self._silent_since = started
        n_cycles = 0

        def cycle() -> MetadataFound:
            nonlocal attempt_ms, n_cycles, nodes
            n_cycles += 1
            if nodes and n_cycles > 1:
                attempt_ms *= 2  # they are more likely slow than dead
            for node, (host, port) in self._candidates(nodes):
                # In the first cycle each is asked, so that the error names the reason for each.
                if limit.expired and (n_cycles > 1 or deadline.expired) and reasons:
                    break
                address = f"{host}:{port}"
                try:
                    found = self._ask_one(request, node, host, port, attempt_ms, deadline)
                except MisroutedConnectionError:
                    nodes = ()  # any other of them may be another cluster's as well
                    raise
                except (TransportError, ProtocolError) as error:
                    logger.debug("%s gave no metadata: %s", address, error)
                    # When time runs out in a later cycle, the first one's reason is the telling one.
                    if address not in reasons or not isinstance(error, DeadlineExceededError):
                        reasons[address] = f"{error.message}{f'. {error.remedy}' if error.remedy else ''}"
                    if nodes:
                        self._warn_of_silence(reasons, deadline)
                    continue
                if found is not None:
                    if self._warn_after_s > _WARN_AFTER_S:
                        logger.info("broker %s has responded, after %.0f s without any", address, self.silent_s())
                    self.forget_silence()
                    return found
                reasons[address] = "it does not know any broker yet"
            raise TransportError("no broker responded")

        with contextlib.suppress(DeadlineExceededError):
            return Retry(self._backoff, limit).run(cycle, "Metadata")
        raise NoBrokerAvailableError(
            f"no broker is available after {limit.spent(started)}", attempts=tuple(reasons.items())
        )

    def _warn_of_silence(self, reasons: Mapping[str, str], deadline: Deadline) -> None:
        silent_s = self.silent_s()
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

    def _candidates(self, nodes: Sequence[Broker]) -> Iterator[tuple[Broker | None, tuple[str, int]]]:
        known = [(node.host, node.port) for node in nodes]
        for node in self._connections.in_order(nodes):
            yield node, (node.host, node.port)
        if nodes and self._settings.metadata_recovery_strategy == "none":
            return
        for address in self._settings.bootstrap_servers:
            if address not in known:
                yield None, address

    def _ask_one(
        self,
        request: MetadataRequest,
        node: Broker | None,
        host: str,
        port: int,
        attempt_ms: float,
        deadline: Deadline,
    ) -> MetadataFound | None:
        """One broker's response; None if it has not joined its cluster yet, as one that is just starting.

        ``attempt_ms`` limits opening a connection, and for the response of a broker that may have died on an open one. Who has
        just gone through the handshake is alive, and gets the time of any request: metadata of many topics take theirs.
        """
        response_ms = float(self._settings.request_timeout_ms)
        seed = None
        if node is not None:
            connection = self._connections.get(node, GENERAL, deadline.at_most_ms(attempt_ms))
            response_ms = min(response_ms, attempt_ms)
        else:
            connection = seed = self._connections.open_seed(host, port, deadline.at_most_ms(attempt_ms))
        try:
            response_deadline = deadline.at_most_ms(response_ms)
            pending = connection.send(request, deadline=response_deadline)
            response: MetadataResponse = pending.result(response_deadline, deadline)
        except BaseException:
            if seed is not None:
                seed.close()
            raise
        if response.brokers:
            self._adopt(seed, response)
            return MetadataFound(response, pending.version)
        if seed is not None:
            seed.close()
        return None

    def _adopt(self, seed: Connection | None, response: MetadataResponse) -> None:
        """Keep a bootstrap connection whose address is a broker's own; close any other."""
        if seed is not None:
            behind = [node for node in brokers_of(response).values() if f"{node.host}:{node.port}" == seed.address]
            if not (behind and self._connections.adopt(seed, behind[0])):
                seed.close()
