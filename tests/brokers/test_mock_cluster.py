"""librdkafka's mock cluster, which needs nothing but confluent-kafka: where it differs from Apache Kafka, and faults."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.errors import BrokerError
from pykafka_wire.wire.protocol.messages.fetch import FetchRequest
from pykafka_wire.wire.protocol.messages.group_offsets import OffsetCommitRequest
from pykafka_wire.wire.protocol.messages.list_offsets import ListOffsetsRequest
from pykafka_wire.wire.protocol.messages.metadata import MetadataRequest
from pykafka_wire.wire.protocol.messages.produce import InitProducerIdRequest, ProduceRequest
from pykafka_wire.wire.settings import ClientSettings
from tests.brokers.mock_cluster import MockCluster, mock_cluster
from tests.brokers.sessions import PARTITIONS, SHORT, commit, fill, read_back, write

#: The code that the first requests get; two that ask for new metadata, two that do not.
FAULTS: Final = {
    MetadataRequest: [5, 0, 5],  # LEADER_NOT_AVAILABLE
    InitProducerIdRequest: [15, 14],  # COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS
    ProduceRequest: [6, 0, 19, 7],  # NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, REQUEST_TIMED_OUT
    ListOffsetsRequest: [6, 0, 78],  # OFFSET_NOT_AVAILABLE
    FetchRequest: [6, 0, 0, 75, 56],  # UNKNOWN_LEADER_EPOCH, KAFKA_STORAGE_ERROR
    OffsetCommitRequest: [16, 0, 14],  # NOT_COORDINATOR
}
CLUSTER_AUTHORIZATION_FAILED: Final = 31


@pytest.fixture(scope="module")
def mock() -> Iterator[MockCluster]:
    with mock_cluster(3) as brokers:
        yield brokers


def test_sessions_lose_and_double_nothing_under_retriable_errors(mock: MockCluster) -> None:
    settings = ClientSettings.from_options({**SHORT, "bootstrap.servers": mock.bootstrap_servers})
    with Cluster(settings) as observer:
        for name in ("written", "read", "committed"):
            mock.create(name, PARTITIONS)
        fill(observer, "read")
        for api, codes in FAULTS.items():
            mock.push_errors(api.api_key, codes)
        write(settings, observer, "written")
        read_back(settings, observer, "read")
        commit(settings, observer, "committed")


def test_a_fatal_error_is_raised_with_its_code(mock: MockCluster) -> None:
    settings = ClientSettings.from_options({**SHORT, "bootstrap.servers": mock.bootstrap_servers})
    mock.create("refused", PARTITIONS)
    mock.push_errors(ProduceRequest.api_key, [CLUSTER_AUTHORIZATION_FAILED])
    with Cluster(settings) as cluster, pytest.raises(BrokerError, match="CLUSTER_AUTHORIZATION_FAILED"):
        fill(cluster, "refused")
    mock.clear_errors(ProduceRequest.api_key)
