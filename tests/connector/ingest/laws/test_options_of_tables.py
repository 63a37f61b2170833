"""A table's position decides which records are read next: no option of the table reads other records than those of a range.

Each option of a batch read is given to a table, with each value that it can have of a list, in any case. The oracle: the settings
refuse the option, or a read of the table's range asks the same brokers for the same offsets and columns as without the option.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykafka_wire.errors import OptionError
from pykafka_wire.ingest.records.ranges import TopicRange
from pykafka_wire.ingest.records.reader import TableReaders
from pykafka_wire.ingest.settings.mistakes import mistakes_of
from pykafka_wire.ingest.settings.model import Destination, Settings, Table
from pykafka_wire.options.option_table import OPTIONS
from pykafka_wire.options.source import SourceOptions, parse_source_options
from tests.connector.ingest.laws.generated import examples

pytestmark = pytest.mark.unit

RANGE: Final = TopicRange(topic="t", topic_id="", start={0: 2000, 1: 0}, end={0: 5000, 1: 0})
#: Of these, each option gets those that it can have.
VALUES: Final = (
    "true", "5", "earliest", "latest", "group", "1700000000000", "-10m", "2026-01-01T00:00:00Z", "other", "other:9092", "/lake/c#3",
    '{"t": [0]}', '{"t": {"0": 5, "1": 0}}', '{"t": {"0": 1700000000000, "1": 1700000000000}}', "offset", "t.*", "read_uncommitted",
)  # fmt: skip


def _can_have(parse: Callable[[str, str], Any], name: str, value: str) -> bool:
    try:
        parse(value, name)
    except OptionError:
        return False
    return True


def given_options() -> Iterator[tuple[str, str]]:
    for option in OPTIONS:
        if "B" in option.where:
            yield from ((option.name, value) for value in VALUES if _can_have(option.parse, option.name, value))


def read_of(options: dict[str, str]) -> SourceOptions | None:
    """Return what a table reads of its range; None if its settings or the source refuse the options."""
    table = Table(topic="t", format="string", options=options)
    settings = Settings(
        checkpoint="/c", kafka={"bootstrap.servers": "b:9092"}, topics="t", into="/lake", tables=(table,)
    )
    if list(mistakes_of(settings)):
        return None
    reader = TableReaders(settings).of(Destination(topic="t", name="t", table=table))
    try:
        return parse_source_options(reader.typed_options(RANGE, value_format="string", key_format="binary"), "batch")
    except OptionError:
        return None


def records_of(read: SourceOptions) -> tuple[Any, ...]:
    """Return what decides which records are read, and which columns of them."""
    return (
        *(
            read.subscription,
            read.starting_offsets,
            read.ending_offsets,
            read.micro_batch,
            read.columns,
            read.filter_pushdown,
        ),
        *(read.client.bootstrap_servers, read.client.isolation_level),
    )


PLAIN: Final = read_of({})


@examples(300)
@given(option=st.sampled_from(list(given_options())), change=st.sampled_from([str, str.lower, str.upper, str.title]))
def test_no_option_of_a_table_changes_which_records_are_read(
    option: tuple[str, str], change: Callable[[str], str]
) -> None:
    name, value = option
    read = read_of({change(name): value})
    assert PLAIN is not None
    assert read is None or records_of(read) == records_of(PLAIN)
