"""The schema registry of AWS Glue, by botocore: schemas have names, and their versions UUIDs, by which values name them.

botocore finds the credentials, signs, and repeats what is throttled or fails. A schema that is new is made with the compatibility
that AWS's Java library gives it. https://docs.aws.amazon.com/glue/latest/dg/aws-glue-api-schema-registry-api.html
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from pykafka_wire.errors import DecodeError, OptionError, RegistryError, UnreachableRegistryError
from pykafka_wire.values.optional_libraries import library
from pykafka_wire.values.registry.address import Registry
from pykafka_wire.values.registry.registered_schema import Reference, RegistryId, Schema
from pykafka_wire.wire.security.clouds.aws import quiet_botocore
from pykafka_wire.wire.security.token import printable_line

#: Of each request, in all; botocore waits up to 20 s between them.
_MAX_ATTEMPTS: Final = 5
#: ``AWSSchemaRegistryConstants.DEFAULT_COMPATIBILITY_SETTING`` of the Java library.
_COMPATIBILITY: Final = "BACKWARD"
#: How long the check of a new version's compatibility may take, and the pause between two looks at it. The Java library waits 3 s.
_CHECK_S: Final = 30
_PAUSE_S: Final = 0.5
#: Their messages repeat what was signed, the session's token with it.
_SIGNATURE: Final = frozenset({"InvalidSignatureException", "SignatureDoesNotMatch", "IncompleteSignature"})
_DENIED: Final = _SIGNATURE | {
    "AccessDeniedException", "UnrecognizedClientException", "ExpiredTokenException", "MissingAuthenticationTokenException",
    "InvalidClientTokenId",
}  # fmt: skip
_UNTIL: Final = "No value can be decoded until it responds."


@dataclass(frozen=True, slots=True)
class GlueApi:
    """AWS Glue as ``Api`` of :mod:`~pykafka_wire.values.registry.client`. A version has its UUID in all registries of a region."""

    registry: Registry
    region: str
    name: str

    def by_id(self, schema_id: RegistryId) -> Schema:
        if isinstance(schema_id, int):
            raise DecodeError("a number is no id of AWS Glue's registry, whose schemas have UUIDs")
        return _schema(self._call("get_schema_version", SchemaVersionId=str(schema_id)))

    def latest(self, subject: str) -> tuple[uuid.UUID, Schema]:
        version = self._call(
            "get_schema_version", SchemaId=self._schema_id(subject), SchemaVersionNumber={"LatestVersion": True}
        )
        if version.get("Status") != "AVAILABLE":
            raise RegistryError(
                f"the newest version of the schema {subject} in {self.registry.url} is {version.get('Status')}: wait until it is "
                "AVAILABLE, or delete this version."
            )
        return _version_of(version), _schema(version)

    def subjects(self, prefix: str) -> list[str]:
        names: list[str] = []
        more: dict[str, str] = {}
        while True:
            try:
                page = self._call("list_schemas", RegistryId={"RegistryName": self.name}, **more)
            except DecodeError as error:
                raise self._no_registry(error) from error
            names += [listed["SchemaName"] for listed in page.get("Schemas", ())]
            if not page.get("NextToken"):
                return [name for name in names if name.startswith(prefix)]
            more = {"NextToken": page["NextToken"]}

    def subjects_of(self, schema_id: int) -> list[str]:
        raise DecodeError("a number is no id of AWS Glue's registry, whose schemas have UUIDs")

    def version(self, reference: Reference) -> Schema:
        raise DecodeError(f"it refers to {reference.name}, and AWS Glue's registry has no references between schemas")

    def versions(self, subject: str, *, with_deleted: bool = False) -> list[int]:
        return []

    def lookup(self, subject: str, schema: Schema) -> uuid.UUID:
        version = self._call(
            "get_schema_by_definition", SchemaId=self._schema_id(subject), SchemaDefinition=_text(schema)
        )
        return self._available(subject, _version_of(version), version.get("Status"))

    def register(self, subject: str, schema: Schema) -> uuid.UUID:
        try:
            return self.lookup(subject, schema)
        except DecodeError:  # the version is new, or the schema itself
            pass
        for _ in range(2):
            try:
                version = self._call(
                    "register_schema_version", SchemaId=self._schema_id(subject), SchemaDefinition=_text(schema)
                )
                return self._available(subject, _version_of(version), version.get("Status"))
            except DecodeError:
                pass
            try:
                version = self._call(
                    "create_schema", RegistryId={"RegistryName": self.name}, SchemaName=subject, DataFormat=schema.kind,
                    Compatibility=_COMPATIBILITY, SchemaDefinition=_text(schema),
                )  # fmt: skip
                return self._available(subject, _version_of(version), version.get("SchemaVersionStatus"))
            except _AlreadyExistsError:  # another writer has made it
                pass
            except DecodeError as error:
                raise self._no_registry(error) from error
        raise RegistryError(
            f"the schema {subject} in {self.registry.url} is made and removed again by others: try again."
        )

    def _available(self, subject: str, version: uuid.UUID, status: Any) -> uuid.UUID:
        """Wait until a version may be used."""
        deadline = time.monotonic() + _CHECK_S
        while status == "PENDING" and time.monotonic() < deadline:
            time.sleep(_PAUSE_S)
            status = self._call("get_schema_version", SchemaVersionId=str(version)).get("Status")
        if status != "AVAILABLE":
            raise RegistryError(
                f"the version {version} of the schema {subject} in {self.registry.url} is {status}, not AVAILABLE: "
                + (
                    "it is not compatible with the versions before it. Change it, or the schema's compatibility."
                    if status == "FAILURE"
                    else "try again later."
                )
            )
        return version

    def _no_registry(self, error: DecodeError) -> RegistryError:
        return RegistryError(
            f"there is no schema registry {self.name} in {self.region}: check the name and the region ({error})."
        )

    def _schema_id(self, subject: str) -> dict[str, str]:
        return {"RegistryName": self.name, "SchemaName": subject}

    def _call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """Return the response to one operation.

        Raises:
            DecodeError: there is no such schema, version or registry.
            RegistryError: AWS does not respond, or refuses.
        """
        with self._botocore_calls():
            client = _client(os.getpid(), self.region, self.registry.timeout_s, self.registry.proxy)
            response: dict[str, Any] = getattr(client, operation)(**arguments)
        return response

    @contextmanager
    def _botocore_calls(self) -> Iterator[None]:
        """Turn botocore's errors into this package's, and keep secrets out of its log."""
        library("botocore.session", "the schema registry of AWS Glue", "aws")
        import botocore.exceptions as errors

        url = self.registry.url
        try:
            with quiet_botocore():
                yield
        except errors.ClientError as error:
            details = error.response.get("Error", {})
            code, status = str(details.get("Code")), error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            text = f"{error.operation_name}: {code}"
            if code not in _SIGNATURE:
                text += f": {printable_line(details.get('Message'))}"
            if code == "EntityNotFoundException":
                raise DecodeError(f"the registry has no such schema: {text}") from error
            if code == "AlreadyExistsException":
                raise _AlreadyExistsError(text) from error
            if code in _DENIED or status in (401, 403):
                raise RegistryError(
                    f"{url} denies access ({text}): check the role or user of AWS on the driver and on executors, and that it may "
                    "call glue:GetSchemaVersion, and for writes GetSchemaByDefinition, RegisterSchemaVersion and CreateSchema."
                ) from (None if code in _SIGNATURE else error)
            if status == 429 or status >= 500 or "Throttl" in code:
                raise UnreachableRegistryError(
                    f"the schema registry {url} does not respond ({text}). {_UNTIL}"
                ) from error
            raise RegistryError(f"{url} refuses the request ({text}).") from error
        except (
            errors.NoCredentialsError, errors.CredentialRetrievalError, errors.PartialCredentialsError, errors.ProfileNotFound,
            RuntimeError,  # what was fetched has already expired
        ) as error:  # fmt: skip
            raise RegistryError(
                f"no credentials of AWS for the schema registry {url} ({printable_line(error)}): give this machine (executors, "
                "too) a role, or set AWS_PROFILE."
            ) from error
        except errors.ParamValidationError as error:
            raise OptionError(f"{url} cannot have such a schema: {printable_line(error)}.") from error
        except errors.BotoCoreError as error:
            raise UnreachableRegistryError(
                f"the schema registry {url} does not respond ({printable_line(error)}). Check the region {self.region}, and that "
                f"AWS can be reached from the driver and from executors. {_UNTIL}"
            ) from error


class _AlreadyExistsError(RegistryError):
    """A schema of that name was made in the meantime."""


@lru_cache(maxsize=16)
def _client(pid: int, region: str, timeout_s: float, proxy: str | None) -> Any:  # Any: botocore has no types
    """Return this process's client, which threads may share."""
    from botocore.config import Config

    config = Config(
        connect_timeout=timeout_s,
        read_timeout=timeout_s,
        retries={"mode": "standard", "total_max_attempts": _MAX_ATTEMPTS},
        proxies={"http": proxy, "https": proxy} if proxy is not None else None,
        user_agent_extra="pykafka-wire",
    )
    session = library("botocore.session", "the schema registry of AWS Glue", "aws").Session()
    return session.create_client("glue", region_name=region, config=config)


def _version_of(response: dict[str, Any]) -> uuid.UUID:
    try:
        return uuid.UUID(response["SchemaVersionId"])
    except (KeyError, ValueError) as error:
        raise RegistryError("AWS Glue responded without the UUID of a schema's version.") from error


def _schema(response: dict[str, Any]) -> Schema:
    try:
        return Schema(kind=response["DataFormat"], text=response["SchemaDefinition"])
    except KeyError as error:
        raise RegistryError(f"AWS Glue responded with a version of a schema without {error}.") from error


def _text(schema: Schema) -> str:
    if schema.references:
        raise OptionError(
            "AWS Glue's registry has no references between schemas: give one that contains all its types."
        )
    return schema.text
