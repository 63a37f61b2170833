"""The exceptions of :mod:`pykafka_wire.wire`.

Owns the hierarchy, and the mapping from a broker's error code to a class. :mod:`~pykafka_wire.wire.error_codes` lists what
each code means and how a client reacts to it.

Every exception can be pickled with all its attributes, since it crosses Spark's process borders. Its text states what
happened, where (topic-partition, offset, broker, API and version), and the remedy where there is one.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypedDict

from pykafka_wire.wire.error_codes import ErrorCode, ErrorInfo, error_info, remedy_of

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

#: A name in braces within a sentence: of a setting, or of a value that stands beside the sentence.
_IN_BRACES: Final = re.compile(r"\{([\w.*]+)\}")


def fill_in(sentence: str, prefix: str = "", **values: object) -> str:
    """Return a sentence with its values in place, and with the prefix before each name of a setting.

    ``{acks} is {value}.`` becomes ``kafka.acks is 1.`` by the prefix ``kafka.`` and the value 1. Values are not searched for names.
    """
    return _IN_BRACES.sub(lambda match: str(values.get(match[1], prefix + match[1])), sentence)


class Place(TypedDict, total=False):
    """Where an error happened, as :class:`WireError` takes it."""

    topic: str | None
    partition: int | None
    offset: int | None
    broker: int | str | None
    api: str | None
    version: int | None


class WireError(Exception):
    """Root of all errors of this package.

    Attributes are keyword-only and None where they do not apply. :attr:`retriable` is True if the same call may succeed
    when it is repeated. The text begins with :attr:`label`, which stays the same when the wording changes.

    Attributes:
        remedy: what to do, a sentence for :func:`fill_in`: a user may write settings with a prefix (:meth:`with_prefix`).
    """

    retriable: bool = False
    _prefix: str = ""

    def __init__(self, message: str, *, remedy: str = "", **place: Unpack[Place]) -> None:
        super().__init__(message)
        self.message = message
        self.topic = place.get("topic")
        self.partition = place.get("partition")
        self.offset = place.get("offset")
        self.broker = place.get("broker")
        self.api = place.get("api")
        self.version = place.get("version")
        self.remedy = remedy

    def with_prefix(self, prefix: str) -> Self:
        """Return the same error, in which the names of settings have a prefix."""
        error = copy.copy(self)
        error._prefix = prefix
        return error

    @property
    def shown_remedy(self) -> str:
        """Return the remedy with the names of settings as the user writes them."""
        return fill_in(self.remedy, self._prefix)

    @property
    def label(self) -> str:
        """Return a stable code for searches and alerts, from the class's name: ``PYKAFKA_WIRE_NO_BROKER_AVAILABLE``."""
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(self).__name__.removesuffix("Error"))
        return f"PYKAFKA_WIRE_{words.upper()}"

    @property
    def where(self) -> str:
        """Return the place, as ``orders-3, offset 12, broker 1, Fetch v13``; empty if it is unknown."""
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
        """Return message, place and remedy, without the label."""
        return self._join(self.shown_remedy)

    @property
    def sentence(self) -> str:
        """Return the error as a part of another one's remedy: with the names of settings in braces."""
        return f"[{self.label}] {self._join(self.remedy)}"

    def _join(self, remedy: str) -> str:
        text = f"{self.message} [{self.where}]" if self.where else self.message
        if not remedy:
            return text
        return f"{text} {remedy}" if text.endswith((".", "]")) else f"{text}. {remedy}"

    def __str__(self) -> str:
        return f"[{self.label}] {self.text}"

    def __reduce__(self) -> tuple[Any, ...]:  # Any: the shape that object.__reduce__ dictates
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(cls: type[WireError], args: tuple[object, ...], attributes: dict[str, object]) -> WireError:
    """Return the unpickled error. It skips __init__: subclasses differ in their arguments, and all state is in __dict__."""
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(attributes)
    return error


class ProtocolError(WireError):
    """Bytes or a sequence of messages that violate the protocol. In decoding it is the peer's fault, in encoding the caller's."""


class CorruptBatchError(WireError):
    """A record batch whose CRC, lengths or contents are invalid."""


