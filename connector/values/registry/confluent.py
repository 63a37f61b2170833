"""The REST API that Confluent's registry, Apicurio's, Karapace and Redpanda's share.

:mod:`~pykafka_wire.values.registry.rest` sends the requests. https://docs.confluent.io/platform/current/schema-registry/develop/api.html
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote, urlencode

from pykafka_wire.errors import DecodeError, RegistryError
from pykafka_wire.values.registry.address import Registry, context_of
from pykafka_wire.values.registry.cache import this_minute
from pykafka_wire.values.registry.registered_schema import Reference, RegistryId, Rule, Schema
from pykafka_wire.values.registry.rest import NotARegistryError, request

#: A registry numbers its schemas in turn: ids so far above the largest known may be those of new schemas.
_NEW_IDS: Final = 10_000
#: Requests for unknown ids within a minute, before further ids count as unknown without a request.
_MAX_REQUESTS_FOR_UNKNOWN: Final = 1_000


@dataclass(frozen=True, slots=True)
class ConfluentApi:
    """Confluent's registry as ``Api`` of :mod:`~pykafka_wire.values.registry.client`."""

    registry: Registry

    def by_id(self, schema_id: RegistryId) -> Schema:
        return self._by_guid(schema_id) if isinstance(schema_id, uuid.UUID) else self._by_number(schema_id)

    def _by_number(self, schema_id: int) -> Schema:
        ids = _unknown_ids(self.registry)
        ids.check(schema_id)
        try:
            response = request(self.registry, "GET", f"/schemas/ids/{schema_id}{self._in_context}")
        except DecodeError:
            ids.missing(schema_id)
            raise
        ids.found(schema_id)
        return _schema(self.registry, response)

    def _by_guid(self, guid: uuid.UUID) -> Schema:
        try:
            return _schema(self.registry, request(self.registry, "GET", f"/schemas/guids/{guid}"))
        except NotARegistryError as error:
            raise RegistryError(
                f"this schema registry does not know schemas by GUID, and a record's header names its schema by the GUID {guid}. "
                "Confluent's registry does in newer versions, Apicurio's does not. Producers without HeaderSchemaIdSerializer "
                f"write ids that every registry knows. ({error.message})"
            ) from error

    @property
    def _in_context(self) -> str:
        """Return the query by which an id is looked up in the context of the subject, not in the default one."""
        context = self.registry.context
        return "" if context is None else f"?{urlencode({'subject': self.registry.subject})}"

    def latest(self, subject: str) -> tuple[int, Schema]:
        response = request(self.registry, "GET", f"{_subject_path(subject)}/versions/latest")
        return _integer_field(self.registry, response, "id"), _schema(self.registry, response)

    def subjects(self, prefix: str) -> list[str]:
        listed = request(self.registry, "GET", f"/subjects?{urlencode({'subjectPrefix': prefix})}", is_list=True)
        return [name for name in map(str, listed) if name.startswith(prefix)]

    def subjects_of(self, schema_id: int) -> list[str]:
        path = f"/schemas/ids/{schema_id}/subjects{self._in_context}"
        return list(map(str, request(self.registry, "GET", path, is_list=True)))

    def version(self, reference: Reference) -> Schema:
        # As Confluent's clients: a name without a context is of that of the schema that refers to it.
        context = "" if context_of(reference.subject) is not None else self.registry.context or ""
        path = f"{_subject_path(context + reference.subject)}/versions/{reference.version}"
        try:
            response = request(self.registry, "GET", path)
        except DecodeError:  # deleted since, though a schema refers to it: such a version stays readable
            response = request(self.registry, "GET", f"{path}?deleted=true")
        return _schema(self.registry, response)

    def versions(self, subject: str, *, with_deleted: bool = False) -> list[int]:
        path = f"{_subject_path(subject)}/versions{'?deleted=true' if with_deleted else ''}"
        numbers = request(self.registry, "GET", path, is_list=True)
        return sorted(number for number in numbers if type(number) is int)

    def lookup(self, subject: str, schema: Schema) -> int:
        response = request(self.registry, "POST", _subject_path(subject), _body(schema))
        return _integer_field(self.registry, response, "id")

    def register(self, subject: str, schema: Schema) -> int:
        response = request(self.registry, "POST", f"{_subject_path(subject)}/versions", _body(schema))
        return _integer_field(self.registry, response, "id")


