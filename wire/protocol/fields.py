"""Field tables: the rows of a message's declaration, and the structures whose instances hold their values.

Owns :class:`Field`, one row; :class:`Struct`, whose class body is a table; and the functions that make rows, typed as the value
of an instance's attribute. It knows neither messages nor bytes: :mod:`~pykafka_wire.wire.protocol.encoding` writes and
reads them.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar, cast

from pykafka_wire.wire.protocol.primitives import Segment, n_bytes
from pykafka_wire.wire.topic_partitions import ZERO_UUID

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: object) -> Callable[[type], type]:
        """Return ``typing.dataclass_transform``, which Python 3.10 lacks and only type checkers read."""
        return lambda cls: cls


_T = TypeVar("_T")

#: Later than any version.
FOREVER: Final = 0x7FFF

#: struct formats of the kinds that have a fixed width and need no conversion.
FORMATS: Final = {"bool": "?", "int8": "b", "int16": "h", "int32": "i", "int64": "q"}
WIDTHS: Final = {kind: struct.calcsize(">" + code) for kind, code in FORMATS.items()} | {"uuid": 16}


class Field:
    """One row of a field table.

    Attributes:
        kind: "array", "struct", "string", "bytes", "records", "uuid" or one of :data:`FORMATS`.
        item: of an array or a struct: a structure's class, or the row of an array's primitive elements.
        since, until: first and last version with the field.
        nullable_since: first version in which it may be null, None if it never may.
        default: its value if the version lacks the field or the constructor's caller omits it; a class means a new instance of it.
        ignorable: whether a version without the field drops its value silently.
        tag: its number, if it is a tagged field in the versions that have it.
        secret: never shown by repr.
        compact: False for a string whose length is int16 in flexible versions too.
    """

    __slots__ = (
        "compact",
        "default",
        "ignorable",
        "item",
        "kind",
        "name",
        "nullable_since",
        "secret",
        "since",
        "tag",
        "until",
    )

    def __init__(  # noqa: PLR0913
        self,
        kind: str,
        *,
        item: type | Field | None = None,
        since: int = 0,
        until: int = FOREVER,
        nullable_since: int | None = None,
        default: object = None,
        ignorable: bool = False,
        tag: int | None = None,
        secret: bool = False,
        compact: bool = True,
    ) -> None:
        self.name = ""
        self.kind = kind
        self.item = item
        self.since = since
        self.until = until
        self.nullable_since = nullable_since
        self.default = default
        self.ignorable = ignorable
        self.tag = tag
        self.secret = secret
        self.compact = compact

    def in_version(self, version: int) -> bool:
        return self.since <= version <= self.until

    def nullable_in(self, version: int) -> bool:
        return self.nullable_since is not None and version >= self.nullable_since

    def new_default(self) -> object:
        """Return the default; for a class (list or a structure) a new instance."""
        return self.default() if isinstance(self.default, type) else self.default

    def format_value(self, value: object) -> str:
        """Return the value for repr, without secrets and payloads."""
        if value is not None and self.secret:
            return "<hidden>"
        if value is not None and self.kind == "records":
            return f"<{n_bytes(cast('Segment', value))} bytes>"
        return repr(value)


# --- structures -------------------------------------------------------------------------------------------------------


@dataclass_transform(kw_only_default=True, frozen_default=True)
class StructType(type):
    """Turns a class body's field table into slots. (dataclasses would compile a constructor for each of 250 classes.)"""

    fields: tuple[Field, ...]
    setters: dict[str, Callable[[object, object], None]]

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> StructType:  # Any: a class body and its keywords may hold anything
        fields = []
        for key, value in namespace.items():
            if isinstance(value, Field):
                value.name = key
                fields.append(value)
        for field in fields:
            del namespace[field.name]
        namespace.setdefault("__slots__", tuple(field.name for field in fields))
        cls = super().__new__(mcs, name, bases, namespace, **options)
        cls.fields = tuple(fields)
        # Slot descriptors bypass the frozen __setattr__.
        cls.setters = {slot: getattr(cls, slot).__set__ for slot in (*(f.name for f in fields), "unknown_tags")}
        return cls


