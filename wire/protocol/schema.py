"""Messages declared as data: a field table in, one reader and one writer per (structure, version) out.

Owns the field kinds and the :class:`Message` and :class:`Request` base classes; it knows no message. A message
states each field once, with its versions, default and nullability, in the order of the wire::

    class MetadataRequest(Request[MetadataResponse], api_key=3, versions=(0, 13), flexible=9):
        topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable_since=1)
        allow_auto_topic_creation: bool = boolean(since=4, default=True)

The annotation is what a type checker sees, the call is the row of the field table. What the table means on the wire is
in :mod:`pykafka_wire.wire.protocol.codec`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Final, Generic, TypeAlias, TypeVar, cast, get_args

from pykafka_wire.wire.errors import ProtocolError, UnsupportedVersionError
from pykafka_wire.wire.protocol import codec
from pykafka_wire.wire.protocol.fields import FOREVER, Field
from pykafka_wire.wire.protocol.primitives import SHORT_READ, ZERO_UUID, Piece, Pieces
from pykafka_wire.wire.protocol.structure import Struct

if TYPE_CHECKING:
    import uuid

    from typing_extensions import Self

_T = TypeVar("_T")

#: What a request's record batches may be: one piece, or several that follow each other.
Records: TypeAlias = Piece | list[Piece] | None

#: Authorized operations (a bit set, KIP-430) that were not asked for: Java's Integer.MIN_VALUE.
NO_OPERATIONS: Final = -0x80000000


# --- field kinds ------------------------------------------------------------------------------------------------------
# Typed as the value that an instance holds, so that `name: str = string()` checks. In the table they are Field.
#
# since, until: first and last version with the field.   nullable_since: first version in which it may be null.
# tag: its number, if it is a tagged field.              ignorable: a version without it may drop any value.
# default: the value where a version lacks it.           secret: never shown by repr.


def boolean(*, since: int = 0, until: int = FOREVER, default: bool = False, ignorable: bool = False,
            tag: int | None = None) -> bool:  # fmt: skip
    return cast(bool, Field("bool", since=since, until=until, default=default, ignorable=ignorable, tag=tag))


def int8(*, since: int = 0, until: int = FOREVER, default: int = 0, ignorable: bool = False,
         tag: int | None = None) -> int:  # fmt: skip
    return cast(int, Field("int8", since=since, until=until, default=default, ignorable=ignorable, tag=tag))


def int16(*, since: int = 0, until: int = FOREVER, default: int = 0, ignorable: bool = False,
          tag: int | None = None) -> int:  # fmt: skip
    return cast(int, Field("int16", since=since, until=until, default=default, ignorable=ignorable, tag=tag))


def int32(*, since: int = 0, until: int = FOREVER, default: int = 0, ignorable: bool = False,
          tag: int | None = None) -> int:  # fmt: skip
    return cast(int, Field("int32", since=since, until=until, default=default, ignorable=ignorable, tag=tag))


def int64(*, since: int = 0, until: int = FOREVER, default: int = 0, ignorable: bool = False,
          tag: int | None = None) -> int:  # fmt: skip
    return cast(int, Field("int64", since=since, until=until, default=default, ignorable=ignorable, tag=tag))


def uuid128(*, since: int = 0, until: int = FOREVER, ignorable: bool = False, tag: int | None = None) -> uuid.UUID:
    """A uuid.UUID; Kafka's null is ZERO_UUID."""
    return cast("uuid.UUID", Field("uuid", since=since, until=until, default=ZERO_UUID, ignorable=ignorable, tag=tag))


def string(*, since: int = 0, until: int = FOREVER, nullable_since: int | None = None, default: str | None = "",
           ignorable: bool = False, tag: int | None = None, secret: bool = False,
           compact: bool = True) -> str:  # fmt: skip
    """A string; `compact` is False for the one, a header's client id, whose length is always int16."""
    return cast(str, Field("string", since=since, until=until, nullable_since=nullable_since, default=default,
                           ignorable=ignorable, tag=tag, secret=secret, compact=compact))  # fmt: skip


