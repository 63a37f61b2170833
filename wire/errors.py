"""What can go wrong.

Owns the exception hierarchy of :mod:`pykafka_wire.wire`, and which class a broker's error code becomes; what each code asks
for is said by :mod:`~pykafka_wire.wire.error_codes`.

Every exception can be pickled with all its attributes, since it crosses Spark's process borders, and its text says what
happened, where (topic-partition, offset, broker, API and version), and the remedy where there is one.
"""

from __future__ import annotations

import re
from typing import Any, Final

from pykafka_wire.wire.error_codes import ErrorInfo, error_info


class WireError(Exception):
    """Root of all errors of this package.

    Attributes are keyword-only and None where they do not apply; :attr:`retriable` says whether the same call may
    succeed when it is made again. The text begins with :attr:`label`, which stays the same when words improve.
    """

    retriable: bool = False

    def __init__(
        self,
        message: str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        broker: int | str | None = None,
        api: str | None = None,
        version: int | None = None,
        remedy: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.broker = broker
        self.api = api
        self.version = version
        self.remedy = remedy

    @property
    def label(self) -> str:
        """What to search for and to match alarms by: ``PYKAFKA_WIRE_NO_BROKER_AVAILABLE``, after the class's name."""
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(self).__name__.removesuffix("Error"))
        return f"PYKAFKA_WIRE_{words.upper()}"

    @property
    def where(self) -> str:
        """The place, as ``orders-3, offset 12, broker 1, Fetch v13``; empty if nothing is known of it."""
        parts = []
        if self.topic is not None:
            parts.append(self.topic if self.partition is None else f"{self.topic}-{self.partition}")
        if self.offset is not None:
            parts.append(f"offset {self.offset}")
        if self.broker is not None:
            parts.append(f"broker {self.broker}")
        if self.api is not None:
            parts.append(self.api if self.version is None else f"{self.api} v{self.version}")
        return ", ".join(parts)

    @property
    def text(self) -> str:
        """Message, place and remedy, for an error whose own text says its label."""
        text = f"{self.message} [{self.where}]" if self.where else self.message
        if not self.remedy:
            return text
        return f"{text} {self.remedy}" if text.endswith((".", "]")) else f"{text}. {self.remedy}"

    def __str__(self) -> str:
        return f"[{self.label}] {self.text}"

    def __reduce__(self) -> tuple[Any, ...]:  # Any: the shape that object.__reduce__ dictates
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(cls: type[WireError], args: tuple[object, ...], attributes: dict[str, object]) -> WireError:
    """The unpickled error. __init__ is passed over: subclasses differ in their arguments, all state is in __dict__."""
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(attributes)
    return error


class ProtocolError(WireError):
    """Bytes or a sequence of messages that break the protocol: the peer's fault on decode, the caller's on encode."""


class CorruptBatchError(WireError):
    """A record batch whose CRC, lengths or contents do not hold together."""


class UnsupportedVersionError(WireError):
    """The other side lacks an API, a version of it, or a record format that is needed."""


class TransportError(WireError):
    """Connecting, sending or receiving failed; nothing is known of the request's fate."""

    retriable = True


class DeadlineExceededError(TransportError):
    """The time allowed for a whole operation, retries included, is over."""


class CorrelationError(ProtocolError, TransportError):
    """An answer to another question than the one that is due: requests and answers have lost step on this connection.

    Unlike other breaches of the protocol it says nothing about the message itself, so a new connection may do better.
    """


class NoBrokerAvailableError(TransportError):
    """No broker could be reached.

    Attributes:
        attempts: each address tried and why it failed, in order.
    """

    def __init__(
        self,
        message: str = "no broker is available",
        *,
        attempts: tuple[tuple[str, str], ...] = (),
        remedy: str = "Check bootstrap.servers, the network and the listener's security.protocol.",
    ) -> None:
        super().__init__(message, remedy=remedy)
        self.attempts = tuple(attempts)

    @property
    def text(self) -> str:
        tried = "; ".join(f"{address}: {reason}" for address, reason in self.attempts).removesuffix(".")
        text = f"{self.message}: {tried}." if tried else self.message
        return f"{text} {self.remedy}" if self.remedy else text


class AuthenticationError(WireError):
    """The broker refused our credentials, or failed to prove that it knows them. Never retried: accounts get locked."""


