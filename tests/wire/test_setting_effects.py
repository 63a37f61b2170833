"""What each setting does, seen from outside: on a real broker, in the trace, or as an error. A row for every name there is.

The brokers' view counts where there is one (their logs on disk, what a group's description says); next to it stand the
requests of the trace, beside those of the same action at the defaults.
"""

from __future__ import annotations

import random
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from pykafka_wire.errors import OptionError
from pykafka_wire.options.sink import parse_sink_options
from pykafka_wire.wire import Consumer, TopicPartition, WireError
from pykafka_wire.wire.cluster.admin import EARLIEST, list_offsets
from pykafka_wire.wire.cluster.describe import list_groups
from pykafka_wire.wire.errors import CorruptBatchError, SettingsError
from pykafka_wire.wire.settings import SETTINGS
from tests.wire import test_bootstrap, test_kerberos, test_produce_faults, test_producer, test_security
from tests.wire.effects import ROWS, TIMEOUT_S, Rig, row, seconds
from tests.wire.secured import Secured
from tests.wire.security_effects import authenticate
from tests.wire.setting_actions import (
    batch_sizes,
    buffer_of,
    commits,
    join,
    join_by_heartbeat,
    n_failed_connections,
    n_failed_lookups,
    opened,
    polled,
    read,
    sent_unasked,
    transact,
    uses_both_partitions,
    write,
)


@pytest.fixture
def rig(secured_kafka: Secured, tmp_path: Path, topic: Any) -> Iterator[Rig]:
    made = Rig(secured_kafka, tmp_path, topic)
    yield made
    made.close()