def binary(*, since: int = 0, until: int = FOREVER, nullable_since: int | None = None, default: bytes | None = b"",
           ignorable: bool = False, tag: int | None = None, secret: bool = False) -> bytes:  # fmt: skip
    return cast(bytes, Field("bytes", since=since, until=until, nullable_since=nullable_since, default=default,
                             ignorable=ignorable, tag=tag, secret=secret))  # fmt: skip


def record_batches(*, since: int = 0, until: int = FOREVER, nullable_since: int | None = None) -> memoryview:
    """Record batches, never copied: decoded, a view of the frame; encoded, each piece is a segment as it is."""
    return cast(memoryview, Field("records", since=since, until=until, nullable_since=nullable_since, default=None))


def array(item: Callable[..., _T], *, since: int = 0, until: int = FOREVER, nullable_since: int | None = None,
          default: tuple[()] | None = (), ignorable: bool = False, tag: int | None = None) -> list[_T]:  # fmt: skip
    """A list of structures (`item` is the class) or of primitives (`item` is the kind, as in ``array(int32)``)."""
    return cast("list[_T]", Field("array", item=item if isinstance(item, type) else cast(Field, item()),
                                  since=since, until=until, nullable_since=nullable_since,
                                  default=list if default == () else None, ignorable=ignorable, tag=tag))  # fmt: skip


def structure(cls: type[_T], *, since: int = 0, until: int = FOREVER, nullable_since: int | None = None,
              null: bool = False, ignorable: bool = False, tag: int | None = None) -> _T:  # fmt: skip
    """One structure of class `cls`; its default is null or, as with all others, one with every field at its default."""
    return cast(_T, Field("struct", item=cls, since=since, until=until, nullable_since=nullable_since,
                          default=None if null else cls, ignorable=ignorable, tag=tag))  # fmt: skip


# --- messages ---------------------------------------------------------------------------------------------------------


class Message(Struct):
    """A structure that stands alone on the wire: a request, a response, a header, or data in another message's bytes.

    Class attributes:
        name: of the API, such as "Metadata".
        versions: lowest and highest version of Kafka 4.3.1.
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
        """Raises UnsupportedVersionError for a version that the field table does not cover."""
        if not cls.versions[0] <= version <= cls.versions[1]:
            low, high = cls.versions
            raise UnsupportedVersionError(
                f"{cls.__name__} exists in versions {low} to {high}", api=cls.name, version=version
            )

    def write(self, pieces: Pieces, version: int) -> None:
        """Append the encoded message to `pieces`; record batches go in as views, all else as bytes."""
        self.check_version(version)
        try:
            codec.writer(type(self), version, self.is_flexible(version))(self, pieces)
        except (ProtocolError, UnsupportedVersionError) as error:
            error.api, error.version = self.name, version
            raise

    def encode(self, version: int) -> list[Piece]:
        """The segments of the encoded message: one, and one more around and for each piece of record batches, uncopied.

        Raises ProtocolError for a value that its field cannot hold, UnsupportedVersionError for a version unknown or
        without a field that is set and must not be ignored.
        """
        pieces: Pieces = []
        self.write(pieces, version)
        return codec.segments(pieces)

    @classmethod
    def read(cls, data: bytes | bytearray | memoryview, version: int, position: int = 0) -> tuple[Self, int]:
        """The message at `position` and the position after it; nothing before or behind it is touched.

        Raises ProtocolError for malformed bytes.
        """
        cls.check_version(version)
        buffer = data if isinstance(data, bytes) else memoryview(data)
        try:
            return codec.reader(cls, version, cls.is_flexible(version))(buffer, position)
        except ProtocolError as error:
            error.api, error.version = cls.name, version
            raise
        except SHORT_READ as error:
            message = f"{cls.__name__} of {len(buffer) - position} bytes ends too soon"
            raise ProtocolError(message, api=cls.name, version=version) from error

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview, version: int) -> Self:
        """The message that `data` holds, all of it. Record batches are views of `data`, all else is copied.

        Raises ProtocolError for malformed bytes and for bytes left over.
        """
        # Bytes are quicker to read than a view, and worth a copy where that is small: without record batches.
        message, position = cls.read(memoryview(data) if codec.has_records(cls) else bytes(data), version)
        if position != len(data):
            excess = f"{cls.__name__} ends at byte {position} of {len(data)}"
            raise ProtocolError(excess, api=cls.name, version=version)
        return message


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
