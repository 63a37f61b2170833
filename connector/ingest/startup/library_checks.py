"""Checks that the libraries which an ingest needs are installed, before it starts; names all missing ones, with the pip command."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from pykafka_wire.errors import MissingLibraryError
from pykafka_wire.ingest.settings.model import Settings
from pykafka_wire.ingest.tables.format import NeededLibrary
from pykafka_wire.ingest.tables.formats import format_of


def check_libraries(
    settings: Settings, *, is_plan: bool = False, with_page: bool = False, with_metrics: bool = False
) -> None:
    """Check the libraries that the settings show to be needed. A library for the format of a single table is checked later, when
    that table is landed.

    Args:
        is_plan: whether the ingest is only planned, and writes nothing.
        with_page, with_metrics: whether the ingest serves its page and metrics.

    Raises:
        MissingLibraryError: some libraries are not installed; the error lists all, with the pip command.
    """
    needs = [need for need in _needs(settings) if need.is_for_plan or not is_plan]
    needs += [NeededLibrary(module, "ui", "the page") for module in ("uvicorn", "starlette", "psutil") if with_page]
    needs += [NeededLibrary("prometheus_client", "prometheus", "metrics")] if with_metrics else []
    missing = [need for need in needs if not _is_installed(need.module)]
    if not missing:
        return
    lines = [f"  {need.module}, for {need.what_for}" for need in missing]
    extras = ",".join(dict.fromkeys(need.extra for need in missing))
    remedy = f"Install the missing libraries: pip install 'pykafka-wire[{extras}]'"
    if len(instead := {need.instead for need in missing}) == 1:
        remedy += "".join(f", or {text}" for text in instead if text)
    raise MissingLibraryError("\n".join(["libraries that this ingest needs are not installed", *lines, f"{remedy}."]))


def _needs(settings: Settings) -> Iterator[NeededLibrary]:
    tables = (settings.defaults, *settings.tables)
    yield NeededLibrary("pyspark", "delta" if settings.table_format == "delta" else "spark", "Spark", is_for_plan=True)
    yield from format_of(settings).needed_libraries(settings)
    if settings.registry is not None and settings.registry.startswith("glue:"):
        yield NeededLibrary("botocore", "aws", "the schema registry", is_for_plan=True)
    elif settings.registry is not None:
        yield NeededLibrary("urllib3", "values", "the schema registry", is_for_plan=True)
    if any(table.format == "protobuf" for table in tables):
        yield NeededLibrary("google.protobuf", "values", "Protobuf", is_for_plan=True)


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the parent package is missing
        return False
