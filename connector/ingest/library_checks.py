"""The libraries that an ingest needs, looked for before it starts: all that lack, with the command that installs them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Final, NamedTuple

from pykafka_wire.errors import MissingLibraryError
from pykafka_wire.ingest.settings import Settings, Table

_WRITING: Final = "tasks that write the tables' files"


class _Need(NamedTuple):
    """A library, the extra that brings it, and what it is for; whether a plan needs it, too."""

    module: str
    extra: str
    what_for: str
    is_for_plan: bool = False


def check_libraries(
    settings: Settings, *, is_plan: bool = False, with_page: bool = False, with_metrics: bool = False
) -> None:
    """Look for the libraries that the settings tell to be needed; those of single formats are their tables' trouble.

    Args:
        is_plan: the ingest is planned, and writes nothing.
        with_page, with_metrics: the ingest serves its page, and metrics.

    Raises:
        MissingLibraryError: some are not installed; the error lists all, with the command that installs them.
    """
    needs = [need for need in _needs(settings) if need.is_for_plan or not is_plan]
    needs += [_Need(module, "ui", "the page") for module in ("uvicorn", "starlette", "psutil") if with_page]
    needs += [_Need("prometheus_client", "prometheus", "metrics")] if with_metrics else []
    missing = [need for need in needs if not _is_installed(need.module)]
    if not missing:
        return
    lines = [f"  {need.module}, for {need.what_for}" for need in missing]
    extras = ",".join(dict.fromkeys(need.extra for need in missing))
    remedy = f"Install what is missing: pip install 'pykafka-wire[{extras}]'"
    if all(need.what_for == _WRITING for need in missing) and settings.table_format == "delta":
        remedy += ', or let Spark write the files, which is slower: write = "spark" in [defaults]'
    raise MissingLibraryError("\n".join(["libraries that this ingest needs are not installed", *lines, f"{remedy}."]))


def _needs(settings: Settings) -> Iterator[_Need]:
    tables = (settings.defaults, *settings.tables)
    yield _Need("pyspark", "delta", "Spark", is_for_plan=True)
    if settings.table_format == "iceberg":
        yield _Need("pyiceberg", "iceberg", "tables of Iceberg")
    if any(_is_by_tasks(settings, table) for table in tables):
        if settings.table_format == "delta":
            yield _Need("deltalake", "delta", _WRITING)
        yield _Need("pandas", settings.table_format, _WRITING)
    if settings.registry is not None and settings.registry.startswith("glue:"):
        yield _Need("botocore", "aws", "the schema registry", is_for_plan=True)
    elif settings.registry is not None:
        yield _Need("urllib3", "values", "the schema registry", is_for_plan=True)
    if any(table.format == "protobuf" for table in tables):
        yield _Need("google.protobuf", "values", "Protobuf", is_for_plan=True)


def _is_by_tasks(settings: Settings, table: Table) -> bool:
    """Return whether tasks write a table's files, as far as settings tell."""
    is_plain = table.mode == "append" and table.write != "spark" and not table.cluster_by
    return is_plain and (settings.is_folder or settings.table_format == "iceberg")


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package that the module is in
        return False
