"""What Spark gets of an error: no frames of this package, no chain, the sentence once; all of it in the log."""

from __future__ import annotations

import logging
import pickle
import socket
import traceback
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from pykafka_wire import PykafkaWireDataSource
from pykafka_wire.concise_errors import _CALLED_BY_SPARK, with_concise_errors
from pykafka_wire.errors import OptionError
from pykafka_wire.sink.writer import KafkaBatchWriter, KafkaStreamWriter
from pykafka_wire.source.batch_reader import KafkaBatchReader
from pykafka_wire.source.stream_reader import KafkaStreamReader
from pykafka_wire.wire.errors import NoBrokerAvailableError, SettingsError


@with_concise_errors
class CalledBySpark:
    def __init__(self, error: Exception) -> None:
        self._error = error

    def partitions(self) -> None:
        try:
            raise KeyError("first")
        except KeyError as first:
            raise self._error from first

    def read(self) -> Iterator[int]:
        yield 1
        self.partitions()

    def other(self) -> None:
        raise self._error


def printed(error: BaseException) -> str:
    return "".join(traceback.format_exception(type(error), error, error.__traceback__))


@pytest.mark.parametrize(
    "error", [OptionError("no such option"), NoBrokerAvailableError("no broker")], ids=["ours", "wire"]
)
def test_spark_gets_the_sentence_of_an_error_and_no_frames_of_what_it_came_from(error: Exception, caplog: Any) -> None:
    caplog.set_level(logging.DEBUG, "pykafka_wire.concise_errors")
    source = CalledBySpark(error)
    with pytest.raises(type(error)) as raised:
        source.partitions()
    text = printed(raised.value)
    sentence = (
        str(error).replace("bootstrap.servers", "kafka.bootstrap.servers").replace("security.p", "kafka.security.p")
    )
    assert text.count(sentence) == 1 and text.rstrip().endswith(sentence)
    assert "first" not in text and "self._error" not in text
    assert text.count("concise_errors.py") == 2, "this test, and the one frame that Python cannot do without"
    assert "KeyError: 'first'" in caplog.text and "self._error" in caplog.text
    rows = source.read()
    assert next(rows) == 1
    with pytest.raises(type(error)) as raised:
        next(rows)
    assert "self.partitions()" not in printed(raised.value)
    assert pickle.loads(pickle.dumps(raised.value)).args == error.args


def test_spark_gets_a_setting_by_the_name_that_the_option_has() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        options = {
            "kafka.bootstrap.servers": f"127.0.0.1:{listener.getsockname()[1]}",
            "kafka.security.protocol": "SSL",
            "kafka.ssl.truststore.location": "/no/ssl.pem",
            "subscribe": "orders",
        }
        source = PykafkaWireDataSource(options)
        with pytest.raises(SettingsError) as raised:
            source.reader(StructType([StructField("value", BinaryType())])).partitions()
    assert "] kafka.ssl.truststore.location (/no/ssl.pem) cannot be read: No such file" in str(raised.value)


def test_spark_gets_a_defect_with_all_that_led_to_it() -> None:
    with pytest.raises(TypeError) as raised:
        CalledBySpark(TypeError("a defect")).partitions()
    assert "self._error" in printed(raised.value) and "first" in printed(raised.value)
    with pytest.raises(OptionError) as concise:
        CalledBySpark(OptionError("x")).other()
    assert "self._error" in printed(concise.value), "no method that Spark calls"


def test_every_class_that_spark_calls_has_concise_errors() -> None:
    for cls in (PykafkaWireDataSource, KafkaBatchReader, KafkaStreamReader, KafkaBatchWriter, KafkaStreamWriter):
        own = [name for name in vars(cls) if name in _CALLED_BY_SPARK]
        assert own and all(hasattr(vars(cls)[name], "__wrapped__") for name in own), cls
