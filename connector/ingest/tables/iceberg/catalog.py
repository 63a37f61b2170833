"""The catalog of an ingest's Iceberg tables, opened by pyiceberg with the settings' address and credentials."""

from __future__ import annotations

import functools
import logging
from typing import Any, Final

from pykafka_wire.errors import MissingLibraryError
from pykafka_wire.ingest.settings.model import Settings
from pykafka_wire.wire.security.secret_references import resolve

_log = logging.getLogger(__name__)

#: Prefixes of a catalog secret that is given by reference.
_REFERENCES: Final = ("env:", "provider:", "literal:")


@functools.lru_cache(maxsize=8)
def _catalog(name: str, given: tuple[tuple[str, str], ...]) -> Any:  # Any: pyiceberg is optional
    try:
        from pyiceberg.catalog import load_catalog
    except ModuleNotFoundError as error:
        raise MissingLibraryError(
            f"table_format is iceberg, which needs the module {error.name}, which is not installed: pip install "
            "'pykafka-wire[iceberg]', on the driver and on every executor."
        ) from error
    return load_catalog(name, **dict(given))


def opened(settings: Settings) -> tuple[Any, tuple[str, ...]]:
    """Return the catalog and the namespace."""
    name, *namespace = settings.into.split(".")
    given = {
        # The prefix file: is not a reference here, but the beginning of a URI.
        name: resolve(value, f"catalog.{name}") if value.startswith(_REFERENCES) else value
        for name, value in settings.catalog.items()
    }
    # Otherwise a REST catalog may omit unreferenced snapshots, but one of them may have the position, and their files are in use.
    given["snapshot-loading-mode"] = "all"
    return _catalog(name, tuple(sorted(given.items()))), tuple(namespace)


def sql_name(settings: Settings, name: str) -> str:
    """Return the name in SQL of the table with this name."""
    return f"{settings.schema}.`{name}`"


def has_namespace(settings: Settings) -> bool:
    """Return whether the catalog has the namespace of the tables."""
    catalog, namespace = opened(settings)
    return bool(catalog.namespace_exists(namespace))


def make_namespace(settings: Settings) -> None:
    """Create the namespace of the tables, if the catalog does not have it."""
    if not has_namespace(settings):
        catalog, namespace = opened(settings)
        catalog.create_namespace_if_not_exists(namespace)
        _log.info("The namespace %s was created.", settings.into)


def load_table(settings: Settings, name: str) -> Any:
    """Return the pyiceberg table with this name. Raises pyiceberg's NoSuchTableError."""
    catalog, namespace = opened(settings)
    return catalog.load_table((*namespace, name))


def table_names(settings: Settings) -> list[str]:
    """Return the names of the tables in the namespace; none before the first start, which creates the namespace."""
    from pyiceberg.exceptions import NoSuchNamespaceError

    catalog, namespace = opened(settings)
    try:
        return sorted(identifier[-1] for identifier in catalog.list_tables(namespace))
    except NoSuchNamespaceError:
        return []


class OnceCatalog:
    """A catalog for a single commit. It keeps pyiceberg from deleting the commit's manifests if the catalog reports a conflict."""

    def __init__(self, catalog: Any, sent: set[int]) -> None:
        """Store the catalog, and the set that collects the ids of snapshots sent to it."""
        self._catalog = catalog
        self._sent = sent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def commit_table(self, table: Any, requirements: Any, updates: Any) -> Any:
        from pyiceberg.exceptions import CommitFailedException, ValidationException
        from pyiceberg.table.update import AddSnapshotUpdate

        added = (update.snapshot for update in updates if isinstance(update, AddSnapshotUpdate))
        self._sent.update(snapshot.snapshot_id for snapshot in added)
        try:
            return self._catalog.commit_table(table, requirements, updates)
        except (CommitFailedException, ValidationException) as error:
            raise UnknownCommitError from error


class UnknownCommitError(Exception):
    """The catalog reported a conflict for a commit. It may have applied the commit nevertheless."""
