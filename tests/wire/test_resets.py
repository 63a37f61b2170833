"""A scripted session on a real broker, reset at byte after byte of what either side says, or slowed down.

Handshake, metadata, ListOffsets, Produce and Fetch. `make resets` tries every byte, `make test` a sample of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.errors import WireError
from pykafka_wire.wire.produce.producer import Producer
from tests.wire.cutting_proxy import CuttingProxy
from tests.wire.test_producer import encode, numbered, read, settings_of

pytestmark = pytest.mark.broker

#: Of the sample, in bytes: a prime, so that it meets lengths, headers and bodies.
STEP = 101
#: A session takes some 20 ms, and a reset one backoff more; the rest is for slow machines.
MAX_S = 15.0


@pytest.fixture
def session(kafka: Any, topic: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`session(arm)`: what a session behind a proxy armed by `arm` wrote and read, and the proxy."""
    name = topic(partitions=1)
    host, _, port = kafka.bootstrap_servers.split(",")[0].rpartition(":")
    proxy = CuttingProxy(host, int(port))
    n_written = 0

    def run(arm: Callable[[CuttingProxy], None] = lambda proxy: None, **options: object) -> None:
        nonlocal n_written
        arm(proxy)
        cluster = Cluster(settings_of(kafka, retry_backoff_ms=5, reconnect_backoff_ms=5, **options))
        try:
            producer = Producer(cluster)
            producer.append(name, 0, encode(numbered(n_written, n_written + 1, size=20)))
            producer.flush()
            # What was resent is there once, in its place. Its own record alone: no session is longer than the one before.
            assert read(cluster, name, start_offset=n_written) == numbered(n_written, n_written + 1, size=20)
            n_written += 1
        finally:
            cluster.close()

    with proxy:
        proxy.stand_between(monkeypatch)
        run.proxy = proxy  # type: ignore[attr-defined]
        yield run


def resets(session: Any, step: int) -> dict[str, int]:
    """How sessions end that are reset after every `step`-th byte of the client's, and of the broker's."""
    proxy: CuttingProxy = session.proxy
    outcomes = {"right": 0}
    session()  # the first producer id of a cluster is waited for
    for cut_after in (proxy.cut_request_after, proxy.cut_response_after):
        for at in count(0, step):
            n_cuts = proxy.n_cuts
            started = time.monotonic()
            try:
                session(lambda proxy, cut=cut_after, at=at: cut(at))
            except WireError as error:
                outcomes[type(error).__name__] = outcomes.get(type(error).__name__, 0) + 1
            else:
                outcomes["right"] += 1
            assert time.monotonic() - started < MAX_S, at
            if proxy.n_cuts == n_cuts:  # the session was over before that byte
                break
        assert at > 400
        proxy.disarm()
    return outcomes


def test_a_session_reset_at_a_sample_of_bytes_is_gone_on_with(session: Any) -> None:
    assert set(resets(session, STEP)) == {"right"}


@pytest.mark.long
@pytest.mark.timeout(3 * 3600)
def test_a_session_reset_at_every_byte_is_gone_on_with(session: Any) -> None:
    outcomes = resets(session, 1)
    print(f"\n{sum(outcomes.values()):,} sessions, each reset at another byte: {outcomes}")
    assert set(outcomes) == {"right"}


def test_responses_that_stop_in_the_middle_end_in_time(session: Any) -> None:
    """Half-open: the connection stands, and nothing comes any more."""
    for at in (2, 60, 400):
        started = time.monotonic()
        session(lambda proxy, at=at: proxy.stall_response_after(at), request_timeout_ms=700)
        assert time.monotonic() - started < MAX_S
