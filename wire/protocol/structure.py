"""Structures: classes whose instances hold a field table's values.

Owns :class:`Struct` and the metaclass that turns a class body into slots; it knows neither messages nor bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pykafka_wire.wire.protocol.fields import Field

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: object) -> Callable[[type], type]:
        """typing.dataclass_transform, which Python 3.10 lacks and only type checkers read."""
        return lambda cls: cls


@dataclass_transform(kw_only_default=True, frozen_default=True)
class StructType(type):
    """Turns a class body's field table into slots. (dataclasses would exec a constructor for each of 250 classes.)"""

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
        unknown_tags: tagged fields that the field table does not know, by number, each with its encoded value.
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
        shown = [f"{field.name}={field.show(getattr(self, field.name))}" for field in type(self).fields]
        if self.unknown_tags:
            shown.append(f"unknown_tags={self.unknown_tags!r}")
        return f"{type(self).__name__}({', '.join(shown)})"

    def __reduce__(self) -> tuple[Any, ...]:  # Any: the shape that object.__reduce__ dictates
        return _restore, (type(self), {name: getattr(self, name) for name in type(self).setters})


def _restore(cls: Callable[..., Struct], values: dict[str, object]) -> Struct:
    return cls(**values)
