"""Libraries that an ingest needs, looked for before it starts; tests/release looks for them in environments without."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from pykafka_wire.errors import MissingLibraryError
from pykafka_wire.ingest.settings.settings_file import make_settings
from pykafka_wire.ingest.startup.library_checks import check_libraries


def lacking(monkeypatch: pytest.MonkeyPatch, *modules: str, with_page: bool = False, **given: Any) -> str:
    """What is said where these modules are not installed; empty where they are not needed."""
    base = {"checkpoint": "/c", "topics": ".*", "into": "/lake", "kafka": {"bootstrap.servers": "b:9092"}}
    settings = make_settings({**base, "defaults": {"format": "json"}, **given})
    with monkeypatch.context() as patched:
        for module in modules:
            patched.setitem(sys.modules, module, None)
        try:
            check_libraries(settings, with_page=with_page)
        except MissingLibraryError as error:
            return error.message
    return ""


def test_all_that_lacks_is_named_with_one_command(monkeypatch: pytest.MonkeyPatch) -> None:
    said = lacking(
        monkeypatch, "pandas", "urllib3", "uvicorn", "psutil", registry="http://registry:8081", with_page=True
    )
    assert said.splitlines() == [
        "libraries that this ingest needs are not installed",
        "  pandas, for tasks that write the tables' files",
        "  urllib3, for the schema registry",
        "  uvicorn, for the page",
        "  psutil, for the page",
        "Install the missing libraries: pip install 'pykafka-wire[delta,values,ui]'.",
    ]


def test_what_the_settings_do_not_need_may_lack(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = ("pandas", "deltalake", "pyiceberg", "urllib3", "google.protobuf", "botocore", "uvicorn")
    by_spark = {"format": "json", "write": "spark"}
    assert lacking(monkeypatch, *absent, defaults=by_spark) == ""
    assert lacking(monkeypatch, *absent, into="main.shop") == ""
    assert 'write = "spark" in [defaults]' in lacking(monkeypatch, "deltalake")
    whole = {"topic": "a", "format": "json"}
    assert "pandas" in lacking(monkeypatch, "pandas", defaults=by_spark, table=[{**whole, "write": "auto"}])


def test_formats_of_tables_and_of_values_have_libraries_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    iceberg = {"table_format": "iceberg", "into": "lake.shop"}
    said = lacking(monkeypatch, "pyiceberg", "pandas", "deltalake", **iceberg)
    assert "pip install 'pykafka-wire[iceberg]'." in said and "deltalake" not in said
    assert "pip install 'pykafka-wire[spark,iceberg]'." in lacking(monkeypatch, "pyspark", "pyiceberg", **iceberg)
    assert "botocore" in lacking(monkeypatch, "botocore", registry="glue://eu-west-1/shop")
    schema = 'syntax = "proto3"; message A { int32 a = 1; }'
    protobuf = [{"topic": "a", "format": "protobuf", "schema": schema}]
    assert "google.protobuf" in lacking(monkeypatch, "google.protobuf", table=protobuf)
