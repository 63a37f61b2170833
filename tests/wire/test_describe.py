"""What each broker responds about topics: brokers that lag behind respond for themselves, and those that are gone are left out."""

from __future__ import annotations

import pytest

from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.describe import topics_by_broker
from pykafka_wire.wire.cluster.metadata_cache import TopicMetadata
from pykafka_wire.wire.errors import TransportError, UnknownTopicError
from pykafka_wire.wire.settings import ClientSettings
from tests.wire.fake_broker import FakeBroker


def test_each_broker_responds_for_itself_and_one_that_is_gone_is_left_out() -> None:
    with FakeBroker(1) as knows, FakeBroker(2) as lags, FakeBroker(3) as gone:
        brokers = {1: knows, 2: lags, 3: gone}
        for broker in brokers.values():
            broker.peers = brokers
        knows.topics = {"t": {0: (1, 4), 1: (2, 4)}}
        gone.close()
        settings = ClientSettings(bootstrap_servers=(("127.0.0.1", knows.port),))
        with Cluster(settings) as cluster:
            found = topics_by_broker(cluster, [3, 1, 2], ["t"], broker_ms=2_000)  # 3 takes no time from the others
            assert found.keys() == {1, 2}
            described, missing = found[1]["t"], found[2]["t"]
            assert isinstance(described, TopicMetadata) and list(described.partitions) == [0, 1]
            assert isinstance(missing, UnknownTopicError) and (missing.topic, missing.broker) == ("t", 2)
            with pytest.raises(TransportError):
                topics_by_broker(cluster, [3], ["t"], broker_ms=500)
