from __future__ import annotations

import ast
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pykafka_wire.wire import errors
from pykafka_wire.wire.errors import (
    BrokerError,
    NoBrokerAvailableError,
    OffsetOutOfRangeError,
    ProtocolError,
    RecordTooLargeError,
    SettingsError,
    TopicRecreatedError,
    TransportError,
    UnknownTopicError,
    WireError,
    broker_error,
)
from pykafka_wire.wire.settings import SETTINGS

_WIRE = Path(__file__).parents[2] / "wire"
_SETTING = re.compile(
    rf"(?<![\w.{{])(?:{'|'.join(re.escape(setting.name) for setting in SETTINGS if '.' in setting.name)})(?![\w}}]|\.\w)"
)


def subclasses(cls: type[WireError]) -> list[type[WireError]]:
    return [cls, *(below for sub in cls.__subclasses__() for below in subclasses(sub))]


@pytest.mark.parametrize(
    ("code", "cls"),
    [
        (1, OffsetOutOfRangeError),
        (3, UnknownTopicError),
        (100, UnknownTopicError),
        (10, RecordTooLargeError),
        (7, BrokerError),
    ],
)
def test_a_code_becomes_its_own_class(code: int, cls: type[BrokerError]) -> None:
    assert type(broker_error(code)) is cls


def test_a_broker_error_says_what_where_and_the_remedy() -> None:
    error = broker_error(
        10, topic="orders", partition=3, offset=12, broker=1, api="Produce", version=9, detail="1048588 bytes"
    )
    assert str(error) == (
        "[PYKAFKA_WIRE_RECORD_TOO_LARGE] "
        "MESSAGE_TOO_LARGE (error 10): A record batch is larger than the broker accepts. 1048588 bytes "
        "[orders-3, offset 12, broker 1, Produce v9] Lower batch.size, or raise the topic's max.message.bytes."
    )
    assert (error.topic, error.partition, error.offset, error.broker, error.api, error.version) == (
        "orders",
        3,
        12,
        1,
        "Produce",
        9,
    )
    assert broker_error(7, detail=None).detail == ""


def test_no_broker_names_each_address_and_why() -> None:
    error = NoBrokerAvailableError(
        attempts=(("127.0.0.1:1", "connection refused"), ("b:2", "timed out")), remedy="Look."
    )
    assert error.text == "no broker is available: 127.0.0.1:1: connection refused; b:2: timed out. Look."
    assert str(error) == f"[PYKAFKA_WIRE_NO_BROKER_AVAILABLE] {error.text}"
    assert error.retriable


@pytest.mark.parametrize(
    "error",
    [
        WireError("x"),
        ProtocolError("x", api="Fetch", version=3, broker="b:1"),
        TransportError("x", broker=1, remedy="y"),
        NoBrokerAvailableError(attempts=(("a", "b"),)),
        SettingsError("{setting} is {value}", setting="acks", remedy="See {retries}.", prefix="kafka.", value=1),
        TopicRecreatedError("x", topic="t", expected_id="1", found_id="2"),
        broker_error(3, topic="t", partition=0, detail="d"),
        broker_error(4242),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_survive_pickling_with_all_their_attributes(error: WireError) -> None:
    error.add_note("noted") if hasattr(error, "add_note") else None
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert (copy.args, copy.retriable, vars(copy)) == (error.args, error.retriable, vars(error))


def test_a_remedy_names_settings_as_the_user_writes_them() -> None:
    error = broker_error(10, topic="orders").with_prefix("kafka.")
    assert str(error).endswith("[orders] Lower kafka.batch.size, or raise the topic's max.message.bytes.")
    assert type(error) is RecordTooLargeError and str(pickle.loads(pickle.dumps(error))) == str(error)
    assert str(error.with_prefix("")) == str(broker_error(10, topic="orders"))
    outer = TransportError("gone", remedy=f"Last cause: {NoBrokerAvailableError().sentence}").with_prefix("kafka.")
    assert "Last cause: [PYKAFKA_WIRE_NO_BROKER_AVAILABLE] no broker is available. Check kafka.bootstrap.s" in str(
        outer
    )


def _texts_of_remedies(path: Path) -> Iterator[ast.Constant]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        values: list[ast.expr | None] = []
        if isinstance(node, ast.keyword) and node.arg == "remedy":
            values = [node.value]
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            values = [node.value] if any("remed" in ast.unparse(target).lower() for target in targets) else []
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "_Row":
            values = list(node.args[5:])
        for value in filter(None, values):
            yield from (
                part for part in ast.walk(value) if isinstance(part, ast.Constant) and isinstance(part.value, str)
            )


def test_each_setting_in_a_remedy_stands_in_braces() -> None:
    texts = [(path, text) for path in _WIRE.rglob("*.py") for text in _texts_of_remedies(path)]
    assert len(texts) > 100
    # An option of a login module has no prefix.
    bare = [
        (path, text) for path, text in texts if _SETTING.search(text.value) and "in the JAAS line" not in text.value
    ]
    assert [f"{path}:{text.lineno} {text.value}" for path, text in bare] == []


def test_every_class_is_of_the_one_hierarchy() -> None:
    classes = [cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, Exception)]
    assert set(classes) <= set(subclasses(WireError))
    assert len(classes) > 10
