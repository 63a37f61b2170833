"""The envelope of Kafka Connect's JSON converter, ``{"schema": …, "payload": …}``: which documents are in it, and where its parts
are.

The converter writes it if ``schemas.enable`` is on; a payload without a schema has ``null``. Applications write objects with these
two fields, too. So the schema decides, and nothing else: it is one that the converter reads, or null.
https://github.com/apache/kafka/tree/trunk/connect/json
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from pykafka_wire.values.connect_types import DECIMAL
from pykafka_wire.values.single_json.text import parse_json

_SCALARS: Final = frozenset(("int8", "int16", "int32", "int64", "float", "double", "boolean", "string", "bytes"))
#: Schemas nested deeper than this are none of a converter's.
_MAX_DEPTH: Final = 100
_MEMBER: Final = re.compile(r'\s*[{,]\s*("(?:[^"\\]|\\.)*")\s*:\s*')
_AS_TEXT: Final = json.JSONDecoder(parse_float=str, parse_int=str)
_WHOLE: Final = re.compile(r"-?[0-9]{1,9}", re.ASCII)
#: The beginnings of documents that may be in the envelope: the first field is one of the two, or its name has an escape.
_MAY_BEGIN: Final = re.compile(rb'\s*(?:\xef\xbb\xbf)?\s*\{\s*"(?:schema"|payload"|[^"\\]*\\)')


class Envelope(NamedTuple):
    """The parts of a document that is in the envelope.

    Attributes:
        schema: the schema's text; None for null.
        start, end: the place of the payload in the document's bytes.
        is_prefix: whether every document with the same bytes before the payload, and nothing but a brace after the payload, is in
            the envelope, too, with the same schema.
        is_null: whether the payload is null.
    """

    schema: str | None
    start: int
    end: int
    is_prefix: bool
    is_null: bool


def is_connect_schema(schema: Any) -> bool:
    """Return whether a parsed JSON value is a schema that Connect's JSON converter reads."""
    return _is_schema(schema, 0)


def _is_schema(schema: Any, depth: int) -> bool:
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return False
    kind, parameters = schema.get("type"), schema.get("parameters")
    if parameters is not None and not isinstance(parameters, dict):
        return False
    if kind == "struct":
        fields = schema.get("fields")
        return isinstance(fields, list) and all(
            isinstance(field, dict) and isinstance(field.get("field"), str) and _is_schema(field, depth + 1)
            for field in fields
        )
    if kind == "array":
        return _is_schema(schema.get("items"), depth + 1)
    if kind == "map":
        return all(_is_schema(schema.get(part), depth + 1) for part in ("keys", "values"))
    if not isinstance(kind, str) or kind not in _SCALARS:
        return False
    if schema.get("name") != DECIMAL:
        return True
    named = parameters or {}
    numbers = (named.get("scale", "0"), named.get("connect.decimal.precision", "0"))
    return kind == "bytes" and all(_WHOLE.fullmatch(str(number)) for number in numbers)


def is_in_envelope(document: Any) -> bool:
    """Return whether a parsed document is in the envelope.

    A schema without fields describes no value: an object with such a schema and a payload with values is the application's own.
    """
    if not isinstance(document, dict) or document.keys() != {"schema", "payload"}:
        return False
    schema = document["schema"]
    if schema is None:
        return True
    return is_connect_schema(schema) and not (is_without_fields(schema) and document["payload"])


def is_without_fields(schema: Any) -> bool:
    """Return whether one of Connect's schemas is a struct without fields."""
    return bool(schema["type"] == "struct" and not schema["fields"])


def envelope_of(document: bytes) -> Envelope | None:
    """Return the parts of a JSON document in the envelope; None for any other document.

    Raises:
        DecodeError: the document may be in the envelope, and is not JSON.
    """
    if _MAY_BEGIN.match(document) is None:
        return None
    parsed = parse_json(document)
    return parts_of(document, parsed) if is_in_envelope(parsed) else None


def parts_of(document: bytes, parsed: Mapping[str, Any]) -> Envelope:
    """Return the parts of a document with a schema and a payload, whose text and whose fields are given."""
    text = document.decode()
    members = _members(text)
    places = dict(members)  # of a field that occurs twice, the last one counts
    schema, payload = places["schema"], places["payload"]
    is_prefix = [name for name, _ in members] == ["schema", "payload"]
    is_prefix &= parsed["schema"] is None or not is_without_fields(parsed["schema"])
    start, end = payload.start, payload.stop
    if not document.isascii():
        start, end = len(text[:start].encode()), len(text[:end].encode())
    return Envelope(
        schema=None if parsed["schema"] is None else text[schema],
        start=start,
        end=end,
        is_prefix=is_prefix,
        is_null=parsed["payload"] is None,
    )


@lru_cache(maxsize=256)
def normal_schema(text: str) -> str:
    """Return the normal form of a schema's text: schemas of the same content have the same form."""
    return json.dumps(_AS_TEXT.decode(text), sort_keys=True, separators=(",", ":"))


def _members(text: str) -> list[tuple[str, slice]]:
    """Return the names of an object's fields, with the places of their values, in the order of the text. The text must be JSON."""
    members: list[tuple[str, slice]] = []
    position = len(text) - len(text.removeprefix("\ufeff"))
    while (member := _MEMBER.match(text, position)) is not None:
        _, position = _AS_TEXT.raw_decode(text, member.end())
        members.append((json.loads(member[1]), slice(member.end(), position)))
    return members
