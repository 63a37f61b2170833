"""Messages declared as data: each (structure, version) gets one reader and one writer from its field table.

Owns the :class:`Message` and :class:`Request` base classes; it knows no message. A message declares each field once, with its
versions, default and nullability, in the order of the wire::

    class MetadataRequest(Request[MetadataResponse], api_key=3, versions=(0, 13), flexible=9):
        topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable_since=1)
        allow_auto_topic_creation: bool = boolean(since=4, default=True)

Type checkers read the annotation; the call makes the row of the field table
(:mod:`~pykafka_wire.wire.protocol.fields`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Generic, TypeAlias, TypeVar, get_args

from pykafka_wire.wire.errors import ProtocolError, UnsupportedVersionError
from pykafka_wire.wire.protocol import encoding
from pykafka_wire.wire.protocol.fields import Struct
from pykafka_wire.wire.protocol.primitives import Segment
from pykafka_wire.wire.single_varint import SHORT_READ

if TYPE_CHECKING:
    from typing_extensions import Self


class Message(Struct):
    """A structure that is sent on its own: a request, a response, a header, or data in another message's bytes.

    Class attributes:
        name: of the API, such as "Metadata".
        versions: lowest and highest version of Kafka 4.4.0.
        flexible: first version with compact lengths and tagged fields (KIP-482), None if there is none.
    """

    name: ClassVar[str]
    versions: ClassVar[tuple[int, int]]
    flexible: ClassVar[int | None]

    def __init_subclass__(cls, *, versions: tuple[int, int] = (0, 0), flexible: int | None = None) -> None:
        super().__init_subclass__()
        cls.name = cls.__name__.removesuffix("Request").removesuffix("Response")
        cls.versions = versions
        cls.flexible = flexible

    @classmethod
    def is_flexible(cls, version: int) -> bool:
        return cls.flexible is not None and version >= cls.flexible

    @classmethod
    def check_version(cls, version: int) -> None:
        """Raise UnsupportedVersionError for a version that the field table does not cover."""
        if not cls.versions[0] <= version <= cls.versions[1]:
            low, high = cls.versions
            raise UnsupportedVersionError(
                f"{cls.__name__} exists in versions {low} to {high}", api=cls.name, version=version
            )

    def write(self, segments: list[Segment], version: int) -> None:
        """Append the encoded message to `segments`; record batches as views, all else as bytes."""
        self.check_version(version)
        try:
            encoding.writer(type(self), version, self.is_flexible(version))(self, segments)
        except (ProtocolError, UnsupportedVersionError) as error:
            error.api, error.version = self.name, version
            raise

    def error_codes(self) -> Iterator[int]:
        """Yield every error code in the message, from the top downwards, 0 for none."""
        return _error_codes(self)

    def encode(self, version: int) -> list[Segment]:
        """Return the segments of the encoded message. Each buffer of record batches is a segment of its own, not copied.

        Raises ProtocolError for a value that does not fit its field, UnsupportedVersionError for an unknown version, or
        if the version lacks a field that is set and not ignorable.
        """
        segments: list[Segment] = []
        self.write(segments, version)
        return encoding.coalesce(segments)

    @classmethod
    def read(cls, data: bytes | bytearray | memoryview, version: int, position: int = 0) -> tuple[Self, int]:
        """Return the message at `position` and the position after it; bytes before and after it are not read.

        Raises ProtocolError for malformed bytes.
        """
        cls.check_version(version)
        buffer = data if isinstance(data, bytes) else memoryview(data)
        try:
            return encoding.reader(cls, version, cls.is_flexible(version))(buffer, position)
        except ProtocolError as error:
            error.api, error.version = cls.name, version
            raise
        except SHORT_READ as error:
            message = f"{cls.__name__} of {len(buffer) - position} bytes is incomplete"
            raise ProtocolError(message, api=cls.name, version=version) from error

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview, version: int) -> Self:
        """Return the message in `data`, which has no other bytes. Record batches are views of `data`, all else is copied.

        Raises ProtocolError for malformed bytes and for bytes left over.
        """
        # Reading bytes is faster than reading a view. Without record batches the copy is small, and worth it.
        message, position = cls.read(memoryview(data) if encoding.has_records(cls) else bytes(data), version)
        if position != len(data):
            excess = f"{cls.__name__} ends at byte {position} of {len(data)}"
            raise ProtocolError(excess, api=cls.name, version=version)
        return message


def _error_codes(part: Struct) -> Iterator[int]:
    for field in type(part).fields:
        value = getattr(part, field.name)
        if field.name.endswith("error_code"):
            yield value
        elif isinstance(value, Struct):
            yield from _error_codes(value)
        elif field.kind == "array" and isinstance(field.item, type):
            for element in value or ():
                yield from _error_codes(element)


ResponseT = TypeVar("ResponseT", bound=Message)


class Request(Message, Generic[ResponseT]):
    """A request, ``class XRequest(Request[XResponse], api_key=…, versions=…, flexible=…)``.

    Class attributes:
        api_key: Kafka's number of the API.
        response: the class of its response, which has the same versions.
    """

    api_key: ClassVar[int]
    response: ClassVar[type[Message]]

    def __init_subclass__(cls, *, api_key: int, versions: tuple[int, int], flexible: int | None = None) -> None:
        super().__init_subclass__(versions=versions, flexible=flexible)
        cls.api_key = api_key
        cls.response = get_args(cls.__orig_bases__[0])[0]  # type: ignore[attr-defined]  # the X of Request[X]

    @property
    def expects_response(self) -> bool:
        """Return whether a broker responds to it."""
        return True


@dataclass(frozen=True, slots=True)
class ByVersion(Generic[ResponseT]):
    """A request whose content depends on the version that it goes in, by a function that makes it for a version.

    The function raises UnsupportedVersionError for a version in which what is wanted cannot be said.
    """

    api: type[Request[ResponseT]]
    build: Callable[[int], Request[ResponseT]]

    @property
    def name(self) -> str:
        """Return the API's name."""
        return self.api.name


Asked: TypeAlias = Request[ResponseT] | ByVersion[ResponseT]
