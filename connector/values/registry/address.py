"""A schema registry's address: where it is, the credentials for it, and how it names things. A value, which is never asked.

:class:`~pykafka_wire.values.registry.client.RegistryClient` asks the registry; :mod:`~pykafka_wire.values.registry.settings` makes
one of Spark's options. Knows no format.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Final, Literal
from urllib.parse import urlsplit

from pykafka_wire.errors import OptionError
from pykafka_wire.wire.settings import ClientSettings

_GLUE: Final = "glue://"
#: The region, and the registry's name; without one AWS's default (``AWSSchemaRegistryConstants`` of its Java library).
_GLUE_URL: Final = re.compile(r"glue://([a-z0-9-]+)(?:/([\w$#.-]{1,255}))?/?", re.ASCII)
_DEFAULT_REGISTRY: Final = "default-registry"
_CONTEXT: Final = re.compile(r":\.[^:]*:")


def context_of(subject: str | None) -> str | None:
    """Return ``:.prod:`` for the subject ``:.prod:orders-value``; None for one that names no context, or the default one."""
    match = _CONTEXT.match(subject or "")
    return None if match is None or match[0] == ":.:" else match[0]


@dataclass(frozen=True, slots=True)
class Registry:
    """The address of a schema registry, and the credentials for it. Picklable: it travels to Spark's workers.

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
        inherits_sasl: whether they are those of the connection to brokers.
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
    inherits_sasl: bool = field(default=False, kw_only=True)
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
        if sum(credential is not None for credential in (self.basic_auth, self.bearer_token, self.sasl)) > 1:
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
        """Return each address, without a slash at its end."""
        return [url.strip().rstrip("/") for url in self.url.split(",")]

    @property
    def context(self) -> str | None:
        """Return the prefix of the subjects of a context, ``:.context:``; None for the default one."""
        return context_of(self.subject)

    def for_subject(self, subject: str | None) -> Registry:
        """Return the same registry, for values whose subject this is."""
        return self if context_of(subject) is None or self.is_glue else replace(self, subject=subject)

    @property
    def is_glue(self) -> bool:
        """Return whether it is AWS Glue's, whose frames, ids and names of subjects are of its own."""
        return self.url.startswith(_GLUE)

    @property
    def framing(self) -> Literal["required", "required glue"]:
        """Return the frames of its serializers."""
        return "required glue" if self.is_glue else "required"

    def subject_of_topic(self, topic: str, column: Literal["key", "value"]) -> str:
        """Return the subject of a topic's keys or values, as the registry's own serializers name it by default."""
        return topic if self.is_glue else f"{topic}-{column}"

    def glue_parts(self) -> tuple[str, str]:
        """Return the region of AWS Glue, and the registry's name there. Raises OptionError."""
        match = _GLUE_URL.fullmatch(self.url.strip())
        if match is None:
            raise OptionError(
                "the schema registry's url must be glue://region/name, as in glue://eu-west-1/default-registry, and is one only."
            )
        return match[1], match[2] or _DEFAULT_REGISTRY

    def _check_glue(self) -> None:
        self.glue_parts()
        if self.rule_executors:
            raise OptionError(
                f"rule.executors is set, and the schema registry {self.url} has no rules: remove rule.executors."
            )
        if any((self.basic_auth, self.bearer_token, self.sasl, self.ca_file, self.tls, self.extra_headers)):
            raise OptionError(
                f"the schema registry {self.url} takes its credentials and its authorities from AWS's own settings (a role, "
                "AWS_PROFILE, AWS_CA_BUNDLE): remove basic.auth.*, bearer.auth.* and schema.registry.ssl.*."
            )