class UnsupportedVersionError(WireError):
    """The broker or this client lacks an API, an API version or a record format that the call needs."""


class TransportError(WireError):
    """Connecting, sending or receiving failed. Whether the broker processed the request is unknown."""

    retriable = True


class DeadlineExceededError(TransportError):
    """An operation did not finish within its time limit, retries included."""


class MisroutedConnectionError(TransportError):
    """Another broker than the one that is meant has responded, of this cluster or of another one: the client's metadata is out of
    date, or a load balancer or DNS leads elsewhere (KIP-1242)."""


class CorrelationError(ProtocolError, TransportError):
    """A response has another correlation id than the oldest request in flight: this connection can no longer be used.

    Other protocol errors mean that the message itself is wrong. This one does not, so a retry on a new connection may succeed.
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
        remedy: str = "",
    ) -> None:
        super().__init__(
            message, remedy=remedy or "Check {bootstrap.servers}, the network and the listener's {security.protocol}."
        )
        self.attempts = tuple(attempts)

    def _join(self, remedy: str) -> str:
        tried = "; ".join(f"{address}: {reason}" for address, reason in self.attempts).removesuffix(".")
        text = f"{self.message}: {tried}." if tried else f"{self.message}."
        return f"{text} {remedy}" if remedy else text


class AuthenticationError(WireError):
    """The broker rejected the credentials, or could not prove that it knows them. Never retried: accounts get locked."""


class SettingsError(WireError):
    """A client setting that is missing, malformed or in conflict with another.

    It keeps its parts, since a user may write settings with a prefix (:meth:`with_prefix`) or by other names (:meth:`with_names`).

    Args:
        message, remedy: sentences for :func:`fill_in`, where ``{setting}`` is the setting at fault.
        prefix: what the user writes before the names of settings.
        values: what the two sentences name in braces beside settings.

    Attributes:
        setting: its name without any prefix.
    """

    def __init__(
        self, message: str, *, setting: str | None = None, remedy: str = "", prefix: str = "", **values: object
    ) -> None:
        self.setting = setting
        self._sentence = message
        self._values = {name: str(value) for name, value in values.items()}
        self._prefix = prefix
        super().__init__(self._fill_in(message), remedy=remedy)

    def _fill_in(self, sentence: str) -> str:
        return fill_in(sentence, self._prefix, **{"setting": f"{self._prefix}{self.setting}"} | self._values)

    @property
    def shown_remedy(self) -> str:
        return self._fill_in(self.remedy)

    def with_prefix(self, prefix: str) -> SettingsError:
        return SettingsError(self._sentence, setting=self.setting, remedy=self.remedy, prefix=prefix, **self._values)

    def with_names(self, names: Mapping[str, str]) -> SettingsError:
        """Return the same error, in which settings have the names that the user writes for them."""
        setting = None if self.setting is None else names.get(self.setting, self.setting)
        return SettingsError(self._sentence, setting=setting, remedy=self.remedy, **{**self._values, **names})


class ForkedProducerError(WireError):
    """A forked child uses a producer or a transaction of its parent, which holds unacknowledged records.

    Two processes that share a producer id and sequence numbers lose records: the broker takes the second process's batch for
    a duplicate, acknowledges it, and drops it.
    """


class ForkedConsumerError(WireError):
    """A forked child uses a consumer of its parent, which is a member of a group.

    Two processes with one member id would read the same partitions, and each would commit over the other.
    """


class RecordsNotWrittenError(WireError):
    """Encoding or queueing was interrupted: the records of this call are neither queued nor written."""


class TransactionStateError(WireError):
    """A call that a transaction's state forbids: it has ended, has failed and can only be aborted, or is not complete."""


class TopicRecreatedError(WireError):
    """A topic was deleted and recreated under the same name: offsets of the old topic are invalid in the new one.

    Attributes:
        expected_id, found_id: the topic ids as text, where known.
    """

    def __init__(
        self,
        message: str,
        *,
        expected_id: str | None = None,
        found_id: str | None = None,
        remedy: str = "Start the query from a new checkpoint, or set its starting offsets again.",
        **place: Unpack[Place],
    ) -> None:
        super().__init__(message, remedy=remedy, **place)
        self.expected_id = expected_id
        self.found_id = found_id


