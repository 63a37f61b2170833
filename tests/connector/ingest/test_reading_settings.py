"""The settings of a table by kind: how its topic is read, what it takes of typed records, and what no read depends on.

A reader sees the first two kinds alone, so that a setting of neither kind is unknown to it, and to mypy.
"""

from __future__ import annotations

from dataclasses import Field, fields, replace
from typing import Any

import pytest

from pykafka_wire.ingest.records.contracts import needs_headers, read_alike
from pykafka_wire.ingest.records.reader import TableReaders
from pykafka_wire.ingest.settings.model import ContractSettings, Destination, ReadSettings, Settings, Table

#: Settings on which neither the type nor the content of a row depends. A new setting of a table belongs here, or in ReadSettings or
#: ContractSettings.
OTHERS = {
    "topic", "name", "on_conflict", "min_rows", "max_delay", "partition_by", "cluster_by", "write", "target_file_size", "compact",
    "keep", "redefine", "widen", "properties", "position",
}  # fmt: skip


def other_value(setting: Field[Any]) -> Any:
    """Return a value that a setting does not have by default."""
    if setting.metadata["choices"]:
        return setting.metadata["choices"][-1]
    values = {"tuple[str, ...]": ("a", "b"), "Mapping[str, str]": {"a": "b"}, "bool": True}
    return values.get(str(setting.type), "other")


def names_of(kind: type) -> set[str]:
    return {setting.name for setting in fields(kind)}


def test_every_setting_of_a_table_is_of_a_kind() -> None:
    by_kind = names_of(ReadSettings) | (names_of(ContractSettings) - {"merges"}) | OTHERS
    assert names_of(Table) == by_kind
    assert not OTHERS & (names_of(ReadSettings) | names_of(ContractSettings))


@pytest.mark.parametrize("setting", fields(ReadSettings), ids=lambda setting: setting.name)
def test_tables_that_differ_in_a_setting_of_reading_do_not_read_alike(setting: Field[Any]) -> None:
    table = Table(topic="t")
    of_table = next(each for each in fields(Table) if each.name == setting.name)
    assert str(of_table.type) == str(setting.type)
    other = replace(table, **{setting.name: other_value(of_table)})
    assert getattr(other.reading, setting.name) == getattr(other, setting.name)
    assert not read_alike([table.reading, other.reading])
    assert read_alike([table.reading, replace(table, where="id > 1", properties={"a": "b"}).reading])


@pytest.mark.parametrize("name", sorted(names_of(ContractSettings) - {"merges"}))
def test_tables_that_differ_in_a_contract_do_not_share_it(name: str) -> None:
    table = Table(topic="t")
    other = replace(table, **{name: other_value(next(each for each in fields(Table) if each.name == name))})
    assert {table.contract: 1, other.contract: 2} == {other.contract: 2, table.contract: 1}
    assert table.contract != other.contract


def test_lists_are_taken_as_settings_of_a_program() -> None:
    made: Any = {"types": ["a"], "select": ["id"]}
    assert len({Table(topic="t", **made).reading, Table(topic="t", **made).contract}) == 2


def test_a_table_has_one_reader() -> None:
    tables = (Table(topic="t", name="a", where="id > 1"), Table(topic="t", name="b", where="headers IS NULL"))
    settings = Settings(checkpoint="/c", kafka={"bootstrap.servers": "b:1"}, topics=".*", into="/lake", tables=tables)
    readers = TableReaders(settings)
    first, second = readers.of_topic("t")
    assert readers.of_topic("t") == [first, second] and first is not second
    assert readers.of(Destination(topic="t", name="a", table=tables[0])) is first
    assert readers.of(Destination(topic="t", name="a", table=tables[1])) is not first
    assert [needs_headers([reader.contract.settings]) for reader in (first, second)] == [False, True]
