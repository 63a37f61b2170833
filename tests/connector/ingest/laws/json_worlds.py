"""JSON topics made at random, and the plain oracle of the table that such a topic becomes: one document after the other.

A world is a tree of places, each with one sort of value. Its documents have values of these sorts, and odd values at places that
the table has already, at any depth. A place that the table does not have yet gets values of one sort alone: what a new place
becomes that gets several sorts in its first micro-batch is decided by that micro-batch, as docs/inferred-json.md says.
"""

from __future__ import annotations

import json
import random
from decimal import Decimal
from typing import Any, Final

#: A type in the oracle: fields by their names, one item's type in a list, or the name of a scalar type.
Type = dict[str, Any] | list[Any] | str

REJECT: Final = "a reject"
_SCALARS: Final = ("STRING", "BOOLEAN", "BIGINT", "LARGE", "FRACTION", "DOUBLE")
_ODD: Final = ("unknown", "5", "1.5", "NaN", "", 5, -7, 0.5, 1e300, 10**25, True, {}, [], {"f0": 1}, {"f0": {"f0": "x"}},
               {"zz": None}, [[1]], [{"f0": "y"}], ["a", None], [0.1234567890123456789])  # fmt: skip


class World:
    """A tree of places, and documents of them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._tree = self._fields(0)

    def _place(self, depth: int) -> Type:
        sort = self.random.choice(("object", "list", *_SCALARS) if depth < 3 else _SCALARS)
        if sort == "object":
            return self._fields(depth)
        return [self._place(depth + 1)] if sort == "list" else sort

    def _fields(self, depth: int) -> Type:
        return {f"f{n}": self._place(depth + 1) for n in range(self.random.randint(1, 4))}

    def opening(self) -> dict[str, Any]:
        """Return a document that has some of the places, each with a value."""
        value = self._value(self._tree, None, is_odd=False)
        assert isinstance(value, dict)
        return value

    def document(self, held: Type) -> Any:
        """Return a document for a table of the oracle's type: odd values are at places of that alone."""
        if self.random.random() < 0.1:
            return self.random.choice([odd for odd in _ODD if not isinstance(odd, dict)])
        # A document of null is a delete where rows are upserted.
        return self._value(self._tree, held, is_odd=True) or {}

    def _value(self, place: Type, held: Type | None, *, is_odd: bool) -> Any:
        make = self.random
        if is_odd and make.random() < 0.08:
            return None
        if is_odd and held is not None and make.random() < 0.08:
            odd = make.choice(_ODD)
            # New fields of odd objects and items of odd lists are new places: only where there is none of the table's.
            is_new = (isinstance(held, dict) and isinstance(odd, dict)) or (
                isinstance(held, list) and isinstance(odd, list)
            )
            # A BIGINT becomes a DECIMAL with decimal places or one of more digits, whichever comes first.
            is_other = held == "BIGINT" and _is_number(odd) and isinstance(odd, float) is not (place == "FRACTION")
            if not is_new and not is_other:
                return odd
        if isinstance(place, dict):
            inner = held if isinstance(held, dict) else {}
            names = [name for name in place if make.random() < 0.7]
            return {name: self._value(place[name], inner.get(name), is_odd=is_odd) for name in names}
        if isinstance(place, list):
            item = held[0] if isinstance(held, list) else None
            return [self._value(place[0], item, is_odd=is_odd) for _ in range(make.randint(0, 3))]
        if place in ("LARGE", "FRACTION") and held == "BIGINT" and make.random() < 0.4:
            return 2**63 + make.getrandbits(60) if place == "LARGE" else make.randint(-999, 999) + 0.25
        if place in ("BIGINT", "LARGE", "FRACTION"):
            return make.randint(-999, 999)
        if place == "BOOLEAN":
            return make.random() < 0.5
        return make.randint(-999, 999) / 8 + 0.0625 if place == "DOUBLE" else f"text {make.randint(0, 9)}"


def encoded(document: Any) -> bytes:
    return json.dumps(document).encode()


def grown(held: Type | None, values: list[Any]) -> Type | None:
    """Return the type of a place of type ``held`` after values: those of its own sort let it grow, others change nothing."""
    if held is None:
        return _new(values)
    if isinstance(held, dict):
        objects = [value for value in values if isinstance(value, dict)]
        names = dict.fromkeys([*held, *sorted({name for value in objects for name in value})])
        types = {name: grown(held.get(name), [value[name] for value in objects if name in value]) for name in names}
        return {name: inner for name, inner in types.items() if inner is not None}
    if isinstance(held, list):
        return [grown(held[0], [item for value in values if isinstance(value, list) for item in value])]
    if held == "BIGINT":
        numbers = [value for value in values if _is_number(value)]
        if any(isinstance(value, float) for value in numbers):
            return "DECIMAL(38,18)"
        return (
            "DECIMAL(38,0)" if any(not -(2**63) <= value < 2**63 and abs(value) < 10**38 for value in numbers) else held
        )
    return held


def _new(values: list[Any]) -> Type | None:
    """Return the type of a new place: objects before lists before others."""
    objects = [value for value in values if isinstance(value, dict)]
    names = sorted({name for value in objects for name in value})
    fields = {name: _new([value[name] for value in objects if name in value]) for name in names}
    typed = {name: inner for name, inner in fields.items() if inner is not None}
    items = [item for value in values if isinstance(value, list) for item in value]
    item = _new(items) if items else None
    if typed or item is not None:
        return typed or [item]
    scalars = [value for value in values if value is not None and not isinstance(value, dict | list)]
    sorts = {"STRING" if isinstance(value, str) else "BOOLEAN" if isinstance(value, bool) else "" for value in scalars}
    if sorts != {""}:
        return None if not sorts else sorts.pop() if len(sorts) == 1 else "STRING"
    return "DOUBLE" if any(isinstance(value, float) for value in scalars) else "BIGINT"


def landed(held: Type | None, value: Any) -> Any:
    """Return a value in a place of the type, or :data:`REJECT`."""
    if value is None or held is None:
        return None
    if isinstance(held, dict | list):
        if not isinstance(value, type(held)):
            return REJECT
        if isinstance(value, dict) and isinstance(held, dict):
            row = {name: landed(inner, value.get(name)) for name, inner in held.items()}
            return REJECT if REJECT in row.values() else row
        items = [landed(held[0], item) for item in value]
        return REJECT if REJECT in items else items
    if held == "STRING":
        return value if isinstance(value, str) else ("the text of", value)
    if held == "BOOLEAN":
        return value if isinstance(value, bool) else REJECT
    if not _is_number(value):
        return REJECT if held != "DOUBLE" or value != "NaN" else "NaN"
    number = Decimal(repr(value))
    if held in ("BIGINT", "DECIMAL(38,0)"):
        limit = 2**63 if held == "BIGINT" else 10**38
        return value if not isinstance(value, float) and abs(value) < limit else REJECT
    if held == "DOUBLE":
        return value if Decimal(repr(float(value))) == number else REJECT
    return number if abs(number) < 10**20 else REJECT


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
