"""Spark with clouds' credentials: a stream, and a task that reads for longer than a credential lives (`make sign-in`).

The real botocore, azure-identity and google-auth get credentials that live for seconds from stubs of the clouds' endpoints, on the
driver and in the tasks. Nothing that Spark or Python writes contains one.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Producer

from tests.connector.clouds import Clouds, clouds
from tests.connector.searched_program import run_searched
from tests.wire.cloud_stubs import point_here
from tests.wire.range_reads import cluster_of, read, whole
from tests.wire.secured import Secured

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]

PROGRAM: Final = Path(__file__).with_name("sign_in_program.py")
LIFETIME_S: Final = 6.0
SLOW_CLIENT: Final = "slow-reader"
#: A broker looks back on ten seconds: it gives what fits into them at once, and then this much a second. The task fetches for 20 s.
QUOTA_BYTES_S: Final = 200_000
N_SLOW, SLOW_BYTES = 300, 20_000


@contextmanager
def records_kept_coming(producer: Producer, topics: list[str]) -> Iterator[None]:
    """Ten records a second to each topic."""
    stop = threading.Event()

    def produce() -> None:
        number = 0
        while not stop.wait(0.1):
            for topic in topics:
                producer.produce(topic, b"%d" % number, partition=0)
            producer.poll(0)
            number += 1

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        assert producer.flush(60) == 0


def run(folder: Path, made: Clouds, topics: dict[str, dict[str, str]]) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """What the program printed, and the text of every file and of both streams, by name."""
    given = {
        "clouds": {cloud: {"options": made.options[cloud], **each} for cloud, each in topics.items()},
        "stream_s": 2 * LIFETIME_S,
        "slow_client_id": SLOW_CLIENT,
    }
    (folder / "given.json").write_text(json.dumps(given))
    done, texts = run_searched(PROGRAM, folder)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"cloud"')], texts


def sign_ins(trace: str, after: float) -> int:
    """How many connections have signed in after a time, seconds since the epoch; traces have the local time of day."""
    times = (line.split(" ", 1)[0] for line in trace.splitlines() if "<- SaslAuthenticate" in line)
    start = datetime.fromtimestamp(after)
    since = ((datetime.combine(start, datetime.strptime(at, "%H:%M:%S.%f").time()) - start) for at in times)
    return sum(timedelta(0) < each % timedelta(days=1) < timedelta(hours=12) for each in since)


def test_credentials_are_renewed_under_a_stream_and_within_a_task(
    java: None, secured_kafka: Secured, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    brokers = secured_kafka.cluster
    quota = [f"consumer_byte_rate={QUOTA_BYTES_S}", "--entity-type", "clients", "--entity-name", SLOW_CLIENT]
    brokers.tool("kafka.admin.ConfigCommand", "--alter", "--add-config", *quota)
    producer = Producer({"bootstrap.servers": brokers.bootstrap_servers, "batch.num.messages": 10})
    with clouds(secured_kafka, LIFETIME_S) as made:
        topics = {
            cloud: {name: topic(cluster=brokers) for name in ("source", "copy", "slow")} for cloud in made.options
        }
        for each in topics.values():
            for _ in range(N_SLOW):
                producer.produce(each["slow"], bytes(SLOW_BYTES), partition=0)
        assert producer.flush(60) == 0
        point_here(monkeypatch, tmp_path / "home", made.environment())
        with records_kept_coming(producer, [each["source"] for each in topics.values()]):
            printed, texts = run(tmp_path, made, topics)

    assert [line["cloud"] for line in printed] == list(topics)
    for line in printed:
        cloud = line["cloud"]
        assert line["task"]["n_records"] == N_SLOW
        assert line["task"]["ended"] - line["task"]["began"] > 2.5 * LIFETIME_S
        for part in ("stream", "task"):
            # What was valid at the start has ended by then.
            after, until = line[part]["began"] + LIFETIME_S, line[part]["ended"]
            n_renewed = len(made.renewed(cloud, after, until))
            n_sign_ins = sign_ins(texts[f"trace-{cloud}-{part}"], after)
            print(f"{cloud}, {part}: {until - after:.0f} s with {n_renewed} new credentials, {n_sign_ins} sign-ins")
            assert n_renewed and n_sign_ins
        with cluster_of(brokers) as cluster:
            copied = [value for _, value in read(cluster, whole(cluster, topics[cloud]["copy"]))[0]]
        assert len(copied) > 100
        assert copied == [b"%d" % number for number in range(len(copied))]
        # The texts that are searched do contain the query.
        events = "".join(text for name, text in texts.items() if name.startswith("events/"))
        offsets = "".join(text for name, text in texts.items() if name.startswith(f"checkpoint-{cloud}/offsets/"))
        assert all(topics[cloud]["source"] in text for text in (texts["stderr"], events, offsets))
    for secret in made.secrets:
        for name, text in texts.items():
            at = text.find(secret)
            assert at < 0, f"{name}: {text[max(0, at - 300) : at + 100]}"
