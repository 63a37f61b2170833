"""A record of an aborted transaction is in no table. A record behind an open transaction is landed when the transaction ends."""

from __future__ import annotations

import json
import random
import uuid
from typing import Final

import pytest
from confluent_kafka import Producer

from pykafka_wire.ingest import Table
from pykafka_wire.ingest.proof.verification import verify
from tests.connector.ingest.conftest import Shop
from tests.connector.ingest.laws.generated import FACTOR

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600)]

_MODES: Final = {"append": {}, "upsert": {"key_format": "string"}}
_N_TOPICS: Final = 10 if FACTOR else 1


class _Written:
    """A topic that transactions write to, and the values by key that each committed transaction has set, in order."""

    def __init__(self, servers: str, topic: str, make: random.Random) -> None:
        self.topic = topic
        self.committed: list[tuple[str, int]] = []
        self._make = make
        self._open: list[tuple[str, int]] = []
        self._n = 0
        self._producer = Producer({"bootstrap.servers": servers, "transactional.id": f"{topic}-{uuid.uuid4().hex[:6]}"})
        self._producer.init_transactions(60)

    def begin(self) -> None:
        self._producer.begin_transaction()
        for _ in range(self._make.randint(1, 4)):
            key, self._n = self._make.choice("abc"), self._n + 1
            value = json.dumps({"id": key, "n": self._n}).encode()
            self._producer.produce(self.topic, key=key, value=value, partition=0)
            self._open.append((key, self._n))
        self._producer.flush(60)

    def end(self) -> None:
        if self._make.random() < 0.5:
            self._producer.commit_transaction(60)
            self.committed += self._open
        else:
            self._producer.abort_transaction(60)
        self._open = []

    def rows(self, mode: str) -> list[tuple[str, int]]:
        return sorted(self.committed if mode == "append" else dict(self.committed).items())


def test_only_committed_records_are_landed(shop: Shop) -> None:
    """While the first run lands the topics, each has an open transaction at its end."""
    topics = {}
    for mode in _MODES:
        for seed in range(_N_TOPICS):
            name = f"{mode}{seed}"
            shop.create(name, partitions=1)
            written = topics[name] = _Written(shop.outside.servers, f"{shop.prefix}.{name}", random.Random(seed))
            for _ in range(4):
                written.begin()
                written.end()
            written.begin()
    tables = [
        Table(topic=rf".*\.{mode}\d+", format="json", mode=mode, schema="id STRING, n INT", **settings)
        for mode, settings in _MODES.items()
    ]

    def check() -> None:
        ingest = shop.run(registry=None, tables=tables)
        assert {status.error for status in ingest.statuses.values()} <= {None}
        for name, written in topics.items():
            if written.committed:
                assert shop.rows(name, "id", "n") == written.rows(name.rstrip("0123456789")), name
        every = [written.topic for written in topics.values() if written.committed]
        assert all(proof.is_right for proof in verify(shop.spark, ingest.settings, every))

    check()
    for written in topics.values():
        written.end()
    check()
