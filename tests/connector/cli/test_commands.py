"""Every command but doctor, run as a user runs it, on a real broker; judged by an independent client."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from pykafka_wire.cli import connection
from pykafka_wire.cli.connection import parse_properties
from pykafka_wire.cli.output import format_timestamp, printable, sparkline
from tests.connector.cli.conftest import SCRIPT, plain, terminal_output

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def orders(kafka: Any, outside: Any) -> Iterator[str]:
    """A topic of two partitions with three and two records, their times a second apart."""
    name = f"orders-{uuid.uuid4().hex[:8]}"
    outside.create(name, 2, **{"retention.ms": "-1"})
    record = outside.Record
    outside.produce(
        name,
        [
            record(key=b"a", value=b"one", partition=0, timestamp_ms=1_700_000_000_000),
            record(key=None, value=b"\xff\x00", partition=0, timestamp_ms=1_700_000_001_000),
            record(key=b"c", value=None, partition=0, timestamp_ms=1_700_000_002_000, headers=(("h", b"x"),)),
            record(key=b"d", value="grün".encode(), partition=1, timestamp_ms=1_700_000_003_000),
            record(key=b"e", value=b"\x1b[31mred", partition=1, timestamp_ms=1_700_000_004_000),
        ],
    )
    yield name
    outside.delete(name)


@pytest.fixture
def at(kafka: Any) -> list[str]:
    return ["--bootstrap", kafka.bootstrap_servers]


def rows(done: subprocess.CompletedProcess[str]) -> Any:
    return json.loads(done.stdout)


def lines(done: subprocess.CompletedProcess[str]) -> list[Any]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_topics_are_listed_with_their_partitions(command: Command, at: list[str], orders: str) -> None:
    listed = {row["topic"]: row for row in rows(command("topics", *at, "--json"))}
    assert listed[orders]["partitions"] == 2
    assert listed[orders]["without leader"] == 0
    assert not [name for name in listed if name.startswith("__")]
    table = command("topics", *at).stdout.splitlines()
    assert table[0].split()[:2] == ["topic", "partitions"]
    assert any(line.split()[:2] == [orders, "2"] for line in table)


def test_topics_fit_on_a_terminal_of_80_columns(at: list[str], orders: str) -> None:
    (line,) = [each for each in plain(terminal_output(["topics", *at], columns=80)).splitlines() if orders in each]
    assert re.fullmatch(rf"{orders} +2 +1 +[\w-]{{22}}", line), line


def test_offsets_are_shown_by_time_too(command: Command, at: list[str], orders: str) -> None:
    found = rows(command("--json", "offsets", *at, orders, "--at", "1700000001500"))
    assert [(row["earliest"], row["latest"], row["at"]) for row in found] == [(0, 3, 2), (0, 2, 0)]
    late = rows(command("--json", "offsets", *at, orders, "--at", "2030-01-01T00:00:00Z"))
    assert [row["at"] for row in late] == [None, None]
    assert "the time has 'noon'" in command("offsets", *at, orders, "--at", "noon", code=2).stderr


def test_a_typing_error_in_a_topic_names_the_topic(command: Command, at: list[str], orders: str) -> None:
    wrong = orders.replace("orders", "order")
    fast = ["-X", "kafka.default.api.timeout.ms=4000"]
    for arguments in (["offsets", wrong], ["produce", wrong, "value"]):
        assert f"Did you mean {orders}? " in command(*arguments, *at, *fast, code=1).stderr


def test_tail_shows_records_as_text_and_lets_none_steer_the_terminal(
    command: Command, at: list[str], orders: str
) -> None:
    shown = command("tail", *at, orders, "--from", "earliest").stdout
    assert "0:0  2023-11-14T22:13:20.000+00:00  a  one\n" in shown
    assert "-  0xff00\n" in shown
    assert "c  -  h=x\n" in shown
    assert "d  grün\n" in shown
    assert "\\x1b[31mred" in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize(
    ("timestamp_ms", "shown"),
    [
        (-1, None),
        (253402300799000, "9999-12-31T23:59:59.000+00:00"),
        (1_700_000_000_000_000, "1700000000000000 ms (micro- or nanoseconds?)"),
        (2**63 - 1, "9223372036854775807 ms (micro- or nanoseconds?)"),
    ],
)
def test_a_time_beyond_the_year_9999_is_shown_as_its_number(timestamp_ms: int, shown: str | None) -> None:
    assert format_timestamp(timestamp_ms) == shown


def test_tail_as_json_loses_nothing(command: Command, at: list[str], orders: str) -> None:
    records = lines(command("tail", *at, orders, "--json", "-n", "2"))
    assert [(each["partition"], each["offset"]) for each in records] == [(0, 1), (0, 2), (1, 0), (1, 1)]
    assert records[0]["value"] == {"base64": "/wA="}
    assert records[1] | {"topic": ""} == {
        "topic": "", "partition": 0, "offset": 2, "timestamp_ms": 1_700_000_002_000, "key": "c", "value": None,
        "headers": [["h", "x"]],
    }  # fmt: skip
    assert [each["offset"] for each in lines(command("tail", *at, orders, "--json", "-p", "1", "--from", "-1"))] == [1]
    assert len(lines(command("tail", *at, orders, "--json", "--from", "earliest", "--count", "3"))) == 3


def test_tail_follows_what_is_written_meanwhile(at: list[str], topic: Any, outside: Any, command: Command) -> None:
    name = topic()
    with subprocess.Popen(
        [str(SCRIPT), "tail", *at, name, "--json", "--follow", "--from", "earliest", "--count", "2"],
        stdout=subprocess.PIPE,
        text=True,
    ) as following:
        assert following.stdout is not None
        try:
            command("produce", *at, name, "first")
            assert json.loads(following.stdout.readline())["value"] == "first"
            outside.produce(name, [outside.Record(value=b"second")])
            assert json.loads(following.stdout.readline())["value"] == "second"
            assert following.wait(60) == 0
        finally:
            following.kill()


def test_produce_writes_lines_by_key_as_java_would(command: Command, at: list[str], topic: Any, outside: Any) -> None:
    name = topic(3)
    said = command("produce", *at, name, "-K", ":", "-H", "from=here", stdin="a:1\nb:2\na:3:4\n").stdout
    assert said == f"3 records written to {name}.\n"
    found = outside.consume(name)
    assert sorted((each.key, each.value) for each in found) == [(b"a", b"1"), (b"a", b"3:4"), (b"b", b"2")]
    assert {each.headers for each in found} == {(("from", b"here"),)}
    own = Producer({"bootstrap.servers": outside.servers, "partitioner": "murmur2_random"})
    places: dict[bytes, int] = {}
    for key in (b"a", b"b"):
        own.produce(name, key=key, on_delivery=lambda _, message: places.update({message.key(): message.partition()}))
    own.flush(30)
    assert {each.key: each.partition for each in found} == places


def test_produce_sends_each_line_as_it_comes_and_says_on_interrupt_what_was_written(
    at: list[str], topic: Any, outside: Any, until: Any
) -> None:
    name = topic(1)
    with subprocess.Popen(
        [str(SCRIPT), "produce", *at, name],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # A shell has what it runs in the background ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdin is not None and process.stderr is not None
        try:
            process.stdin.write(b"one\ncaf\xe9\r\n")  # no UTF-8
            process.stdin.flush()
            found = until(lambda: outside.consume(name), what="the lines, while the input goes on")
            assert found[0].value == b"one"
            until(lambda: [each.value for each in outside.consume(name)] == [b"one", b"caf\xe9"], what="both lines")
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
            said = process.stderr.read().decode()
            assert f"written to {name}" in said and "Interrupted: " in said
        finally:
            process.kill()


def test_produce_says_where_records_went_and_refuses_what_cannot_be(
    command: Command, at: list[str], topic: Any, outside: Any
) -> None:
    name = topic(2)
    written = lines(command("produce", *at, name, "--json", "-p", "1", "x", "y"))
    assert written == [{"topic": name, "partition": 1, "first_offset": 0, "last_offset": 1, "records": 2}]
    assert (
        f"Topic {name} has 2 partitions, numbered from 0."
        in command("produce", *at, name, "-p", "2", "x", code=2).stderr
    )
    malformed = command("produce", *at, name, "-K", "|", stdin="a|1\nb|2\nplain\nc|3\n", code=2).stderr
    assert "Line 3 has no '|' between key and value: 'plain'. The 2 before it were written" in malformed
    assert sorted(each.value for each in outside.consume(name)) == [b"1", b"2", b"x", b"y"]
    large = command("produce", *at, name, "-p", "0", stdin=f"fits\n{'x' * 2_000_000}\n", code=1).stderr
    assert f"Failed: 1 record written to {name}; 1 more were read, and may or may not be written." in large
    assert "UNKNOWN_TOPIC_OR_PARTITION" in command("produce", *at, f"{name}-not", "x", code=1).stderr


def test_a_groups_offsets_are_committed_reset_and_its_lag_shown(
    command: Command, at: list[str], orders: str, outside: Any
) -> None:
    group = f"g-{uuid.uuid4().hex[:8]}"
    planned = rows(command("commit", *at, "--json", group, f"{orders}:0=1", f"{orders}:1=0", "--dry-run"))
    assert [(row["before"], row["after"]) for row in planned] == [(None, 1), (None, 0)]
    assert outside.committed(group) == {}
    command("commit", *at, "--yes", group, f"{orders}:0=1", f"{orders}:1=0")
    assert outside.committed(group) == {(orders, 0): 1, (orders, 1): 0}

    assert [row["lag"] for row in rows(command("lag", *at, "--json", group))] == [2, 2]
    assert "The lag of 4 is above 3." in command("lag", *at, group, "--fail-above", "3", code=1).stderr
    command("lag", *at, group, "--fail-above", "4")
    endless = command("lag", *at, group, "--watch", "--fail-above", "4", code=2).stderr
    assert "give --count as well" in endless

    for place, expected in [
        ("latest", (3, 2)),
        ("-1", (2, 1)),
        ("+5", (3, 2)),  # no further than the log's end
        ("earliest", (0, 0)),
        ("1", (1, 1)),
        ("2023-11-14T22:13:22Z", (2, 0)),
    ]:
        was = outside.committed(group)
        assert "Dry run" in command("reset", *at, group, "--topic", orders, "--to", place, "--dry-run").stdout
        assert outside.committed(group) == was
        command("reset", *at, "--yes", group, "--topic", orders, "--to", place)
        assert tuple(outside.committed(group)[orders, p] for p in (0, 1)) == expected, place

    fresh = f"{group}-new"
    assert "has no committed offset" in command("reset", *at, fresh, "--topic", orders, "--to", "-1", code=2).stderr
    assert "no partition 7" in command("commit", *at, group, f"{orders}:7=1", code=2).stderr
    assert "TOPIC:PARTITION=OFFSET" in command("commit", *at, group, orders, code=2).stderr
    assert f"{orders}-0 ends at offset 3, before 4." in command("commit", *at, group, f"{orders}:0=4", code=2).stderr
    assert (
        "Or: earliest, latest, an offset" in command("reset", *at, group, "--topic", orders, "--to", "x", code=2).stderr
    )


def test_a_group_with_members_at_work_is_left_alone(
    command: Command, at: list[str], orders: str, outside: Any, until: Any
) -> None:
    group = f"g-{uuid.uuid4().hex[:8]}"
    consumer = Consumer(
        {"bootstrap.servers": outside.servers, "group.id": group, "client.id": "at-work", "log_level": 0}
    )
    try:
        consumer.subscribe([orders])
        until(lambda: consumer.poll(0.1) is None and consumer.assignment(), what="the assignment")
        refused = command("reset", *at, group, "--topic", orders, "--to", "latest", code=1).stderr
        assert "at-work" in refused
        assert "stop them first." in refused
        assert "Dry run" in command("reset", *at, group, "--topic", orders, "--to", "latest", "--dry-run").stdout
    finally:
        consumer.close()
    assert outside.committed(group) == {}


def test_lag_is_watched_with_a_sparkline_on_a_terminal_and_as_lines_of_json(
    command: Command, at: list[str], orders: str, outside: Any
) -> None:
    group = f"g-{uuid.uuid4().hex[:8]}"
    command("commit", *at, "--yes", group, f"{orders}:0=0", f"{orders}:1=2")
    watched = ["lag", *at, group, "--watch", "--count", "2", "--every", "0.1"]
    looks = lines(command(*watched, "--json"))
    assert [look["lag"] for look in looks] == [3, 3]
    plain = command(*watched).stdout
    assert plain.count(f"group {group}") == 2
    assert "total lag 3  does not fall\n██\n" in plain
    assert "\x1b" not in plain
    seen = terminal_output(watched)
    assert "total lag 3" in seen and "██" in seen
    assert "\x1b[1m" in seen  # the head of the table is bold


def test_lag_at_80_columns_cuts_names_and_no_figure(command: Command, at: list[str], topic: Any, outside: Any) -> None:
    name, group = topic(60, name=f"a-topic-with-a-rather-long-name-{uuid.uuid4().hex}"), f"g-{uuid.uuid4().hex}"
    outside.fill(name, [0] * 59 + [12_345])
    command("commit", *at, "--yes", group, *(f"{name}:{number}=0" for number in range(60)))
    assert command("lag", *at, group).stdout.endswith("total lag 12,345\n")
    screen = plain(terminal_output(["lag", *at, group, "--watch", "--count", "1"], columns=80)).splitlines()
    assert all(len(line.rstrip()) <= 80 for line in screen)
    assert "total lag 12,345" in screen[0], "before the partitions, which a screen may have no room for"
    largest = [line for line in screen if line.rstrip().endswith(" 12345")]
    assert largest[-1].split()[-4:] == ["59", "0", "12345", "12345"]
    assert any(line.startswith("… ") and line.rstrip().endswith(" more") for line in screen)


def test_a_lag_that_is_not_known_is_an_alarm(command: Command, at: list[str], orders: str) -> None:
    group = f"g-{uuid.uuid4().hex[:8]}"
    check = ["lag", *at, group, "--fail-above", "1000"]
    assert f"The lag of group {group} is unknown. Check the group's name" in command(*check, code=1).stderr
    command("commit", *at, "--yes", group, f"{orders}:0=3")
    command(*check)
    command(*check, "--topic", orders)
    misspelt = [*check, "--topic", orders, "--topic", f"{orders}s"]
    assert f"is unknown for {orders}s." in command(*misspelt, code=1).stderr
    assert f"is unknown for {orders}s." in command(*misspelt, "--watch", "--count", "1", code=1).stderr


def test_open_transactions_are_shown(command: Command, at: list[str], topic: Any, outside: Any, until: Any) -> None:
    name, transactional_id = topic(), f"tx-{uuid.uuid4().hex[:8]}"
    producer = Producer({"bootstrap.servers": outside.servers, "transactional.id": transactional_id, "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(name, b"x")
    producer.flush(30)

    (shown,) = [
        row
        for row in rows(command("transactions", *at, "--json", "--topic", name))
        if row["transactional id"] == transactional_id
    ]
    assert shown["state"] == "Ongoing"
    assert shown["partitions"] == [f"{name}-0"]
    # At 80 columns the table leaves out what would break the ids.
    table = plain(terminal_output(["transactions", *at, "--topic", name], columns=80)).splitlines()
    assert any(re.match(rf"{transactional_id} +Ongoing +\d+ +60 +{name}-0$", line.rstrip()) for line in table), table
    # To look at it has not fenced it.
    producer.commit_transaction(30)

    def still_open() -> bool:
        shown = rows(command("transactions", *at, "--json", "--topic", name))
        return transactional_id in [row["transactional id"] for row in shown]

    until(lambda: not still_open(), what="the end of the transaction")
    every = rows(command("transactions", *at, "--json", "--all", "--topic", name))
    assert transactional_id in [row["transactional id"] for row in every]


def test_settings_come_from_a_file_of_kafkas_tools_and_the_command_line_goes_before_it(
    command: Command, kafka: Any, orders: str, tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        f"# for Kafka's own tools\nbootstrap.servers = {kafka.bootstrap_servers}\n"
        "kafka.client.id: some\\\n   body\nkey.deserializer org.apache.kafka.common.serialization.StringDeserializer\n"
    )
    assert orders in command("topics", "--config", str(file)).stdout
    trace = tmp_path / "trace"
    command("--config", str(file), "topics", "-X", f"kafka.trace={trace}", "-X", "client.rack=r1")
    assert "Metadata" in trace.read_text()
    wrong = command("topics", "--config", str(file), "-X", "kafka.acks=two", code=2).stderr
    assert "acks is 'two'. Use one of" in wrong
    near = command("topics", "--config", str(file), "-X", "kafka.client.rak=r1", code=2).stderr
    assert "client.rak (did you mean client.rack?)" in near
    with file.open("a") as more:  # a file of another client's settings may have more
        more.write("client.rak = r1\n")
    assert "Unknown settings are ignored: client.rak" in command("topics", "--config", str(file)).stderr


def test_exit_codes_tell_what_was_wrong(command: Command, at: list[str]) -> None:
    by_script = [
        subprocess.run([str(SCRIPT), *arguments], capture_output=True, text=True, timeout=90)
        for arguments in (["topics", "-b", "127.0.0.1:1"], ["topics", *at])
    ]
    assert [done.returncode for done in by_script] == [3, 0], by_script
    assert "no broker is available" in by_script[0].stderr
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(connection, "_LOCAL_BROKER", "127.0.0.1:1")
        unnamed = command("topics", code=3).stderr
        assert (
            "No brokers are named, so the default 127.0.0.1:1 was tried" in unnamed
            and "PYKAFKA_WIRE_BOOTSTRAP" in unnamed
        )
        patched.setattr(connection, "_LOCAL_BROKER", at[1])
        command("topics")
    assert "write -X kafka.NAME=VALUE" in command("topics", *at, "-X", "acks", code=2).stderr
    assert "No such option" in command("topics", *at, "--colour", code=2).stderr
    shown = command("--help").stdout
    assert "no broker responded" in shown
    assert "doctor" in shown
    assert command("--version").stdout.startswith("pykafka-wire")


def test_a_walkthrough_that_nobody_reads_on_leaves_no_topic(command: Command, at: list[str], until: Any) -> None:
    arguments = [str(SCRIPT), "walkthrough", *at]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "is led by broker" in line:  # the topic is there
                break
        process.stdout.close()  # as head does
        process.wait(60)
    until(lambda: "pykafka-wire-walkthrough" not in command("topics", *at).stdout, what="the topic's end")


def test_the_walkthrough_shows_each_step_with_its_trace(command: Command, at: list[str]) -> None:
    said = command("walkthrough", *at).stdout
    for api in (
        "ApiVersions",
        "Metadata",
        "CreateTopics",
        "Produce",
        "JoinGroup",
        "Fetch",
        "OffsetCommit",
        "LeaveGroup",
    ):
        assert api in said
    # Nothing stays; a broker hears of the deletion a moment after the controller has made it.
    give_up = time.monotonic() + 20
    while "pykafka-wire-walkthrough" in command("topics", *at, "--json").stdout:
        assert time.monotonic() < give_up


def test_values_with_a_registrys_frame_are_named_as_such(
    command: Command, at: list[str], topic: Any, outside: Any
) -> None:
    name = topic(1)
    outside.produce(name, [outside.Record(value=b"\0\0\0\0\x07\x02\xff"), outside.Record(value=b"text")])
    said = command("tail", *at, name).stderr
    assert "the frame of a schema registry (schema 7): use --registry URL to decode them" in said


def test_the_local_cluster_takes_its_own_options(command: Command) -> None:
    assert "--nodes" in command("cluster", "--help").stdout
    assert "not in the range 1<=x<=3" in command("cluster", "--nodes", "9", code=2).stderr
    for arguments in (("cluster", "--topic"), ("topics", "create")):
        assert "orders:0: use NAME or NAME:PARTITIONS" in command(*arguments, "orders:0", code=2).stderr


def test_properties_files_are_read_as_java_reads_them() -> None:
    text = "a=1\nb : 2\n c 3\n! no\n\nd=x=y\\\n   z\ne\\ f=\\u0041\\n\\\\\ng=\n#h=1\nwin=c:\\\\x"
    assert parse_properties(text) == {
        "a": "1", "b": "2", "c": "3", "d": "x=yz", "e f": "A\n\\", "g": "", "win": "c:\\x",
    }  # fmt: skip


def test_a_sparkline_is_as_high_as_its_values() -> None:
    assert sparkline([0, 7, 14]) == "▁▄█"
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([]) == ""


def test_no_control_character_is_printed() -> None:
    assert printable("a\x1b[2Jb\tü\n") == "a\\x1b[2Jb\\tü\\n"


def test_schema_infers_the_type_of_json_values(command: Command, at: list[str], topic: Any, outside: Any) -> None:
    name = topic(2)
    documents = ['{"id": 1, "a b": [1.5]}', "no JSON", '{"id": 123456789012345678901, "at": {"x": null, "y": true}}']
    values = [None, *(each.encode() for each in documents), b'\0\0\0\0\x07{"framed": "yes"}']
    outside.produce(name, [outside.Record(value=value, partition=n % 2) for n, value in enumerate(values)])
    done = command("schema", *at, "--topic", name, "--widen", "id BIGINT, old STRING")
    held, new = (
        "`id` decimal(38,0), `old` string, ",
        ["`a b` ARRAY<double>", "`at` STRUCT<`y`: boolean>", "`framed` string"],
    )
    found = done.stdout.strip()
    assert found.startswith(held) and sorted(found.removeprefix(held).split(", ")) == new
    assert found.index("`a b`") < found.index("`at`"), "as the documents of one partition have them"
    assert "the last 4 values of " + name in done.stderr
    assert rows(command("schema", *at, "-t", name, "--last", "1", "--json"))["records"] == 2
    refused = command("schema", *at, "--topic", name, "--keys", code=1)
    assert f"none of 0 keys of {name} is a JSON object" in refused.stderr