def _body(schema: Schema) -> dict[str, Any]:
    body: dict[str, Any] = {"schema": schema.text}
    if schema.kind != "AVRO":  # the default; Confluent's first versions do not know schemaType
        body["schemaType"] = schema.kind
    if schema.references:
        body["references"] = [
            {"name": reference.name, "subject": reference.subject, "version": reference.version}
            for reference in schema.references
        ]
    return body


@lru_cache(maxsize=16)
def _unknown_ids(registry: Registry) -> _UnknownIds:
    """Return the ids of this process, for a registry."""
    return _UnknownIds()


def _subject_path(subject: str) -> str:
    if subject in ("", ".", ".."):  # which HTTP clients and servers take for steps in a path
        raise DecodeError(f"{subject!r} cannot be the name of a subject")
    return f"/subjects/{quote(subject, safe='')}"


def _schema(registry: Registry, response: dict[str, Any]) -> Schema:
    try:
        rule_set = response.get("ruleSet") or {}
        rules = tuple(_rules(rule_set))
        schema = Schema(
            kind=str(response.get("schemaType") or "AVRO"),
            text=str(response["schema"]),
            references=tuple(
                Reference(
                    name=str(reference["name"]), subject=str(reference["subject"]), version=int(reference["version"])
                )
                for reference in response.get("references") or ()
            ),
            rules=rules,
            contract=json.dumps({"ruleSet": rule_set, "metadata": response.get("metadata")}) if rules else None,
        )
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise NotARegistryError(f"{registry.url} responded with something that is not a schema") from error
    texts = [schema.text, *(text for reference in schema.references for text in (reference.name, reference.subject))]
    if any("\ud800" <= character <= "\udfff" for text in texts if not text.isascii() for character in text):
        raise DecodeError("its schema holds half of a surrogate pair, which is not text")
    return schema


def _rules(rule_set: dict[str, Any]) -> Iterator[Rule]:
    for phase in ("migrationRules", "domainRules", "encodingRules"):
        for rule in rule_set.get(phase) or ():
            if not rule.get("disabled"):
                yield Rule(name=str(rule["name"]), type=str(rule.get("type")), mode=str(rule.get("mode")))


def _integer_field(registry: Registry, response: dict[str, Any], name: str) -> int:
    if not isinstance(response.get(name), int):
        raise NotARegistryError(f"{registry.url} responded without {name}")
    return int(response[name])


class _UnknownIds:
    """Which ids of schemas are worth a request: damaged values may name another unknown id each.

    All are, until a thousand unknown ids were requested within a minute; then only those that a new schema may have, or an older
    one than the newest that was found.
    """

    __slots__ = ("_largest", "_unknown")

    def __init__(self) -> None:
        self._largest = 0
        self._unknown = (0, 0)

    def check(self, schema_id: int) -> None:
        """Raise DecodeError for an id that is not worth a request."""
        minute, n_unknown = self._unknown
        if n_unknown >= _MAX_REQUESTS_FOR_UNKNOWN and minute == this_minute() and not self._is_plausible(schema_id):
            raise DecodeError(
                f"its schema id was not looked up: this minute the registry was asked for {n_unknown} other ids that it does not "
                f"know, and the largest that it is known to have is {self._largest}"
            )

    def found(self, schema_id: int) -> None:
        self._largest = max(self._largest, schema_id)

    def missing(self, schema_id: int) -> None:
        if not self._is_plausible(schema_id):
            minute, n_unknown = self._unknown
            self._unknown = (this_minute(), n_unknown + 1 if minute == this_minute() else 1)

    def _is_plausible(self, schema_id: int) -> bool:
        return 0 <= schema_id <= self._largest + _NEW_IDS
