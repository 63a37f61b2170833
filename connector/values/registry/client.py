"""A schema registry: schemas by id and by subject, over the REST API that Confluent's, Apicurio's and Karapace's share.

Owns HTTP, the meaning of each answer, and the cache of schemas, one for each process. Knows no format. https://docs.confluent.io/platform/current/schema-registry/develop/api.html
"""

from __future__ import annotations

import base64
import json
import os
import ssl
import uuid
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote, urlsplit

from pykafka_wire.errors import OptionError, PoisonError, RegistryError
from pykafka_wire.values.optional_libraries import library
from pykafka_wire.values.registry.cache import cached
from pykafka_wire.wire.errors import SettingsError
from pykafka_wire.wire.security.secret_references import resolve

_JSON: Final = "application/vnd.schemaregistry.v1+json, application/json"
#: Schemas are documents that people write; Confluent's own limit is the broker's message size, 1 MB.
_MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024
#: error_code of Confluent's API: subject, version, schema not found.
_NOT_FOUND: Final = frozenset({"40401", "40402", "40403"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Another schema that one needs: the name it uses for it, and where the registry has it."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """A schema as the registry keeps it. ``kind`` is AVRO, JSON or PROTOBUF."""

    kind: str
    text: str
    references: tuple[Reference, ...] = ()


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
    """

    url: str
    basic_auth: str | None = field(default=None, repr=False, kw_only=True)
    bearer_token: str | None = field(default=None, repr=False, kw_only=True)
    ca_file: str | None = field(default=None, kw_only=True)
    timeout_s: float = field(default=10.0, kw_only=True)

    def __post_init__(self) -> None:
        for url in self.urls:
            try:
                parts = urlsplit(url)
                is_address = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
            except ValueError:  # a port above 65535, half of an IPv6 address
                is_address = False
            if not is_address:
                raise OptionError("the registry's url must be http://host:port or https://host:port.")
            if "@" in parts.netloc:
                raise OptionError("the registry's url holds a user: give basic_auth instead, which is never shown.")
        if self.basic_auth and self.bearer_token:
            raise OptionError("a registry takes basic_auth or bearer_token, not both.")

    @property
    def urls(self) -> list[str]:
        """Each address, without a slash at its end."""
        return [each.strip().rstrip("/") for each in self.url.split(",")]

    def by_id(self, schema_id: int) -> Schema:
        """The schema of an id, from this process's cache if it was asked for before.

        Raises:
            PoisonError: the registry knows no such id.
            RegistryError: it does not answer, or denies access.
        """
        return _by_id(self, schema_id)

    def by_guid(self, guid: uuid.UUID) -> Schema:
        """The schema of a GUID, as newer serializers write it into a record header. Raises as :meth:`by_id`."""
        return _by_guid(self, guid)

    def latest(self, subject: str) -> tuple[int, Schema]:
        """The newest version of a subject: its id, and the schema. Raises as :meth:`by_id`; PoisonError, too, for a subject without
        versions.
        """
        answer = _request(self, "GET", f"{_subject_path(subject)}/versions/latest")
        return _integer_field(self, answer, "id"), _schema(self, answer)

    def version(self, reference: Reference) -> Schema:
        """The schema that a reference names, from the cache if it was asked for before."""
        return _version(self, reference)

    def register(self, subject: str, schema: Schema) -> int:
        """The id of a schema under a subject; registers it if it is new there."""
        body: dict[str, Any] = {"schema": schema.text}
        if schema.kind != "AVRO":  # the default; Confluent's first versions do not know schemaType
            body["schemaType"] = schema.kind
        if schema.references:
            body["references"] = [
                {"name": each.name, "subject": each.subject, "version": each.version} for each in schema.references
            ]
        return _integer_field(self, _request(self, "POST", f"{_subject_path(subject)}/versions", body), "id")


@cached
def _by_id(registry: Registry, schema_id: int) -> Schema:
    return _schema(registry, _request(registry, "GET", f"/schemas/ids/{schema_id}"))


@cached
def _by_guid(registry: Registry, guid: uuid.UUID) -> Schema:
    return _schema(registry, _request(registry, "GET", f"/schemas/guids/{guid}"))


@cached
def _version(registry: Registry, reference: Reference) -> Schema:
    path = f"{_subject_path(reference.subject)}/versions/{reference.version}"
    return _schema(registry, _request(registry, "GET", path))


def _subject_path(subject: str) -> str:
    if subject in ("", ".", ".."):  # which HTTP clients and servers take for steps in a path
        raise PoisonError(f"{subject!r} cannot be the name of a subject")
    return f"/subjects/{quote(subject, safe='')}"


def _schema(registry: Registry, answer: dict[str, Any]) -> Schema:
    try:
        found = Schema(
            kind=str(answer.get("schemaType") or "AVRO"),
            text=str(answer["schema"]),
            references=tuple(
                Reference(name=str(each["name"]), subject=str(each["subject"]), version=int(each["version"]))
                for each in answer.get("references") or ()
            ),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise RegistryError(f"{registry.url} answered something that is not a schema: {_remedy_url()}") from error
    texts = [found.text, *(text for each in found.references for text in (each.name, each.subject))]
    if any("\ud800" <= character <= "\udfff" for text in texts if not text.isascii() for character in text):
        raise PoisonError("its schema holds half of a surrogate pair, which is not text")
    return found


def _integer_field(registry: Registry, answer: dict[str, Any], name: str) -> int:
    if not isinstance(answer.get(name), int):
        raise RegistryError(f"{registry.url} answered without {name}: {_remedy_url()}")
    return int(answer[name])


def _request(registry: Registry, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """The JSON of the first address that answers."""
    urllib3 = library("urllib3", "a schema registry")
    headers = {"Accept": _JSON, **_authorization(registry)}
    pool = _pool(os.getpid(), registry.ca_file, registry.timeout_s)
    failed = []
    for url in registry.urls:
        try:
            answer = pool.request(method, url + path, json=body, headers=headers, preload_content=False)
            try:
                content = answer.read(_MAX_ANSWER_BYTES + 1)
            finally:
                answer.release_conn()
        except urllib3.exceptions.HTTPError as error:
            failed.append(f"{url}: {_reason(error)}")
            continue
        if answer.status < 500:
            return _checked_answer(url + path, answer.status, content)
        failed.append(f"{url}: HTTP {answer.status}")
    raise RegistryError(
        f"the schema registry does not answer ({'; '.join(failed)}). Check its address from the driver and from executors; "
        "until it answers, no value counts as broken."
    )


@lru_cache(maxsize=16)
def _pool(pid: int, ca_file: str | None, timeout_s: float) -> Any:
    """This process's connections; a forked process has its own."""
    urllib3 = library("urllib3", "a schema registry")
    retries = urllib3.Retry(
        total=2,
        backoff_factor=0.2,
        status_forcelist=(429, 500, 502, 503, 504),
        allowed_methods=None,
        raise_on_status=False,
    )
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise RegistryError(f"the registry's ca_file {ca_file} cannot be read ({error}).") from error
    return urllib3.PoolManager(ssl_context=context, timeout=timeout_s, retries=retries)


def _authorization(registry: Registry) -> dict[str, str]:
    try:
        if registry.basic_auth:
            pair = resolve(registry.basic_auth, "basic_auth").encode()
            return {"authorization": f"Basic {base64.b64encode(pair).decode()}"}
        if registry.bearer_token:
            token = resolve(registry.bearer_token, "bearer_token")
            if not (token.isascii() and token.isprintable()):
                # Checked here, because the HTTP library would show the token in its error.
                raise RegistryError("bearer_token must be one line of ASCII characters: check where it comes from.")
            return {"authorization": f"Bearer {token}"}
    except SettingsError as error:
        raise RegistryError(str(error)) from error
    return {}


def _checked_answer(where: str, status: int, content: bytes) -> dict[str, Any]:
    if len(content) > _MAX_ANSWER_BYTES:
        raise RegistryError(f"{where} answered more than {_MAX_ANSWER_BYTES} bytes, more than a schema has.")
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        answer = None
    if status in (401, 403):
        raise RegistryError(f"{where} denies access (HTTP {status}): check basic_auth or bearer_token.")
    if not isinstance(answer, dict):
        raise RegistryError(f"{where} answered HTTP {status} without a JSON object: {_remedy_url()}")
    message = (
        f"{str(answer.get('message', 'no reason given'))[:500]} (HTTP {status}, {answer.get('error_code', 'no code')})"
    )
    if str(answer.get("error_code")) in _NOT_FOUND:
        raise PoisonError(f"the registry has no such schema: {message}")
    if status >= 300:
        raise RegistryError(f"{where}: {message}" + (f": {_remedy_url()}" if status == 404 else "."))
    return answer


def _remedy_url() -> str:
    return "is it a schema registry? Apicurio's is at /apis/ccompat/v7."


def _reason(error: Exception) -> str:
    cause = getattr(error, "reason", None) or error
    return f"{type(cause).__name__}: {cause}"
