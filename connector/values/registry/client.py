"""A schema registry, asked for schemas by id and by subject, with the cache of schemas of this process.

Owns what every kind of registry offers. The kinds are :mod:`~pykafka_wire.values.registry.confluent` and
:mod:`~pykafka_wire.values.registry.glue`. Knows no format.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from pykafka_wire.errors import DecodeError
from pykafka_wire.values.registry.address import Registry
from pykafka_wire.values.registry.cache import cached
from pykafka_wire.values.registry.registered_schema import Reference, RegistryId, Schema

#: Ids and GUIDs that the registry lacks, of which every value of a topic may have another. Each takes some 300 bytes.
_MAX_UNKNOWN: Final = 20_000

#: Versions of subjects. An ingest may read all versions of a subject, and reads them again when there is a new one.
_MAX_VERSIONS: Final = 10_000


class Api(Protocol):
    """What a registry of any kind is asked for. Each raises RegistryError where it does not respond, or denies access."""

    def by_id(self, schema_id: RegistryId) -> Schema:
        """Look up an id. Raises DecodeError: the registry knows no such id."""

    def latest(self, subject: str) -> tuple[RegistryId, Schema]:
        """Return the newest version. Raises DecodeError: the subject has none."""

    def subjects(self, prefix: str) -> list[str]: ...

    def subjects_of(self, schema_id: int) -> list[str]:
        """Look up an id. Raises DecodeError: the registry knows no such id."""

    def version(self, reference: Reference) -> Schema:
        """Return one version. Raises DecodeError: there is none."""

    def versions(self, subject: str, *, with_deleted: bool = False) -> list[int]:
        """Return the numbers of its versions, ascending. Raises DecodeError: the subject has none."""

    def lookup(self, subject: str, schema: Schema) -> RegistryId:
        """Look up a schema. Raises DecodeError: the subject does not have it."""

    def register(self, subject: str, schema: Schema) -> RegistryId: ...


@dataclass(frozen=True, slots=True)
class RegistryClient:
    """Asks a registry, and remembers for its address what cannot change. It is not asked before a schema is needed."""

    registry: Registry

    @partial(cached, max_failures=_MAX_UNKNOWN)
    def by_id(self, schema_id: RegistryId) -> Schema:
        """Return the schema of an id, from this process's cache if it was asked for before.

        Raises:
            DecodeError: the registry knows no such id.
            RegistryError: it does not respond, denies access, or knows no schema by GUID, as Apicurio's.
        """
        return self._api().by_id(schema_id)

    def latest(self, subject: str) -> tuple[RegistryId, Schema]:
        """Return the newest version of a subject: its id, and the schema. Raises as :meth:`by_id`; DecodeError, too, for a
        subject without versions.
        """
        return self._api().latest(subject)

    def subjects(self, prefix: str) -> list[str]:
        """Return the subjects whose names begin with a text. Raises RegistryError."""
        return self._api().subjects(prefix)

    @cached
    def subjects_of(self, schema_id: int) -> tuple[str, ...]:
        """Return the subjects that have a schema, from the cache if they were asked for before. Raises as :meth:`by_id`."""
        return tuple(self._api().subjects_of(schema_id))

    @partial(cached, max_results=_MAX_VERSIONS)
    def version(self, reference: Reference) -> Schema:
        """Return the schema that a reference names, from the cache if it was asked for before."""
        return self._api().version(reference)

    def versions(self, subject: str, *, with_deleted: bool = False) -> list[int]:
        """Return the numbers of a subject's versions, ascending; those of AWS Glue's are not asked for. Raises as
        :meth:`latest`.

        Args:
            with_deleted: also those that are deleted, and can still be read.
        """
        return self._api().versions(subject, with_deleted=with_deleted)

    def is_foreign(self, subject: str, schema: Schema) -> bool:
        """Return whether no version of a subject, also no deleted one, has the types of a schema: its id was stored for another
        schema, and the registry was built anew. False where the versions are unknown. Raises RegistryError.
        """
        try:
            numbers = self.versions(subject, with_deleted=True)
            references = (Reference(name=subject, subject=subject, version=number) for number in reversed(numbers))
            return bool(numbers) and not any(self.version(each).has_same_types(schema) for each in references)
        except DecodeError:  # the registry no longer knows the subject
            return False

    def lookup(self, subject: str, schema: Schema) -> RegistryId:
        """Return the id that a schema has under a subject.

        Raises:
            DecodeError: the subject does not have it.
            RegistryError: the registry does not respond, or denies access.
        """
        return self._api().lookup(subject, schema)

    def register(self, subject: str, schema: Schema) -> RegistryId:
        """Return the id of a schema under a subject; registers it if it is new there."""
        return self._api().register(subject, schema)

    def _api(self) -> Api:
        # Each loaded where it is used: botocore's is large.
        if self.registry.is_glue:
            from pykafka_wire.values.registry.glue import GlueApi

            return GlueApi(self.registry, *self.registry.glue_parts())
        from pykafka_wire.values.registry.confluent import ConfluentApi

        return ConfluentApi(self.registry)
