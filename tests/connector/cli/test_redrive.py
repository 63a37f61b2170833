"""Dead letters are written back, each once, whatever happens on the way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

from pykafka_wire.columns.spark_schema import spark_schema
from pykafka_wire.options.sink import parse_sink_options
from pykafka_wire.sink.dead_letter_queue import parse_dead_letter
from pykafka_wire.sink.task_writer import TaskWriter, send_task

Command = Callable[..., subprocess.CompletedProcess[str]]


def headers_of(error: str, topic: str, partition: int = 0, **more: str) -> tuple[tuple[str, bytes], ...]:
    added = {"error": error, "topic": topic, "partition": str(partition), "reason": "as the broker said", **more}
    return tuple((f"pykafka-wire.{name}", value.encode()) for name, value in added.items())


@pytest.fixture
def at(kafka: Any) -> list[str]:
    return ["--bootstrap", kafka.bootstrap_servers]


@pytest.fixture
def letters(topic: Any, outside: Any) -> tuple[str, str]:
    """A dead-letter topic of two partitions with three errors, one letter without its value and one other record; and the topic
    that rejected them."""
    origin, dlq = topic(2), topic(2)
    record = outside.Record
    found = [
        record(key=b"%d" % i, value=b"v%d" % i, partition=i % 2, timestamp_ms=1_700_000_000_000 + i,
               headers=(("own", b"h"), *headers_of(("INVALID_RECORD", "MESSAGE_TOO_LARGE")[i % 3 == 0], origin, 1)))
        for i in range(6)
    ]  # fmt: skip
    found += [
        record(key=b"late", value=b"1970", headers=headers_of("INVALID_TIMESTAMP", origin, timestamp="1234567890123")),
        record(key=b"huge", value=None, headers=headers_of("MESSAGE_TOO_LARGE", origin, **{"value.bytes": "50001"})),
        record(key=b"other", value=b"of somebody else"),
    ]
    outside.produce(dlq, found)
    return origin, dlq


def test_dead_letters_go_back_with_their_own_headers_and_timestamps_once(
    command: Command, at: list[str], letters: tuple[str, str], outside: Any
) -> None:
    origin, dlq = letters
    planned = json.loads(command("redrive", *at, dlq, "--dry-run", "--json").stdout)
    assert {(row["error"], row["left because"]): row["records"] for row in planned} == {
        ("MESSAGE_TOO_LARGE", None): 2,
        ("INVALID_RECORD", None): 4,
        ("INVALID_TIMESTAMP", None): 1,
        ("MESSAGE_TOO_LARGE", "without its value"): 1,
        (None, "not a dead letter"): 1,
    }
    assert outside.consume(origin) == []
    assert command("redrive", *at, dlq, stdin="n\n", code=130).stdout
    done = command("redrive", *at, dlq, "--yes", code=1)
    assert done.stdout == f"7 records written to {origin}.\n"
    assert f"1 record left in {dlq}: without its value.\n" in done.stderr
    found = {r.key: r for r in outside.consume(origin, isolation_level="read_committed")}
    assert found.keys() == {b"0", b"1", b"2", b"3", b"4", b"5", b"late"}
    assert (found[b"4"].value, found[b"4"].partition, found[b"4"].headers) == (b"v4", 1, (("own", b"h"),))
    assert found[b"4"].timestamp_ms == 1_700_000_000_004
    assert (found[b"late"].partition, found[b"late"].timestamp_ms) == (0, 1_234_567_890_123)
    again = command("redrive", *at, dlq)
    assert again.stdout == f"{dlq} has no dead letter to write.\n"
    assert len(outside.consume(origin, isolation_level="read_committed")) == 7


def test_each_error_is_redriven_at_its_own_time(
    command: Command, at: list[str], letters: tuple[str, str], topic: Any, outside: Any
) -> None:
    _, dlq = letters
    target = topic(3)
    first = command("redrive", *at, dlq, "--to", target, "--error", "INVALID_RECORD", "--yes", "--json", code=1)
    assert json.loads(first.stdout) == {"written": {target: 4}, "left": {"not a dead letter": 1}}
    command("redrive", *at, dlq, "--to", target, "--yes", code=1)
    found = [r.key for r in outside.consume(target, isolation_level="read_committed")]
    assert sorted(found) == sorted([b"0", b"1", b"2", b"3", b"4", b"5", b"late"])


def test_what_cannot_be_a_target_is_an_error(command: Command, at: list[str], letters: tuple[str, str]) -> None:
    origin, dlq = letters
    assert "the topic that the dead letters are read from" in command("redrive", *at, dlq, "--to", dlq, code=2).stderr
    fast = ["-X", "kafka.default.api.timeout.ms=4000"]
    wrong = command("redrive", *at, *fast, dlq, "--to", f"{origin}-", "--yes", code=1)
    assert "UNKNOWN_TOPIC" in wrong.stderr and f"Did you mean {origin}?" in wrong.stderr


def test_dead_letters_of_a_topic_that_does_not_exist_name_the_remedy(
    command: Command, at: list[str], topic: Any, outside: Any
) -> None:
    origin, dlq, gone = topic(1), topic(1), f"gone-{uuid.uuid4().hex[:8]}"
    outside.produce(
        dlq, [outside.Record(value=b"v", headers=headers_of("INVALID_RECORD", each)) for each in (origin, gone)]
    )
    fast = ["-X", "kafka.default.api.timeout.ms=4000"]
    for asked in ("--dry-run", "--yes"):
        said = command("redrive", *at, *fast, dlq, asked, code=1).stderr
        assert f"the topic {gone}, which does not exist" in said and "--to" in said, said
    assert outside.consume(origin, isolation_level="read_committed") == []
    outside.create(gone, 1)
    try:
        command("redrive", *at, dlq, "--yes")
        assert [len(outside.consume(each, isolation_level="read_committed")) for each in (origin, gone)] == [1, 1]
    finally:
        outside.delete(gone)


_KILLED = """
import os, sys
from pykafka_wire.cli.app import application
from pykafka_wire.wire.transactional_producer import RecordTransaction
commit, n_commits = RecordTransaction.commit, 0
def killed(self, timeout_ms=None):
    global n_commits
    n_commits += 1
    if n_commits == 3:  # records and offsets are in the transaction, which is left open
        self._encode_all()
        self._transaction.flush()
        os._exit(9)
    return commit(self, timeout_ms)