class LogEndError(WireError):
    """A range ends beyond the last offset that the leader serves: the log was truncated, or a transaction is still open.

    Attributes:
        position: the first offset that could not be read.
        end_offset: the end of the range, exclusive.
        high_watermark, last_stable_offset: from the last response.
        log_end_offset: the end of the leader's log, None if unknown. Records below it exist, readable or not yet.
    """

    def __init__(
        self,
        message: str,
        *,
        position: int,
        end_offset: int,
        high_watermark: int,
        last_stable_offset: int,
        log_end_offset: int | None = None,
        remedy: str = "",
        **place: Unpack[Place],
    ) -> None:
        super().__init__(message, remedy=remedy, **place | {"offset": position})
        self.position = position
        self.end_offset = end_offset
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_end_offset = log_end_offset


class LogTruncatedError(WireError):
    """Records that were read before are gone: an unclean leader election truncated the log below the position (KIP-320).

    Attributes:
        diverging_epoch, diverging_offset: the last leader epoch that both logs share, and its end offset.
    """

    def __init__(
        self,
        message: str,
        *,
        diverging_epoch: int = -1,
        diverging_offset: int = -1,
        remedy: str = "Set unclean.leader.election.enable=false, or start from an offset that exists.",
        **place: Unpack[Place],
    ) -> None:
        super().__init__(message, remedy=remedy, **place)
        self.diverging_epoch = diverging_epoch
        self.diverging_offset = diverging_offset


class BrokerError(WireError):
    """A broker responded with an error code.

    Made by :func:`broker_error`, which picks the right subclass.

    Attributes:
        code, name: Kafka's error code and its name, such as 1 and ``OFFSET_OUT_OF_RANGE``.
        retriable: as Kafka's Java client classifies the code.
        detail: the broker's own error message, if it sent one.
    """

    def __init__(self, code: int, *, detail: str | None = "", **place: Unpack[Place]) -> None:
        info = error_info(code)
        code = info.code  # a plain number, whatever a caller named it by
        message = f"{info.name} (error {code}): {info.meaning}"
        if detail:
            message = f"{message} {detail}"
        super().__init__(message, remedy=remedy_of(code, place.get("api")), **place)
        self.code = code
        self.name = info.name
        self.retriable = info.retriable
        self.detail = detail or ""

    @property
    def info(self) -> ErrorInfo:
        """Return the code's entry in :data:`~pykafka_wire.wire.error_codes.ERRORS`."""
        return error_info(self.code)


class UnknownTopicError(BrokerError):
    """The topic, its id or the partition does not exist, or this broker does not know it yet."""


class RecordTooLargeError(BrokerError):
    """A batch is larger than the topic or the broker allows."""


class ProducerFencedError(BrokerError):
    """A newer producer with the same transactional id has fenced this one, or the coordinator has after a timeout."""


class OffsetOutOfRangeError(BrokerError):
    """The offset is below the log start or above the end: retention, DeleteRecords, truncation, or another topic.

    Attributes:
        log_start_offset, log_end_offset: the log's bounds right after the error, None if they could not be read.
    """

    log_start_offset: int | None = None
    log_end_offset: int | None = None


_BROKER_ERRORS: Final[dict[int, type[BrokerError]]] = {
    ErrorCode.OFFSET_OUT_OF_RANGE: OffsetOutOfRangeError,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: UnknownTopicError,
    ErrorCode.MESSAGE_TOO_LARGE: RecordTooLargeError,
    ErrorCode.RECORD_LIST_TOO_LARGE: RecordTooLargeError,
    ErrorCode.INVALID_PRODUCER_EPOCH: ProducerFencedError,
    ErrorCode.PRODUCER_FENCED: ProducerFencedError,
    ErrorCode.UNKNOWN_TOPIC_ID: UnknownTopicError,
}


def broker_error(code: int, *, detail: str | None = "", **place: Unpack[Place]) -> BrokerError:
    """Return the exception for a broker's error code, of the most specific class."""
    return _BROKER_ERRORS.get(code, BrokerError)(code, detail=detail, **place)