class Struct(metaclass=StructType):
    """An immutable structure of fields. The constructor takes keywords only, each field has a default.

    Attributes:
        unknown_tags: tagged fields that are not in the field table: number -> encoded value.
    """

    if TYPE_CHECKING:
        unknown_tags: dict[int, bytes] = {}
    else:
        __slots__ = ("unknown_tags",)

    if not TYPE_CHECKING:

        def __init__(self, **values: object) -> None:
            cls = type(self)
            for field in cls.fields:
                name = field.name
                cls.setters[name](self, values.pop(name) if name in values else field.new_default())
            cls.setters["unknown_tags"](self, values.pop("unknown_tags", None) or {})
            if values:
                raise TypeError(f"{cls.__name__} has no field {', '.join(values)}")

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable, {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable, {name} cannot be deleted")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in type(self).setters)

    __hash__ = None  # type: ignore[assignment]  # lists and dicts inside

    def __repr__(self) -> str:
        shown = [f"{field.name}={field.format_value(getattr(self, field.name))}" for field in type(self).fields]
        if self.unknown_tags:
            shown.append(f"unknown_tags={self.unknown_tags!r}")
        return f"{type(self).__name__}({', '.join(shown)})"

    def __reduce__(self) -> tuple[Any, ...]:  # Any: the shape that object.__reduce__ dictates
        return _restore, (type(self), {name: getattr(self, name) for name in type(self).setters})


def _restore(cls: Callable[..., Struct], values: dict[str, object]) -> Struct:
    return cls(**values)


def struct_of(field: Field) -> type[Struct]:
    """Return the class of a structure's field, or of the elements of an array of structures."""
    return cast("type[Struct]", field.item)


#: A request's record batches.
Records: TypeAlias = Segment | None

#: The value of authorized operations (a bit set, KIP-430) that were not requested: Java's Integer.MIN_VALUE.
NO_OPERATIONS: Final = -0x80000000


# --- field kinds ------------------------------------------------------------------------------------------------------
# Typed as the value of an instance's attribute, so that `name: str = string()` passes type checks. In the table they are Field.
#
# since, until: first and last version with the field.   nullable_since: first version in which it may be null.
# tag: its number, if it is a tagged field.              ignorable: a version without it drops its value.
# default: the value if a version lacks it.              secret: never shown by repr.


def boolean(*, since: int = 0, until: int = FOREVER, default: bool = False, ignorable: bool = False,
            tag: int | None = None) -> bool:  # fmt: skip
    return cast(bool, Field("bool", since=since, until=until, default=default, ignorable=ignorable, tag=tag))


class _Number(Protocol):
    def __call__(self, *, since: int = 0, until: int = FOREVER, default: int = 0, ignorable: bool = False,
                 tag: int | None = None) -> int: ...  # fmt: skip


def _number(kind: str) -> _Number:
    def row(*, default: int = 0, **options: Any) -> int:  # Any: as _Number has them
        return cast(int, Field(kind, default=default, **options))

    return row


int8, int16, int32, int64 = _number("int8"), _number("int16"), _number("int32"), _number("int64")


def uuid128(*, since: int = 0, until: int = FOREVER, ignorable: bool = False, tag: int | None = None) -> uuid.UUID:
    """Return a uuid.UUID; Kafka's null is ZERO_UUID."""
    return cast("uuid.UUID", Field("uuid", since=since, until=until, default=ZERO_UUID, ignorable=ignorable, tag=tag))


def string(*, since: int = 0, until: int = FOREVER, nullable_since: int | None = None, default: str | None = "",
           ignorable: bool = False, tag: int | None = None, secret: bool = False,
           compact: bool = True) -> str:  # fmt: skip
    """Return a string; `compact` is False only for a header's client id, whose length is always int16."""
    return cast(str, Field("string", since=since, until=until, nullable_since=nullable_since, default=default,
                           ignorable=ignorable, tag=tag, secret=secret, compact=compact))  # fmt: skip


def binary(*, since: int = 0, until: int = FOREVER, nullable_since: int | None = None, default: bytes | None = b"",
           ignorable: bool = False, tag: int | None = None, secret: bool = False) -> bytes:  # fmt: skip
    return cast(bytes, Field("bytes", since=since, until=until, nullable_since=nullable_since, default=default,
                             ignorable=ignorable, tag=tag, secret=secret))  # fmt: skip


def record_batches(*, since: int = 0, until: int = FOREVER, nullable_since: int | None = None) -> memoryview:
    """Return record batches, never copied: decoded, a view of the frame; encoded, each buffer is a segment of its own."""
    return cast(memoryview, Field("records", since=since, until=until, nullable_since=nullable_since, default=None))


def array(item: Callable[..., _T], *, since: int = 0, until: int = FOREVER, nullable_since: int | None = None,
          default: tuple[()] | None = (), ignorable: bool = False, tag: int | None = None) -> list[_T]:  # fmt: skip
    """Return a list of structures (`item` is the class) or of primitives (`item` is the kind, as in ``array(int32)``)."""
    return cast("list[_T]", Field("array", item=item if isinstance(item, type) else cast(Field, item()),
                                  since=since, until=until, nullable_since=nullable_since,
                                  default=list if default == () else None, ignorable=ignorable, tag=tag))  # fmt: skip


def structure(cls: type[_T], *, since: int = 0, until: int = FOREVER, nullable_since: int | None = None,
              null: bool = False, ignorable: bool = False, tag: int | None = None) -> _T:  # fmt: skip
    """Return one structure of class `cls`; its default is null, or a structure with every field at its default."""
    return cast(_T, Field("struct", item=cls, since=since, until=until, nullable_since=nullable_since,
                          default=None if null else cls, ignorable=ignorable, tag=tag))  # fmt: skip
