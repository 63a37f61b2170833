"""What tasks of one process share, and what happens to it when a process forks or ends."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from typing import Any

import pytest

from pykafka_wire.wire import process_clients
from pykafka_wire.wire.process_clients import shared_cluster, shared_producer
from pykafka_wire.wire.settings import ClientSettings
from tests.wire.fake_broker import FakeBroker
from tests.wire.test_producer import encode, numbered, read, settings_of


def test_equal_settings_share_a_cluster_and_other_credentials_do_not() -> None:
    def settings(password: str) -> ClientSettings:
        return ClientSettings(bootstrap_servers=(("h", 1),), sasl_username="u", sasl_password=password)

    first = shared_cluster(settings("one"))
    assert shared_cluster(settings("one")) is first
    assert shared_cluster(settings("two")) is not first


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_shares_no_cluster_with_its_parent() -> None:
    settings = ClientSettings(bootstrap_servers=(("h", 2),))
    parents = shared_cluster(settings)
    pid = os.fork()
    if pid == 0:
        os._exit(1 if shared_cluster(settings) is parents else 0)
    assert os.waitpid(pid, 0)[1] == 0


#: Exit handlers run in reverse: the first one sees what all others have left.
LEAVES_NOTHING_OPEN = """
import atexit, gc, socket, sys

def tell():
    print([each.getpeername() for each in gc.get_objects() if isinstance(each, socket.socket) and each.fileno() >= 0])

atexit.register(tell)

from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.process_clients import shared_cluster

cluster = shared_cluster(ClientSettings.from_options({"bootstrap.servers": sys.argv[1]}))
print(sorted(cluster.metadata.topics(["t"])))
"""


def test_a_process_that_ends_closes_its_connections() -> None:
    with FakeBroker() as broker:
        broker.topics = {"t": {0: (1, 0)}}
        command = [sys.executable, "-c", LEAVES_NOTHING_OPEN, broker.address]
        ended = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    assert ended.stdout.splitlines() == ["['t']", "[]"]


def test_a_process_keeps_one_producer_for_its_tasks_and_replaces_a_failed_one(kafka: Any, topic: Any) -> None:
    name = topic(partitions=1)
    settings = settings_of(kafka, client_id="shared")
    with shared_producer(settings) as first:
        first.append(name, 0, encode(numbered(0, 10)))
        first.flush()
        identity = first.identity
    with shared_producer(settings) as second:
        assert second is first
        assert second.identity == identity
        with shared_producer(settings) as other:  # another task at the same time gets its own
            assert other is not first
    with pytest.raises(ZeroDivisionError), shared_producer(settings) as third:
        third.append(name, 0, encode(numbered(0, 10)))
        raise ZeroDivisionError
    with shared_producer(settings) as fourth:
        assert fourth.clean
        assert fourth.identity is None
        fourth.append(name, 0, encode(numbered(10, 20)))
        fourth.flush()
        assert fourth.identity != identity
        assert read(shared_cluster(settings), name)[-10:] == numbered(10, 20)


def identity_in_child(settings: ClientSettings, name: str, results: Any) -> None:
    with shared_producer(settings) as producer:
        producer.append(name, 0, encode(numbered(0, 10)))
        producer.flush()
        results.put(producer.identity)


def test_a_forked_process_does_not_go_on_with_its_parents_sequences(kafka: Any, topic: Any) -> None:
    name = topic(partitions=1)
    settings = settings_of(kafka, client_id="forked")
    with shared_producer(settings) as producer:
        producer.append(name, 0, encode(numbered(0, 10)))
        producer.flush()
        identity = producer.identity
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=identity_in_child, args=(settings, name, results))
    with process_clients._lock:  # as another thread may hold it at that moment
        child.start()
    identity_of_child = results.get(timeout=30)
    child.join(30)
    assert child.exitcode == 0
    assert identity_of_child not in (None, identity)
    with shared_producer(settings) as producer:
        producer.append(name, 0, encode(numbered(10, 20)))
        producer.flush()
    assert read(shared_cluster(settings), name) == numbered(0, 10) + numbered(0, 10) + numbered(10, 20)