RecordTransaction.commit = killed
application(sys.argv[1:])
"""


def test_a_run_that_was_killed_continues_where_it_was(
    command: Command, at: list[str], topic: Any, outside: Any
) -> None:
    origin, dlq = topic(1), topic(1)
    record = outside.Record
    for first in range(0, 200, 20):  # a record batch of 40 KB each
        records = [
            record(value=b"%d" % i + b"x" * 2000, headers=headers_of("INVALID_RECORD", origin))
            for i in range(first, first + 20)
        ]
        outside.produce(dlq, records)
    small = ["-X", "kafka.max.partition.fetch.bytes=50000", "-X", "kafka.fetch.max.bytes=50000"]
    arguments = ["redrive", *at, *small, dlq, "--yes"]
    killed = subprocess.run([sys.executable, "-c", _KILLED, *arguments], env=dict(os.environ), timeout=120, check=False)
    assert killed.returncode == 9
    written = len(outside.consume(origin, isolation_level="read_committed"))
    assert 0 < written < 200, "the first transaction is committed, the second one open"
    rest = command(*arguments)
    assert rest.stdout == f"{200 - written} records written to {origin}.\n"
    found = [int(r.value.rstrip(b"x")) for r in outside.consume(origin, isolation_level="read_committed")]
    assert sorted(found) == list(range(200))


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("pykafka-wire.error", b"INVALID_RECORD")],
        [("own", b"h"), ("pykafka-wire.topic", b"t")],
        [("pykafka-wire.error", b"\xff")],
        [("pykafka-wire.error", None), ("own", b"\xff")],
        [*headers_of("INVALID_TIMESTAMP", "t"), ("pykafka-wire.timestamp", b"yesterday")],
    ],
)
def test_other_records_are_no_dead_letters(headers: Sequence[tuple[str, bytes | None]]) -> None:
    assert parse_dead_letter(headers) is None


def test_headers_that_another_program_adds_to_a_dead_letter_may_be_bytes() -> None:
    letter = parse_dead_letter([("own", b"\xff"), *headers_of("INVALID_RECORD", "orders"), ("trace", b"\xff\xfe")])
    assert letter is not None
    assert (letter.error, letter.topic, tuple(letter.headers)) == ("INVALID_RECORD", "orders", (("own", b"\xff"),))


def test_headers_of_an_earlier_dead_letter_are_the_records_own() -> None:
    earlier = headers_of("INVALID_RECORD", "orders")
    letter = parse_dead_letter([*earlier, *headers_of("MESSAGE_TOO_LARGE", "copies", 3)])
    assert letter is not None
    assert (letter.error, letter.topic, letter.partition, tuple(letter.headers)) == (
        "MESSAGE_TOO_LARGE",
        "copies",
        3,
        earlier,
    )


@pytest.mark.parametrize("more", [("topic", b"other"), ("partition", b"7"), ("trace", b"\xff")])
def test_headers_that_others_have_added_say_nothing_of_the_record(more: tuple[str, bytes]) -> None:
    letter = parse_dead_letter([*headers_of("INVALID_RECORD", "orders"), more])
    assert letter is not None and (letter.topic, letter.partition) == ("orders", 0)


def write_rows(rows: Sequence[Any], **options: str) -> None:
    """Write records by a task of the sink, without Spark."""
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    columns = pa.RecordBatch.from_pydict(
        {
            "key": pa.array([row.key and row.key.decode() for row in rows], pa.string()),
            "value": pa.array([row.value.decode() for row in rows], pa.string()),
            "timestamp": pa.array([row.timestamp_ms * 1000 for row in rows], pa.timestamp("us", tz="UTC")),
            "headers": pa.array(
                [[dict(zip(header.names, pair, strict=True)) for pair in row.headers] for row in rows], pa.list_(header)
            ),
        }
    )
    parsed = parse_sink_options({"onRecordError": "divert", **options})
    send_task(TaskWriter(parsed, spark_schema(columns.schema)), iter([columns]))


@pytest.mark.parametrize("stamped_by", ["CreateTime", "LogAppendTime"])
def test_a_rejected_row_is_back_with_all_that_it_had(
    command: Command, at: list[str], topic: Any, outside: Any, stamped_by: str
) -> None:
    """Whichever errors a batch has at once, each dead letter has the error of its own record, and becomes that record again."""
    limits = {"max.message.bytes": "6000", "cleanup.policy": "compact", "message.timestamp.before.max.ms": "3600000"}
    origin, target, dlq = topic(1, limits), topic(1), topic(1, {"message.timestamp.type": stamped_by})
    now_ms = int(time.time() * 1000) - 60_000
    begins = {"ancient": -1_000, "late": 1_000}
    kinds = [(), ("huge",), ("late",), ("keyless",), ("huge", "late"), ("huge", "keyless"), ("late", "keyless")]
    faults = [*kinds, ("late", "ancient"), ("huge", "ancient")]
    rows, errors = [], {}
    for number, fault in enumerate([faults[nth % len(faults)] for nth in range(3 * len(faults))]):
        value = b"%d" % number + b"x" * (7_000 if "huge" in fault else 10)
        first = next((error for kind, error in _ERRORS_OF_FAULTS if kind in fault), "")
        errors[value] = first
        rows.append(
            outside.Record(
                key=None if "keyless" in fault else b"k%d" % number,
                value=value,
                timestamp_ms=number + next((begin for kind, begin in begins.items() if kind in fault), now_ms),
                headers=(("own", b"%d" % number),) if number % 2 else (),
            )
        )
    servers = at[-1]
    write_rows(rows, **{"kafka.bootstrap.servers": servers, "topic": origin, "deadLetterTopic": dlq})
    kept = {r.value for r in outside.consume(origin)}
    assert kept == {value for value, error in errors.items() if not error}
    letters = {r.value: dict(r.headers)["pykafka-wire.error"].decode() for r in outside.consume(dlq)}
    assert letters == {value: error for value, error in errors.items() if error}
    ancient = {r.value for r in rows if r.timestamp_ms < 0}
    left = command("redrive", *at, dlq, "--to", target, "--yes", code=1).stderr
    assert f"{len(ancient)} records left in {dlq}: with a timestamp before 1970.\n" in left
    back = {
        (r.key, r.value, r.timestamp_ms, r.headers) for r in outside.consume(target, isolation_level="read_committed")
    }
    assert back == {
        (r.key, r.value, r.timestamp_ms, r.headers) for r in rows if errors[r.value] and r.value not in ancient
    }


#: In the order in which a broker checks a record.
_ERRORS_OF_FAULTS = (("huge", "MESSAGE_TOO_LARGE"), ("keyless", "INVALID_RECORD"), ("late", "INVALID_TIMESTAMP"))
