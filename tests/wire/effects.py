"""What rows of tests/wire/test_setting_effects.py are made with: the rig, and the register of rows."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pykafka_wire.wire import RecordProducer, WireError
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.settings import ClientSettings
from tests.wire.secured import Secured

TIMEOUT_S = 60.0


class Rig:
    """The secured broker, of which most rows use the plain listener, a topic, and the trace of what a row does."""

    def __init__(self, secured: Secured, folder: Path, topic: Callable[..., str]) -> None:
        self.secured = secured
        self.path = folder / "trace"
        self._make_topic = topic
        self._clients: list[Any] = []

    def topic(self, partitions: int = 1) -> str:
        return self._make_topic(partitions, cluster=self.secured.cluster)

    def settings(self, options: dict[str, str], listener: str = "") -> ClientSettings:
        base = {"bootstrap.servers": self.secured.cluster.bootstrap_servers, "trace": str(self.path)}
        if listener:
            base |= self.secured.options(listener)
        return ClientSettings.from_options(base | options)

    def make(self, kind: Callable[[ClientSettings], Any], options: dict[str, str], listener: str = "") -> Any:
        """A client, closed when the row ends."""
        self._clients.append(kind(self.settings(options, listener)))
        return self._clients[-1]

    def cluster(self, options: dict[str, str], listener: str = "") -> Cluster:
        made: Cluster = self.make(Cluster, options, listener)
        return made

    def trace(self, part: str) -> list[str]:
        """The lines of the trace with this part, so far."""
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return [line for line in lines if part in line]

    def write(self, options: dict[str, str], topic: str, values: list[bytes], key: bytes | None = None) -> None:
        producer = self.make(RecordProducer, options)
        for value in values:
            producer.send(topic, value, key=key)
        producer.flush()

    def log(self, topic: str, partition: int = 0) -> Path:
        """The segment of a topic-partition on the broker's disk."""
        (found,) = self.secured.cluster.folder.rglob(f"{topic}-{partition}/*.log")
        return found

    def refused(self, options: dict[str, str], listener: str = "") -> WireError:
        with pytest.raises(WireError) as caught:
            self.cluster(options, listener).metadata.brokers()
        return caught.value

    def close(self) -> None:
        for each in self._clients:
            each.close()
        self._clients.clear()


Row = Callable[[Rig, str], None]
ROWS: dict[str, Row] = {}


def row(name: str) -> Callable[[Row], Row]:
    def add(function: Row) -> Row:
        ROWS[name] = function
        return function

    return add


def seconds(act: Callable[[], object]) -> float:
    started = time.monotonic()
    act()
    return time.monotonic() - started