class SettingsError(WireError):
    """A client setting that is missing, malformed or at odds with another.

    Attributes:
        setting: its name as the user wrote it, without a ``kafka.`` prefix.
    """

    def __init__(self, message: str, *, setting: str | None = None, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.setting = setting


class ForkedProducerError(WireError):
    """A forked child uses a producer or a transaction of its parent, which holds unacknowledged records.

    Two processes with one producer id and sequence would overwrite each other: the broker takes the second one's batch for a
    repetition, acknowledges it, and drops it.
    """


class ForkedConsumerError(WireError):
    """A forked child uses a consumer of its parent, which is a member of a group.

    Two processes with one member id would read the same partitions, and each would commit over the other.
    """


class RecordsNotWrittenError(WireError):
    """Encoding or queueing was interrupted: records that were handed over are neither queued nor written."""


class TopicRecreatedError(WireError):
    """A topic was deleted and made again under the same name: offsets of the old one mean nothing in the new one.

    Attributes:
        expected_id, found_id: the topic ids as text, where known.
    """

    def __init__(
        self,
        message: str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        expected_id: str | None = None,
        found_id: str | None = None,
        remedy: str = "Start the query from a new checkpoint, or give its offsets anew.",
    ) -> None:
        super().__init__(message, topic=topic, partition=partition, offset=offset, remedy=remedy)
        self.expected_id = expected_id
        self.found_id = found_id


class LogEndError(WireError):
    """A range ends beyond what its partition's leader serves: the log lost its tail, or a transaction stays open.

    Attributes:
        position: the first offset that could not be had.
        end_offset: the end of the range, exclusive.
        high_watermark, last_stable_offset: as the last response gave them.
        log_end_offset: the end of the leader's log, None if unknown. Records below it exist, readable or not yet.
    """

    def __init__(
        self,
        message: str,
        *,
        topic: str,
        partition: int,
        position: int,
        end_offset: int,
        high_watermark: int,
        last_stable_offset: int,
        log_end_offset: int | None = None,
        broker: int | None = None,
        remedy: str = "",
    ) -> None:
        super().__init__(message, topic=topic, partition=partition, offset=position, broker=broker, remedy=remedy)
        self.position = position
        self.end_offset = end_offset
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_end_offset = log_end_offset


class LogTruncatedError(WireError):
    """Records that were read before are gone: an unclean leader election cut the log below the position (KIP-320).

    Attributes:
        diverging_epoch, diverging_offset: the last leader epoch that both logs share, and where it ends.
    """

    def __init__(
        self,
        message: str,
        *,
        topic: str,
        partition: int,
        offset: int,
        broker: int | None = None,
        diverging_epoch: int = -1,
        diverging_offset: int = -1,
        remedy: str = "Set unclean.leader.election.enable=false, or start from an offset that exists.",
    ) -> None:
        super().__init__(message, topic=topic, partition=partition, offset=offset, broker=broker, remedy=remedy)
        self.diverging_epoch = diverging_epoch
        self.diverging_offset = diverging_offset


class BrokerError(WireError):
    """A broker answered with an error code. Made by :func:`broker_error`, which picks the right subclass.

    Attributes:
        code, name: Kafka's error code and its name, such as 1 and ``OFFSET_OUT_OF_RANGE``.
        retriable: as Kafka's Java client classes the code.
        detail: the broker's own words, where it sent some.
    """

    def __init__(
        self,
        code: int,
        *,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        broker: int | str | None = None,
        api: str | None = None,
        version: int | None = None,
        detail: str | None = "",
    ) -> None:
        info = error_info(code)
        message = f"{info.name} (error {code}): {info.meaning}"
        if detail:
            message = f"{message} {detail}"
        super().__init__(
            message,
            topic=topic,
            partition=partition,
            offset=offset,
            broker=broker,
            api=api,
            version=version,
            remedy=info.remedy,
        )
        self.code = code
        self.name = info.name
        self.retriable = info.retriable
        self.detail = detail or ""

    @property
    def info(self) -> ErrorInfo:
        """The code's entry in :data:`~pykafka_wire.wire.error_codes.ERRORS`."""
        return error_info(self.code)


class UnknownTopicError(BrokerError):
    """The topic, its id or the partition does not exist, or the broker does not know of it yet."""


class RecordTooLargeError(BrokerError):
    """A batch is larger than the topic or the broker allows."""


class ProducerFencedError(BrokerError):
    """A newer producer with the same transactional id, or the coordinator after a timeout, has taken this one's place."""


class OffsetOutOfRangeError(BrokerError):
    """The offset is below the log start or above the end: retention, DeleteRecords, truncation, or another topic.

    Attributes:
        log_start_offset, log_end_offset: the log as it stood right after the refusal, None where it could not be asked.
    """

    log_start_offset: int | None = None
    log_end_offset: int | None = None


_BROKER_ERRORS: Final[dict[int, type[BrokerError]]] = {
    1: OffsetOutOfRangeError,
    3: UnknownTopicError,
    10: RecordTooLargeError,
    18: RecordTooLargeError,
    47: ProducerFencedError,
    90: ProducerFencedError,
    100: UnknownTopicError,
}


def broker_error(
    code: int,
    *,
    topic: str | None = None,
    partition: int | None = None,
    offset: int | None = None,
    broker: int | str | None = None,
    api: str | None = None,
    version: int | None = None,
    detail: str | None = "",
) -> BrokerError:
    """The exception for an error code that a broker answered with, of the most fitting class."""
    cls = _BROKER_ERRORS.get(code, BrokerError)
    return cls(
        code,
        topic=topic,
        partition=partition,
        offset=offset,
        broker=broker,
        api=api,
        version=version,
        detail=detail,
    )
