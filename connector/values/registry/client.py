"""A schema registry: schemas by id and by subject, over the REST API that Confluent's, Apicurio's and Karapace's share.

Owns what the API offers, and the cache of schemas, one for each process. :mod:`~pykafka_wire.values.registry.rest` sends the
requests, :mod:`~pykafka_wire.values.registry.settings` makes a registry of Spark's options. Knows no format. https://docs.confluent.io/platform/current/schema-registry/develop/api.html
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from pykafka_wire.errors import DecodeError, OptionError, RegistryError
from pykafka_wire.values.registry.cache import cached, this_minute
from pykafka_wire.values.registry.rest import NotARegistryError, request
from pykafka_wire.wire.settings import ClientSettings

#: Ids and GUIDs that the registry lacks, of which every value of a topic may have another. Each takes some 300 bytes.
_MAX_UNKNOWN: Final = 20_000
#: A registry numbers its schemas in turn: ids so far above the largest known may be those of new schemas.
_NEW_IDS: Final = 10_000
#: Requests for unknown ids within a minute, before further ids count as unknown without a request.
_MAX_REQUESTS_FOR_UNKNOWN: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Another schema that one needs: the name it uses for it, and where the registry has it."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule of a data contract, which Confluent's serializers apply to each value, such as the encryption of fields (CSFLE).

    Attributes:
        type: ``ENCRYPT``, ``CEL``, ``JSONATA`` or another name of what applies it.
        mode: ``WRITE``, ``READ``, ``WRITEREAD``; of migrations between versions ``UPGRADE``, ``DOWNGRADE`` or ``UPDOWN``.
    """

    name: str
    type: str
    mode: str

    def __str__(self) -> str:
        return f"the rule {self.name} ({self.type}, {self.mode})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """A schema as the registry keeps it.

    Attributes:
        kind: AVRO, JSON or PROTOBUF.
        rules: those that are not disabled.
        contract: where it has rules, the JSON of its rule set and its metadata.
    """

    kind: str
    text: str
    references: tuple[Reference, ...] = ()
    rules: tuple[Rule, ...] = ()
    contract: str | None = None

    def rule(self, *modes: str, but: Collection[str] = ()) -> Rule | None:
        """A rule that applies in one of these modes, and is of none of the types in ``but``."""
        return next((each for each in self.rules if each.mode in modes and each.type not in but), None)


@dataclass(frozen=True, slots=True)
class Registry:
    """The address of a schema registry, and the credentials for it. It is not asked before a schema is needed.

    Attributes:
        url: ``https://host:port``, with Apicurio's or a proxy's path behind it; several, separated by commas, are tried in turn.
        basic_auth: ``user:password``, or a reference to it, ``env:NAME``, ``file:/path`` or ``provider:module:function``, which
            each worker resolves: only then the secret does not travel with the query.
        bearer_token: a token, or a reference to it.
        ca_file: PEM of the authorities to trust, present on every executor; the system's by default.
        timeout_s: for each attempt; there are three for each address.
        tls: the settings ``ssl.*`` of Kafka's clients, for trust stores, client certificates and protocols; instead of ``ca_file``.
        sasl: the settings ``sasl.*`` of Kafka's clients, whose user and password, or bearer tokens, the registry accepts too.
        extra_headers: names and values of further HTTP headers, none of them a secret; sent to these addresses alone.
        proxy: ``http://host:port`` of an HTTP proxy; None for that of the environment, if any.
        rule_executors: confluent-kafka's executors of rules, as ``module:Class`` (:mod:`~pykafka_wire.values.registry.rules`).
    """

    url: str
    basic_auth: str | None = field(default=None, repr=False, kw_only=True)
    bearer_token: str | None = field(default=None, repr=False, kw_only=True)
    ca_file: str | None = field(default=None, kw_only=True)
    timeout_s: float = field(default=10.0, kw_only=True)
    tls: ClientSettings | None = field(default=None, kw_only=True)
    sasl: ClientSettings | None = field(default=None, kw_only=True)
    extra_headers: tuple[tuple[str, str], ...] = field(default=(), kw_only=True)
    proxy: str | None = field(default=None, kw_only=True)
    rule_executors: tuple[str, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        for url in self.urls:
            try:
                parts = urlsplit(url)
                is_address = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
            except ValueError:  # a port above 65535, half of an IPv6 address
                is_address = False
            if not is_address:
                raise OptionError(
                    "the schema registry's url must be http://host:port or https://host:port, or several, separated by commas."
                )
            if "@" in parts.netloc:
                raise OptionError(
                    "the schema registry's url contains a user: give basic_auth instead, which is never shown."
                )
        if sum(each is not None for each in (self.basic_auth, self.bearer_token, self.sasl)) > 1:
            raise OptionError("a schema registry takes one of basic_auth, bearer_token and sasl.")
        if self.basic_auth is not None and ":" not in self.basic_auth.removeprefix("literal:"):
            raise OptionError(
                "the schema registry's user (basic.auth.user.info) must be user:password, or a reference to it."
            )
        if not all(text.isascii() and text.isprintable() for header in self.extra_headers for text in header):
            raise OptionError("a header for the schema registry must be one line of ASCII characters.")
        if self.ca_file and self.tls:
            raise OptionError("a schema registry takes ca_file or tls, not both: set tls's ssl_truststore_location.")

    @property
    def urls(self) -> list[str]:
        """Each address, without a slash at its end."""
        return [each.strip().rstrip("/") for each in self.url.split(",")]

    def by_id(self, schema_id: int) -> Schema:
        """The schema of an id, from this process's cache if it was asked for before.

        Raises:
            DecodeError: the registry knows no such id.
            RegistryError: it does not respond, or denies access.
        """
        return _by_id(self, schema_id)

    def by_guid(self, guid: uuid.UUID) -> Schema:
        """The schema of a GUID, from the cache if it was asked for before.

        Raises:
            DecodeError: the registry knows no such GUID.
            RegistryError: it does not respond, denies access, or knows no schema by GUID, as Apicurio's.
        """
        return _by_guid(self, guid)

    def latest(self, subject: str) -> tuple[int, Schema]:
        """The newest version of a subject: its id, and the schema. Raises as :meth:`by_id`; DecodeError, too, for a subject without
        versions.
        """
        response = request(self, "GET", f"{_subject_path(subject)}/versions/latest")
        return _integer_field(self, response, "id"), _schema(self, response)

    def subjects(self, prefix: str) -> list[str]:
        """The subjects whose names begin with a text. Raises RegistryError."""
        found = request(self, "GET", f"/subjects?{urlencode({'subjectPrefix': prefix})}", is_list=True)
        return [name for name in map(str, found) if name.startswith(prefix)]

    def subjects_of(self, schema_id: int) -> tuple[str, ...]:
        """The subjects that have a schema, from the cache if they were asked for before. Raises as :meth:`by_id`."""
        return _subjects_of(self, schema_id)

    def version(self, reference: Reference) -> Schema:
        """The schema that a reference names, from the cache if it was asked for before."""
        return _version(self, reference)

    def lookup(self, subject: str, schema: Schema) -> int:
        """The id that a schema has under a subject.

        Raises:
            DecodeError: the subject does not have it.
            RegistryError: the registry does not respond, or denies access.
        """
        return _integer_field(self, request(self, "POST", _subject_path(subject), _body(schema)), "id")

    def register(self, subject: str, schema: Schema) -> int:
        """The id of a schema under a subject; registers it if it is new there."""
        path = f"{_subject_path(subject)}/versions"
        return _integer_field(self, request(self, "POST", path, _body(schema)), "id")


def _body(schema: Schema) -> dict[str, Any]:
    body: dict[str, Any] = {"schema": schema.text}
    if schema.kind != "AVRO":  # the default; Confluent's first versions do not know schemaType
        body["schemaType"] = schema.kind
    if schema.references:
        body["references"] = [
            {"name": each.name, "subject": each.subject, "version": each.version} for each in schema.references
        ]
    return body


@partial(cached, max_failures=_MAX_UNKNOWN)
def _by_id(registry: Registry, schema_id: int) -> Schema:
    ids = _unknown_ids(registry)
    ids.check(schema_id)
    try:
        response = request(registry, "GET", f"/schemas/ids/{schema_id}")
    except DecodeError:
        ids.missing(schema_id)
        raise
    ids.found(schema_id)
    return _schema(registry, response)


@lru_cache(maxsize=16)
def _unknown_ids(registry: Registry) -> _UnknownIds:
    """Of this process, for a registry."""
    return _UnknownIds()


@partial(cached, max_failures=_MAX_UNKNOWN)
def _by_guid(registry: Registry, guid: uuid.UUID) -> Schema:
    try:
        return _schema(registry, request(registry, "GET", f"/schemas/guids/{guid}"))
    except NotARegistryError as error:
        raise RegistryError(
            f"this schema registry does not know schemas by GUID, and a record's header names its schema by the GUID {guid}. "
            "Confluent's registry does in newer versions, Apicurio's does not. Producers without HeaderSchemaIdSerializer write "
            f"ids that every registry knows. ({error.message})"
        ) from error


@cached
def _subjects_of(registry: Registry, schema_id: int) -> tuple[str, ...]:
    return tuple(map(str, request(registry, "GET", f"/schemas/ids/{schema_id}/subjects", is_list=True)))


@cached
def _version(registry: Registry, reference: Reference) -> Schema:
    path = f"{_subject_path(reference.subject)}/versions/{reference.version}"
    return _schema(registry, request(registry, "GET", path))


def _subject_path(subject: str) -> str:
    if subject in ("", ".", ".."):  # which HTTP clients and servers take for steps in a path
        raise DecodeError(f"{subject!r} cannot be the name of a subject")
    return f"/subjects/{quote(subject, safe='')}"


def _schema(registry: Registry, response: dict[str, Any]) -> Schema:
    try:
        rule_set = response.get("ruleSet") or {}
        rules = tuple(_rules(rule_set))
        found = Schema(
            kind=str(response.get("schemaType") or "AVRO"),
            text=str(response["schema"]),
            references=tuple(
                Reference(name=str(each["name"]), subject=str(each["subject"]), version=int(each["version"]))
                for each in response.get("references") or ()
            ),
            rules=rules,
            contract=json.dumps({"ruleSet": rule_set, "metadata": response.get("metadata")}) if rules else None,
        )
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise NotARegistryError(f"{registry.url} responded with something that is not a schema") from error
    texts = [found.text, *(text for each in found.references for text in (each.name, each.subject))]
    if any("\ud800" <= character <= "\udfff" for text in texts if not text.isascii() for character in text):
        raise DecodeError("its schema holds half of a surrogate pair, which is not text")
    return found


def _rules(rule_set: dict[str, Any]) -> Iterator[Rule]:
    for phase in ("migrationRules", "domainRules", "encodingRules"):
        for each in rule_set.get(phase) or ():
            if not each.get("disabled"):
                yield Rule(name=str(each["name"]), type=str(each.get("type")), mode=str(each.get("mode")))


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
        """Raises DecodeError for an id that is not worth a request."""
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
