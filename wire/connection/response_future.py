"""Futures of responses, and which of many is ready first.

Owns the futures that senders hold; bytes are read by :mod:`~pykafka_wire.wire.connection.connection`, whose connections bring
responses in the order of the requests.
"""

from __future__ import annotations

import select
import time
from collections.abc import Sequence
from typing import Any, Final, Generic, Protocol, TypeVar, cast

from pykafka_wire.wire.connection.counters import ClientCounters
from pykafka_wire.wire.connection.state_machine import Sent
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import WireError
from pykafka_wire.wire.protocol.message import Message

ResponseT_co = TypeVar("ResponseT_co", bound=Message, covariant=True)


#: How often :func:`first_to_arrive` checks whether another thread has read one of the responses.
_CHECK_MS: Final = 20


class ResponseReader(Protocol):
    """Reads the responses: an open connection."""

    counters: ClientCounters

    @property
    def readable_at(self) -> int | None:
        """The descriptor that becomes readable with the next bytes; None if there is no need to wait for any."""

    def wait_for(self, pending: ResponseFuture[Any], deadline: Deadline, total: Deadline | None) -> None:
        """Read responses until ``pending`` has its own, or an error."""

    def read_arrived(self, pending: ResponseFuture[Any]) -> None:
        """Read what has arrived, without waiting. While a response is incomplete, the descriptor then becomes readable only once
        many more bytes have arrived."""

    def clear_low_water_mark(self) -> None:
        """Have the descriptor become readable with the next byte again."""


class ResponseFuture(Generic[ResponseT_co]):
    """The response to a request that was sent, once it comes.

    Made by :meth:`~pykafka_wire.wire.connection.connection.Connection.send`.
    """

    def __init__(self, reader: ResponseReader, sent: Sent, throttled_s: float) -> None:
        self._reader = reader
        self._throttled_s = throttled_s
        self._response: Message | None = None
        self._error: WireError | None = None
        self._sent = sent
        self.sent_at = time.monotonic()

    @property
    def version(self) -> int:
        """The version that the request was sent in."""
        return self._sent.version

    @property
    def sent(self) -> Sent:
        """What was sent."""
        return self._sent

    @property
    def done(self) -> bool:
        return self._response is not None or self._error is not None

    def result(self, deadline: Deadline, total: Deadline | None = None) -> ResponseT_co:
        """The response; waits for it until ``deadline``.

        Time for which the broker throttles the connection does not count against ``deadline`` (KIP-219), but only up to
        ``total``, by default ``default.api.timeout.ms`` from now.

        Raises:
            DeadlineExceededError: no response in time; the connection is closed, because its next response would be this one.
            TransportError, ProtocolError: the connection broke.
        """
        if not self.done:
            self._reader.wait_for(self, deadline, total)
        if self._error is not None:
            raise self._error
        return cast("ResponseT_co", self._response)

    def extended(self, deadline: Deadline, total: Deadline, throttled_s: float) -> Deadline:
        """``deadline``, extended up to ``total`` by the time that the connection was throttled since the request was sent."""
        return Deadline(max(deadline.at, min(deadline.at + throttled_s - self._throttled_s, total.at)))

    def set_response(self, response: Message) -> None:
        """The response has arrived; called by the reader."""
        self._response = response

    def set_error(self, error: WireError) -> None:
        """No response will arrive; called by the reader."""
        self._error = error

    @property
    def readable_at(self) -> int | None:
        """The descriptor that is readable once the response begins to arrive; None if there is no need to wait for it."""
        return None if self.done else self._reader.readable_at

    def read_arrived(self) -> bool:
        """Whether the response, or an error, is complete; reads what has arrived of it, and waits for nothing."""
        if not self.done:
            self._reader.read_arrived(self)
        return self.done

    def clear_low_water_mark(self) -> None:
        """Have the descriptor become readable with the next byte again: :meth:`read_arrived` has it wait for many."""
        self._reader.clear_low_water_mark()

    def count_wait(self, seconds: float) -> None:
        """Count time that was spent waiting for this response and others of the same client."""
        self._reader.counters.count_wait(seconds)

    @property
    def arrived(self) -> bool:
        """Whether there is no need to wait: the response has begun to arrive, or its fate is known."""
        descriptor = self.readable_at
        if descriptor is None:
            return True
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(0))


def first_to_arrive(
    pending: Sequence[ResponseFuture[ResponseT_co]], deadline: Deadline
) -> ResponseFuture[ResponseT_co]:
    """The first of `pending` whose response has begun to arrive, or that is done; the very first if none is when `deadline`
    passes. At least one must be given; connections stay as they are."""
    started = time.monotonic()
    first = _first_to_arrive(pending, deadline)
    first.count_wait(time.monotonic() - started)
    return first


def _first_to_arrive(
    pending: Sequence[ResponseFuture[ResponseT_co]], deadline: Deadline
) -> ResponseFuture[ResponseT_co]:
    while True:
        poll = select.poll()
        waiting: dict[int, ResponseFuture[ResponseT_co]] = {}
        for each in pending:
            descriptor = each.readable_at
            if descriptor is None:
                return each
            if descriptor not in waiting:  # a connection's responses come in order
                waiting[descriptor] = each
                poll.register(descriptor, select.POLLIN)
        # Another thread that waits on the same connection may read the response: then the descriptor does not become readable.
        ready = poll.poll(min(_CHECK_MS, deadline.remaining_ms()))
        if ready:
            return waiting[ready[0][0]]
        for each in waiting.values():  # bytes arrive slowly: those that are there are read now
            each.clear_low_water_mark()
        if deadline.expired:
            return pending[0]
