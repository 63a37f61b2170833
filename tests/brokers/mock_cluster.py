"""librdkafka's mock cluster: brokers in this process, of the library that confluent-kafka brings.

confluent-kafka has no Python interface to it beyond ``test.mock.num.brokers``, so the library's public functions
(rdkafka_mock.h) are called by ctypes.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from pykafka_wire.local import NamedCluster

_PRODUCER: Final = 0
_OK: Final = 0


class MockCluster(NamedCluster):
    """A running mock cluster."""

    def __init__(self, library: ctypes.CDLL, cluster: ctypes.c_void_p) -> None:
        super().__init__(library.rd_kafka_mock_cluster_bootstraps(cluster).decode())
        self._library = library
        self._cluster = cluster

    def create(self, topic: str, partitions: int) -> None:
        """Create a topic; the mock brokers know no CreateTopics."""
        error = self._library.rd_kafka_mock_topic_create(self._cluster, topic.encode(), partitions, 1)
        assert error == _OK, f"librdkafka's error {error} for topic {topic}"

    def push_errors(self, api: int, codes: Sequence[int]) -> None:
        """Respond to the next requests of an API with these error codes, one each; 0 lets one pass."""
        errors = (ctypes.c_int * len(codes))(*codes)
        self._library.rd_kafka_mock_push_request_errors_array(
            self._cluster, ctypes.c_int16(api), ctypes.c_size_t(len(codes)), errors
        )

    def clear_errors(self, api: int) -> None:
        """Forget the errors that are left for an API."""
        self._library.rd_kafka_mock_clear_request_errors(self._cluster, ctypes.c_int16(api))


def _library() -> ctypes.CDLL:
    """librdkafka as confluent-kafka's wheel brings it: loaded already, and found by its file."""
    import confluent_kafka.cimpl

    for file in importlib.metadata.files("confluent-kafka") or ():
        if file.name.startswith("librdkafka"):
            library = ctypes.CDLL(str(file.locate()))
            break
    else:
        library = ctypes.CDLL(confluent_kafka.cimpl.__file__)  # linked into the module
    library.rd_kafka_conf_new.restype = ctypes.c_void_p
    library.rd_kafka_new.restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_new.restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    return library


@contextmanager
def mock_cluster(brokers: int = 1) -> Iterator[MockCluster]:
    """A cluster of its own, on ports that were free; it ends with the block."""
    library = _library()
    reason = ctypes.create_string_buffer(512)
    quiet = ctypes.c_void_p(library.rd_kafka_conf_new())
    library.rd_kafka_conf_set(quiet, b"log_level", b"0", reason, ctypes.c_size_t(len(reason)))
    client = ctypes.c_void_p(library.rd_kafka_new(_PRODUCER, quiet, reason, ctypes.c_size_t(len(reason))))
    assert client.value, reason.value.decode()
    cluster = ctypes.c_void_p(library.rd_kafka_mock_cluster_new(client, brokers))
    try:
        yield MockCluster(library, cluster)
    finally:
        library.rd_kafka_mock_cluster_destroy(cluster)
        library.rd_kafka_destroy(client)