@pytest.fixture(scope="module")
def silent() -> Iterator[str]:
    """The address of somebody who takes connections and says nothing."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


#: Name -> value, action, and what the trace has with it and at the defaults has not.
IN_THE_TRACE: dict[str, tuple[str, Callable[[Rig, dict[str, str]], None], str]] = {
    "client.rack": ("r7", read, "rack_id=r7"),
    "request.timeout.ms": ("4711", write, " timeout_ms=4711"),
    "fetch.max.bytes": ("99001", read, " max_bytes=99001"),
    "fetch.max.wait.ms": ("47", read, "max_wait_ms=47 "),
    "max.partition.fetch.bytes": ("99002", read, "partition_max_bytes=99002"),
    "isolation.level": ("read_committed", read, "isolation_level=1"),
    "acks": ("1", write, "acks=1"),
    "transaction.timeout.ms": ("4714", transact, "transaction_timeout_ms=4714"),
    "group.id": ("a-group-of-my-own", join, "group_id=a-group-of-my-own"),
    "group.instance.id": ("me", join, "group_instance_id=me"),
    "group.remote.assignor": ("range", join_by_heartbeat, "server_assignor=range"),
    "session.timeout.ms": ("7411", join, "session_timeout_ms=7411"),
    "max.poll.interval.ms": ("7412", join, "rebalance_timeout_ms=7412"),
    "partition.assignment.strategy": ("roundrobin", join, "name=roundrobin"),
    "sasl.mechanism": ("SCRAM-SHA-512", authenticate, "mechanism=SCRAM-SHA-512"),
}


#: What a row needs of its broker.
NEEDS = dict.fromkeys(("group.protocol", "group.remote.assignor"), "consumer protocol of KIP-848")


def with_needs(names: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.needs(NEEDS[name])) if name in NEEDS else name for name in names]


@pytest.fixture(scope="module")
def known_at_the_defaults() -> dict[Any, str]:
    """The traces of actions at the defaults, each of which is done once."""
    return {}


@pytest.fixture
def at_the_defaults(
    secured_kafka: Secured, tmp_path_factory: pytest.TempPathFactory, known_at_the_defaults: dict[Any, str]
) -> Callable[[Any, Any], str]:
    known = known_at_the_defaults

    def text(action: Callable[[Rig, dict[str, str]], None], topic: Any) -> str:
        if action not in known:
            rig = Rig(secured_kafka, tmp_path_factory.mktemp("defaults"), topic)
            action(rig, {})
            rig.close()
            known[action] = rig.path.read_text()
        return known[action]

    return text


@pytest.mark.parametrize("name", with_needs(IN_THE_TRACE))
def test_a_setting_that_a_request_carries(rig: Rig, name: str, at_the_defaults: Any, topic: Any) -> None:
    value, action, part = IN_THE_TRACE[name]
    action(rig, {name: value})
    assert rig.trace(part)
    assert part not in at_the_defaults(action, topic)


# --- what else is seen, a function each -------------------------------------------------------------------------------


@row("bootstrap.servers")
def _(rig: Rig, silent: str) -> None:
    assert rig.cluster({}).metadata.brokers()
    assert silent in str(rig.refused({"bootstrap.servers": silent, "default.api.timeout.ms": "200"}))


@row("client.id")
def _(rig: Rig, silent: str) -> None:
    join(rig, {"client.id": "who-am-i", "group.id": (group := uuid.uuid4().hex)})
    admin = AdminClient({"bootstrap.servers": rig.secured.cluster.bootstrap_servers})
    (member,) = admin.describe_consumer_groups([group])[group].result(TIMEOUT_S).members
    assert member.client_id == "who-am-i"


@row("group.protocol")
def _(rig: Rig, silent: str) -> None:
    for options, kind in (({}, "Classic"), ({"group.protocol": "consumer"}, "Consumer")):
        join(rig, {"group.id": (group := uuid.uuid4().hex), **options})
        assert [each.kind for each in list_groups(rig.cluster({})) if each.name == group] == [kind]


@row("security.protocol")
def _(rig: Rig, silent: str) -> None:
    assert rig.cluster({}, "TLS").metadata.brokers()
    assert "security.protocol" in str(
        rig.refused({"security.protocol": "PLAINTEXT", "default.api.timeout.ms": "500"}, "TLS")
    )


@row("default.api.timeout.ms")
def _(rig: Rig, silent: str) -> None:
    assert seconds(lambda: rig.refused({"bootstrap.servers": silent, "default.api.timeout.ms": "200"})) < 3


@row("socket.connection.setup.timeout.ms")
def _(rig: Rig, silent: str) -> None:
    # Default 4 s, as is the time that a first contact has at least.
    assert seconds(lambda: opened(rig, {"socket.connection.setup.timeout.ms": "100"}, silent)) < 3


@row("connections.max.idle.ms")
def _(rig: Rig, silent: str) -> None:
    def connections(idle_ms: str) -> int:
        cluster = rig.cluster({"connections.max.idle.ms": idle_ms})
        cluster.metadata.brokers()
        before = len(rig.trace("== connected"))
        time.sleep(0.01)  # idle for longer than 1 ms
        cluster.metadata.topics(None)
        return len(rig.trace("== connected")) - before

    assert connections("-1") == 0
    assert connections("1") == 1


@row("metadata.max.age.ms")
def _(rig: Rig, silent: str) -> None:
    tp = TopicPartition(rig.topic(), 0)

    def asked(age_ms: str) -> int:
        cluster = rig.cluster({"metadata.max.age.ms": age_ms})
        cluster.metadata.leader(tp)
        before = len(rig.trace("-> Metadata"))
        cluster.metadata.leader(tp)
        return len(rig.trace("-> Metadata")) - before

    assert asked("300000") == 0
    assert asked("0") == 1


@row("retry.backoff.ms")
def _(rig: Rig, silent: str) -> None:
    assert n_failed_lookups(rig, {"retry.backoff.ms": "1500", "retry.backoff.max.ms": "1500"}) <= 2
    assert n_failed_lookups(rig, {"retry.backoff.ms": "20", "retry.backoff.max.ms": "100"}) > 3


@row("retry.backoff.max.ms")
def _(rig: Rig, silent: str) -> None:
    assert n_failed_lookups(rig, {"retry.backoff.ms": "40000", "retry.backoff.max.ms": "40000"}) == 1
    assert n_failed_lookups(rig, {"retry.backoff.ms": "40000", "retry.backoff.max.ms": "20"}) > 1


@row("reconnect.backoff.ms")
def _(rig: Rig, silent: str) -> None:
    assert n_failed_connections(rig, {"reconnect.backoff.ms": "40000", "reconnect.backoff.max.ms": "40000"}) == 1
    assert n_failed_connections(rig, {"reconnect.backoff.ms": "1", "reconnect.backoff.max.ms": "100"}) > 3


@row("reconnect.backoff.max.ms")
def _(rig: Rig, silent: str) -> None:
    assert n_failed_connections(rig, {"reconnect.backoff.ms": "40000", "reconnect.backoff.max.ms": "1"}) > 3


@row("receive.buffer.bytes")
def _(rig: Rig, silent: str) -> None:
    assert buffer_of(rig, {"receive.buffer.bytes": "20000"}, socket.SO_RCVBUF) in (20_000, 40_000)  # Linux doubles it


@row("send.buffer.bytes")
def _(rig: Rig, silent: str) -> None:
    assert buffer_of(rig, {"send.buffer.bytes": "20000"}, socket.SO_SNDBUF) in (20_000, 40_000)


@row("check.crcs")
def _(rig: Rig, silent: str) -> None:
    topic = rig.topic()
    rig.write({}, topic, [b"as it was written"])
    log = rig.log(topic)
    content = log.read_bytes()
    with log.open("r+b") as file:
        file.seek(content.index(b"as it was"))
        file.write(b"so")
    consumer = rig.make(Consumer, {"check.crcs": "false"})
    consumer.assign({TopicPartition(topic, 0): 0})
    assert [record.value for record in polled(consumer)] == [b"so it was written"]
    consumer = rig.make(Consumer, {})
    consumer.assign({TopicPartition(topic, 0): 0})
    with pytest.raises(CorruptBatchError, match="CRC"):
        polled(consumer)


@row("compression.type")
def _(rig: Rig, silent: str) -> None:
    for codec, name in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        topic = rig.topic()
        rig.write({"compression.type": name}, topic, [b"a" * 1000])
        assert rig.log(topic).read_bytes()[22] & 7 == codec  # the attributes' low byte


def level_row(codec: str, low: int, high: int) -> None:
    @row(f"compression.{codec}.level")
    def _(rig: Rig, silent: str) -> None:
        words = [b"%d" % number for number in range(500)]
        values = [b" ".join(random.Random(4711).choices(words, k=20_000))]
        sizes = []
        for level in (low, high):
            topic = rig.topic()
            options = {"compression.type": codec, f"compression.{codec}.level": str(level)}
            rig.write(options, topic, values)
            sizes.append(batch_sizes(rig.log(topic))[0])
        assert sizes[1] < sizes[0]


level_row("gzip", 1, 9)
level_row("lz4", 1, 12)
level_row("zstd", 1, 19)


@row("max.request.size")
def _(rig: Rig, silent: str) -> None:
    with pytest.raises(WireError, match=r"max\.request\.size"):
        rig.write({"max.request.size": "1000"}, rig.topic(), [b"a" * 2000])


@row("batch.size")
def _(rig: Rig, silent: str) -> None:
    values = [b"a" * 100] * 10
    one, many = rig.topic(), rig.topic()
    rig.write({}, one, values)
    rig.write({"batch.size": "100"}, many, values)
    assert (len(batch_sizes(rig.log(one))), len(batch_sizes(rig.log(many)))) == (1, 10)


@row("linger.ms")
def _(rig: Rig, silent: str) -> None:
    assert not sent_unasked(rig, {})
    assert sent_unasked(rig, {"linger.ms": "0"})


@row("buffer.memory")
def _(rig: Rig, silent: str) -> None:
    assert sent_unasked(rig, {"buffer.memory": "100"})


@row("partitioner.class")
def _(rig: Rig, silent: str) -> None:
    assert not uses_both_partitions(rig, {})
    assert uses_both_partitions(rig, {"partitioner.class": "RoundRobinPartitioner"})


@row("partitioner.ignore.keys")
def _(rig: Rig, silent: str) -> None:
    assert not uses_both_partitions(rig, {"batch.size": "16"})
    assert uses_both_partitions(rig, {"batch.size": "16", "partitioner.ignore.keys": "true"})


@row("max.in.flight.requests.per.connection")
def _(rig: Rig, silent: str) -> None:
    def most_in_flight(limit: str) -> int:
        begun = len(rig.trace(" Produce "))
        options = {"max.in.flight.requests.per.connection": limit, "batch.size": "100"}
        rig.write(options, rig.topic(), [b"a" * 100] * 30)
        n, most = 0, 0
        for line in rig.trace(" Produce ")[begun:]:
            n += 1 if "->" in line else -1
            most = max(most, n)
        return most

    assert most_in_flight("1") == 1
    assert 1 < most_in_flight("3") <= 3


@row("enable.idempotence")
def _(rig: Rig, silent: str) -> None:
    write(rig, {"enable.idempotence": "false"})
    assert not rig.trace("InitProducerId")
    write(rig, {})
    assert rig.trace("InitProducerId")


@row("transactional.id")
def _(rig: Rig, silent: str) -> None:
    with pytest.raises(SettingsError, match=r"transactional\.id"):
        rig.write({"transactional.id": "mine"}, rig.topic(), [b"a"])
    # Of the connector's, with whose deliveryGuarantee it counts.
    options = {"kafka.bootstrap.servers": "b:9092", "topic": "t", "kafka.transactional.id": "mine"}
    made = parse_sink_options({**options, "deliveryGuarantee": "exactly-once"}).exactly_once
    assert made is not None
    assert made.transactional_id == "mine"
    with pytest.raises(OptionError, match=r"kafka\.transactional\.id applies only to deliveryGuarantee=exactly-once"):
        parse_sink_options(options)


@row("heartbeat.interval.ms")
def _(rig: Rig, silent: str) -> None:
    # Every 3 s by default: five would take 15 s.
    started = time.monotonic()
    join(rig, {"heartbeat.interval.ms": "20"})
    while len(rig.trace("-> Heartbeat")) < 5:
        assert time.monotonic() - started < 12
        time.sleep(0.01)


@row("auto.offset.reset")
def _(rig: Rig, silent: str) -> None:
    topic = rig.topic()
    rig.write({}, topic, [b"a"])
    positions = []
    for policy in ("earliest", "latest"):
        consumer = rig.make(Consumer, {"auto.offset.reset": policy, "group.id": uuid.uuid4().hex})
        consumer.assign([TopicPartition(topic, 0)])
        positions.append(consumer.position(TopicPartition(topic, 0)))
    assert positions == [0, 1]


@row("enable.auto.commit")
def _(rig: Rig, silent: str) -> None:
    assert commits(rig, {"enable.auto.commit": "false"}) == (False, False)
    assert commits(rig, {}) == (False, True)


@row("auto.commit.interval.ms")
def _(rig: Rig, silent: str) -> None:
    assert commits(rig, {"auto.commit.interval.ms": "0"})[0]


@row("allowed.hosts")
def _(rig: Rig, silent: str) -> None:
    # The user's own address is allowed; the broker calls itself localhost.
    address = rig.secured.cluster.external_bootstrap_servers.replace("localhost", "127.0.0.1")
    topic = rig.topic()
    tp = TopicPartition(topic, 0)
    assert list_offsets(rig.cluster({"bootstrap.servers": address, "allowed.hosts": "local*"}), {tp: EARLIEST})
    with pytest.raises(SettingsError, match=r"advertised as localhost:\d+, which allowed\.hosts"):
        list_offsets(rig.cluster({"bootstrap.servers": address, "allowed.hosts": "*.example.com"}), {tp: EARLIEST})


@row("trace")
def _(rig: Rig, silent: str) -> None:
    rig.cluster({"trace": ""}).metadata.brokers()
    assert not rig.path.exists()
    rig.cluster({}).metadata.brokers()
    assert rig.trace("-> Metadata")


#: Names whose effect another test shows, on the same broker where nothing else is said.
SHOWN_BY: dict[str, Callable[..., None]] = {
    # A broker that names another one afterwards: scripted.
    "metadata.recovery.strategy": test_bootstrap.test_with_recovery_turned_off_they_are_not,
    "metadata.cluster.check.enable": test_bootstrap.test_without_the_check_no_broker_is_asked_who_it_is,
    "metadata.recovery.rebootstrap.trigger.ms": test_bootstrap.test_brokers_that_stay_silent_for_long_are_forgotten,
    # A broker that goes away, and one that keeps refusing.
    "delivery.timeout.ms": test_producer.test_a_delivery_timeout_ends_in_one_error_with_its_cause,
    "retries": test_produce_faults.test_retries_are_counted_and_bounded,
    # Against a KDC: `make test-kerberos`.
    "sasl.kerberos.service.name": test_kerberos.test_another_service_name_is_refused_at_once,
    "ssl.truststore.password": test_security.test_an_authority_in_a_store_of_keytools,
    "ssl.truststore.certificates": test_security.test_an_authority_given_as_a_value,
    "ssl.keystore.password": test_security.test_a_client_certificate_from_pkcs12,
    "ssl.keystore.key": test_security.test_a_client_certificate_as_values_with_an_encrypted_key,
    "ssl.keystore.certificate.chain": test_security.test_a_client_certificate_as_values_with_an_encrypted_key,
    "ssl.key.password": test_security.test_a_client_certificate_as_values_with_an_encrypted_key,
    "ssl.endpoint.identification.algorithm": (
        test_security.test_the_check_of_the_host_name_can_be_given_up_and_that_warns
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", with_needs(ROWS))
def test_a_setting_that_is_seen_otherwise(rig: Rig, name: str, silent: str) -> None:
    ROWS[name](rig, silent)


def test_every_setting_has_its_row_and_no_row_is_of_another_name() -> None:
    rows = [*IN_THE_TRACE, *ROWS, *SHOWN_BY]
    assert len(rows) == len(set(rows))
    assert set(rows) == {setting.name for setting in SETTINGS}
