"""A schema registry: schemas by id and by subject.

Owns its address, what every kind of registry offers, and the cache of schemas, one for each process. The kinds are
:mod:`~pykafka_wire.values.registry.confluent` and :mod:`~pykafka_wire.values.registry.glue`;
:mod:`~pykafka_wire.values.registry.settings` makes a registry of Spark's options. Knows no format.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Literal, Protocol
from urllib.parse import urlsplit

from pykafka_wire.errors import OptionError
from pykafka_wire.values.registry.cache import cached
from pykafka_wire.values.registry.registered_schema import Reference, RegistryId, Schema
from pykafka_wire.wire.settings import ClientSettings

#: Ids and GUIDs that the registry lacks, of which every value of a topic may have another. Each takes some 300 bytes.
_MAX_UNKNOWN: Final = 20_000
_GLUE: Final = "glue://"
#: The region, and the registry's name; without one AWS's default (``AWSSchemaRegistryConstants`` of its Java library).
_GLUE_URL: Final = re.compile(r"glue://([a-z0-9-]+)(?:/([\w$#.-]{1,255}))?/?", re.ASCII)
_DEFAULT_REGISTRY: Final = "default-registry"
_CONTEXT: Final = re.compile(r":\.[^:]*:")


def context_of(subject: str | None) -> str | None:
    """``:.prod:`` of the subject ``:.prod:orders-value``; None for one that names no context, or the default one."""
    found = _CONTEXT.match(subject or "")
    return None if found is None or found[0] == ":.:" else found[0]


class Api(Protocol):
    """What a registry of any kind is asked for. Each raises RegistryError where it does not respond, or denies access."""

    def by_id(self, schema_id: RegistryId) -> Schema:
        """Raises DecodeError: the registry knows no such id."""

    def latest(self, subject: str) -> tuple[RegistryId, Schema]:
        """Raises DecodeError: the subject has no version."""

    def subjects(self, prefix: str) -> list[str]: ...

    def subjects_of(self, schema_id: int) -> list[str]:
        """Raises DecodeError: the registry knows no such id."""

    def version(self, reference: Reference) -> Schema:
        """Raises DecodeError: there is none."""

    def versions(self, subject: str) -> list[int]:
        """The numbers of its versions, ascending. Raises DecodeError: the subject has none."""

    def lookup(self, subject: str, schema: Schema) -> RegistryId:
        """Raises DecodeError: the subject does not have the schema."""

    def register(self, subject: str, schema: Schema) -> RegistryId: ...


@dataclass(frozen=True, slots=True)
class Registry:
    """The address of a schema registry, and the credentials for it. It is not asked before a schema is needed.

    Attributes:
        url: ``https://host:port``, with Apicurio's or a proxy's path behind it; several, separated by commas, are tried in turn. Or
            ``glue://region/name``, a registry of AWS Glue, whose credentials are those that botocore finds.
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
        subject: ``:.context:subject``, whose context ids are looked up in: each context of Confluent's registry has ids of its own.
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
    subject: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.is_glue:
            self._check_glue()
            return
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

    @property
    def context(self) -> str | None:
        """The prefix of the subjects of a context, ``:.context:``; None for the default one."""
        return context_of(self.subject)

    def for_subject(self, subject: str | None) -> Registry:
        """The same registry, for values whose subject this is."""
        return self if context_of(subject) is None or self.is_glue else replace(self, subject=subject)

    @property
    def is_glue(self) -> bool:
        """Whether it is AWS Glue's, whose frames, ids and names of subjects are of its own."""
        return self.url.startswith(_GLUE)

    @property
    def framing(self) -> Literal["required", "required glue"]:
        """The frames of its serializers."""
        return "required glue" if self.is_glue else "required"

    def subject_of_topic(self, topic: str, column: Literal["key", "value"]) -> str:
        """The subject of a topic's keys or values, as the registry's own serializers name it by default."""
        return topic if self.is_glue else f"{topic}-{column}"

    @partial(cached, max_failures=_MAX_UNKNOWN)
    def by_id(self, schema_id: RegistryId) -> Schema:
        """The schema of an id, from this process's cache if it was asked for before.

        Raises:
            DecodeError: the registry knows no such id.
            RegistryError: it does not respond, denies access, or knows no schema by GUID, as Apicurio's.
        """
        return self._api().by_id(schema_id)

    def latest(self, subject: str) -> tuple[RegistryId, Schema]:
        """The newest version of a subject: its id, and the schema. Raises as :meth:`by_id`; DecodeError, too, for a subject without
        versions.
        """
        return self._api().latest(subject)

    def subjects(self, prefix: str) -> list[str]:
        """The subjects whose names begin with a text. Raises RegistryError."""
        return self._api().subjects(prefix)

    @cached
    def subjects_of(self, schema_id: int) -> tuple[str, ...]:
        """The subjects that have a schema, from the cache if they were asked for before. Raises as :meth:`by_id`."""
        return tuple(self._api().subjects_of(schema_id))

    @cached
    def version(self, reference: Reference) -> Schema:
        """The schema that a reference names, from the cache if it was asked for before."""
        return self._api().version(reference)

    def versions(self, subject: str) -> list[int]:
        """The numbers of a subject's versions, ascending; those of AWS Glue's are not asked for. Raises as :meth:`latest`."""
        return self._api().versions(subject)

    def lookup(self, subject: str, schema: Schema) -> RegistryId:
        """The id that a schema has under a subject.

        Raises:
            DecodeError: the subject does not have it.
            RegistryError: the registry does not respond, or denies access.
        """
        return self._api().lookup(subject, schema)

    def register(self, subject: str, schema: Schema) -> RegistryId:
        """The id of a schema under a subject; registers it if it is new there."""
        return self._api().register(subject, schema)

    def _api(self) -> Api:
        # Each loaded where it is used: botocore's is large.
        if self.is_glue:
            from pykafka_wire.values.registry.glue import GlueApi

            return GlueApi(self, *self._glue_parts())
        from pykafka_wire.values.registry.confluent import ConfluentApi

        return ConfluentApi(self)

    def _glue_parts(self) -> tuple[str, str]:
        """The region and the registry's name."""
        found = _GLUE_URL.fullmatch(self.url.strip())
        if found is None:
            raise OptionError(
                "the schema registry's url must be glue://region/name, as in glue://eu-west-1/default-registry, and is one only."
            )
        return found[1], found[2] or _DEFAULT_REGISTRY

    def _check_glue(self) -> None:
        self._glue_parts()
        if self.rule_executors:
            raise OptionError(
                f"rule.executors is set, and the schema registry {self.url} has no rules: remove rule.executors."
            )
        if any((self.basic_auth, self.bearer_token, self.sasl, self.ca_file, self.tls, self.extra_headers)):
            raise OptionError(
                f"the schema registry {self.url} takes its credentials and its authorities from AWS's own settings (a role, "
                "AWS_PROFILE, AWS_CA_BUNDLE): remove basic.auth.*, bearer.auth.* and schema.registry.ssl.*."
            )
