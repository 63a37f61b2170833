"""Options of a read or write parsed, and the text of the error where they are rejected."""

from __future__ import annotations

from typing import Any

import pytest

from pykafka_wire.errors import OptionError
from pykafka_wire.options.sink import parse_sink_options
from pykafka_wire.options.source import SourceOptions, parse_source_options

BROKERS = {"kafka.bootstrap.servers": "localhost:9092"}
ORDERS = BROKERS | {"subscribe": "orders"}


def batch(**options: str) -> SourceOptions:
    return parse_source_options(ORDERS | options, "batch")


def stream(**options: str) -> SourceOptions:
    return parse_source_options(ORDERS | options, "stream")


def refusal(options: dict[str, str], mode: Any = "stream") -> str:
    with pytest.raises(OptionError) as raised:
        parse_sink_options(options) if mode == "sink" else parse_source_options(options, mode)
    text = str(raised.value)
    assert text.startswith("[PYKAFKA_WIRE_OPTION] ")
    return text
