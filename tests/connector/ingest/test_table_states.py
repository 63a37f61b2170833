"""One table's trouble is its own: real brokers, a real registry, and other jobs on the same tables."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import urllib3
from click.testing import CliRunner
from confluent_kafka.admin import AclBinding, AclBindingFilter, AclOperation, ResourceType

from pykafka_wire.checkpoints.positions import Beginning
from pykafka_wire.cli.app import commands
from pykafka_wire.ingest import Ingest, Table
from pykafka_wire.ingest.landing import session_pool
from pykafka_wire.ingest.landing.landing import Landing
from pykafka_wire.ingest.proof.verification import verify
from pykafka_wire.ingest.records.ranges import TopicRange
from pykafka_wire.ingest.records.table_schemas import TableSchemas
from pykafka_wire.ingest.settings.model import Settings
from pykafka_wire.ingest_status import TableState
from tests.connector.ingest.conftest import Shop, avro_schema, hold_compaction
from tests.connector.test_access_revoked import ALICE, rule
from tests.http_server import QuietHandler, http_server

FIRST = avro_schema("id int")
SECOND = avro_schema("id long", "amount double?")
CONFLICT = avro_schema("id string")
on_brokers = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(900)]


def until(condition: Callable[[], Any], state: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 180
    while not condition():
        assert time.monotonic() < deadline, state()
        time.sleep(0.2)


@contextmanager
def running(shop: Shop, **asked: Any) -> Iterator[tuple[Ingest, Any]]:
    ingest = shop.ingest(**asked)
    query = ingest.start(shop.spark, every="0 seconds")
    try:
        yield ingest, query
    finally:
        query.stop()


def trouble_of(ingest: Ingest, topic: str) -> TableState | None:
    """The state of a table in trouble."""
    status = ingest.statuses.get(topic)
    return None if status is None or status.trouble is None else status.state


def alter(shop: Shop, name: str, **properties: str) -> None:
    given = ", ".join(f"'delta.{each}' = '{value}'" for each, value in properties.items())
    shop.spark.sql(f"ALTER TABLE delta.`{shop.folder}/lake/{shop.prefix}_{name}` SET TBLPROPERTIES ({given})")


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_troubles_of_tables_leave_the_others_alone_and_each_continues_when_its_own_is_gone(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that cannot be written, a schema that does not fit, a property, and an error that nobody foresaw. What mends them
    brings no record, and no restart."""
    names = ("good", "blocked", "typed", "fixed", "odd", "none")
    topics = {name: shop.create(name) for name in names}
    keyed = Table(topic=rf"{shop.prefix}\.fixed", mode="upsert", key_format="string")
    for name in ("typed", "fixed"):
        shop.send(name, list(shop.avro(name, FIRST, [{"id": 1}])), keys=[b"a"])
    first = shop.run(tables=[keyed])
    assert first.statuses[topics["none"]].state is TableState.STOPPED, "it has no subject"
    alter(shop, "fixed", appendOnly="true")
    blocking = shop.folder / "lake" / f"{shop.prefix}_blocked"
    blocking.write_text("no folder")
    is_odd = [True]
    value_schema = TableSchemas.value_schema

    def odd(self: TableSchemas, *more: Any) -> Any:
        if self._topic == topics["odd"] and is_odd:
            raise ZeroDivisionError("nobody foresaw this")
        return value_schema(self, *more)

    for name in ("good", "blocked", "odd"):
        shop.send_avro(name, FIRST, [{"id": 1}])
    shop.send_avro("typed", CONFLICT, [{"id": "x"}])
    shop.send("fixed", list(shop.avro("fixed", FIRST, [{"id": 2}])), keys=[b"a"])
    monkeypatch.setattr(TableSchemas, "value_schema", odd)
    with running(shop, tables=[keyed]) as (ingest, query):
        expected = {
            "good": None, "blocked": TableState.RETRYING, "typed": TableState.STOPPED, "fixed": TableState.STOPPED,
            "odd": TableState.RETRYING, "none": TableState.STOPPED,
        }  # fmt: skip

        def stages() -> dict[str, TableState | None]:
            return {name: trouble_of(ingest, topic) for name, topic in topics.items()}

        until(lambda: stages() == expected, stages)
        found = {name: ingest.statuses[topic].trouble for name, topic in topics.items()}
        assert {name: trouble.code for name, trouble in found.items() if trouble is not None} == {
            "blocked": "DELTA_CANNOT_CREATE_LOG_PATH", "typed": "PYKAFKA_WIRE_COLUMN_CONFLICT",
            "fixed": "DELTA_CANNOT_MODIFY_APPEND_ONLY", "odd": "ZeroDivisionError", "none": "PYKAFKA_WIRE_INGEST",
        }  # fmt: skip
        assert all(trouble.next_attempt > trouble.since for trouble in found.values() if trouble is not None)
        assert ingest.statuses[topics["fixed"]].newest_ms, "the table has rows of the first run"
        shop.send_avro("good", FIRST, [{"id": 2}])
        until(
            lambda: (status := ingest.statuses[topics["good"]]).rows == 2 and status.newest_ms, lambda: ingest.statuses
        )
        blocking.unlink()
        is_odd.clear()
        shop.avro("typed", SECOND, [{"id": 1, "amount": 0.5}])  # registers the schema, and sends nothing
        shop.avro("none", FIRST, [{"id": 1}])
        alter(shop, "fixed", appendOnly="false")
        until(lambda: set(stages().values()) == {None}, lambda: ingest.statuses)
        assert query.isActive
        assert ingest.statuses[topics["typed"]].held_rejects == 1
    for name in ("blocked", "odd"):
        assert shop.rows(name, "id") == [(1,)]
    assert (shop.rows("typed", "id"), shop.rows("fixed", "id")) == ([(1,)], [(2,)])
    proofs = list(verify(shop.spark, ingest.settings, list(topics.values())))
    assert all(each.is_right for each in proofs), list(map(str, proofs))


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_run_that_ends_by_itself_tries_for_a_limited_time_and_its_exit_code_is_1(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pykafka_wire.ingest.landing.schedule.PATIENCE_S", 4.0)
    shop.create("good")
    shop.send_json("good", [{"n": 1}])
    lake = shop.folder / "lake"
    asked = ["ingest", "-b", shop.outside.servers, "--topics", rf"{shop.prefix}\..*", "--format", "json", "--once"]
    asked += ["--into", str(lake), "--checkpoint", str(shop.folder / "checkpoint"), "--json"]
    done = CliRunner().invoke(commands, asked)
    assert done.exit_code == 0, done.output
    blocking = lake / f"{shop.prefix}_blocked"
    blocking.write_text("no folder")
    shop.create("blocked")
    for name, n in (("good", 2), ("blocked", 1)):
        shop.send_json(name, [{"n": n}])
    done = CliRunner().invoke(commands, asked)
    assert done.exit_code == 1, done.output
    assert shop.rows("good", "n") == [(1,), (2,)] and "Not a directory" in done.stdout
    blocking.unlink()
    done = CliRunner().invoke(commands, asked)  # there is no new record
    assert done.exit_code == 0, done.output
    assert shop.rows("blocked", "n") == [(1,)]


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_topic_that_may_not_be_read_for_a_while_is_landed_when_it_may(
    shop: Shop, guarded_kafka: Any, topic: Any, outside_of: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    outside = outside_of(guarded_kafka.bootstrap_servers)
    names = [topic(1, name=f"{shop.prefix}.{name}", cluster=guarded_kafka) for name in ("open", "closed")]
    permissions = [(ResourceType.TOPIC, name, AclOperation.DESCRIBE) for name in names]
    permissions += [(ResourceType.TOPIC, name, AclOperation.READ) for name in names]
    for granted in outside.admin.create_acls([rule(AclBinding, *each) for each in permissions]).values():
        granted.result(30)
    taken = rule(AclBindingFilter, ResourceType.TOPIC, names[1], AclOperation.READ)
    for deleted in outside.admin.delete_acls([taken]).values():
        deleted.result(30)
    for name in names:
        outside.fill(name, [3])
    kafka = {
        **{name.removeprefix("kafka."): value for name, value in ALICE.items() if "timeout" not in name},
        "bootstrap.servers": guarded_kafka.bootstrap("SASL"),
    }
    with running(shop, kafka=kafka, defaults=Table(topic=".*", format="binary")) as (ingest, query):
        until(lambda: trouble_of(ingest, names[1]) is TableState.RETRYING, lambda: ingest.statuses)
        until(lambda: ingest.statuses[names[0]].rows == 3, lambda: ingest.statuses)
        reason = ingest.statuses[names[1]].error or ""
        assert "TOPIC_AUTHORIZATION_FAILED" in reason and names[1] in reason, reason
        outside.fill(names[0], [2])
        until(lambda: ingest.statuses[names[0]].rows == 5, lambda: ingest.statuses)
        granted = outside.admin.create_acls([rule(AclBinding, ResourceType.TOPIC, names[1], AclOperation.READ)])
        for each in granted.values():
            each.result(30)
        until(lambda: trouble_of(ingest, names[1]) is None, lambda: ingest.statuses)
        assert query.isActive and ingest.statuses[names[1]].rows == 3
    printed = capfd.readouterr()
    assert "alice-secret" not in printed.out + printed.err


@contextmanager
def small_disk(folder: Path, n_bytes: int) -> Iterator[Callable[[int], None]]:
    """A file system of so many bytes at a folder; yields what gives it another size. Root may do this, or who may become root."""
    prefix = [] if os.geteuid() == 0 else ["sudo", "-n"]

    def mount(options: str) -> None:
        subprocess.run([*prefix, "mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True)

    folder.mkdir(parents=True)
    mount(f"size={n_bytes},mode=777")
    try:
        yield lambda size: mount(f"remount,size={size}")
    finally:
        subprocess.run([*prefix, "umount", "--lazy", str(folder)], check=True)


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_full_disk_of_one_tables_folder_is_that_tables_alone_until_there_is_room(shop: Shop) -> None:
    topics = {name: shop.create(name) for name in ("spark", "tasks", "good")}
    declared = {"format": "json", "schema": "n INT, s STRING"}
    by_spark = Table(topic=r".*\.spark", write="spark", **declared)
    asked = {"tables": [by_spark], "defaults": Table(topic=".*", **declared)}

    def send(n: int, size: int, *names: str) -> None:
        for name in names:
            shop.send_json(name, [{"n": number, "s": os.urandom(size).hex()} for number in range(n)])

    def have(n: int, *names: str) -> bool:
        statuses = ingest.statuses
        return all(topics[name] in statuses and statuses[topics[name]].rows == n for name in names)

    folders = {name: shop.folder / "lake" / f"{shop.prefix}_{name}" for name in ("spark", "tasks")}
    with small_disk(folders["spark"], 500_000) as of_spark, small_disk(folders["tasks"], 500_000) as of_tasks:
        send(3, 10, *topics)
        with running(shop, **asked) as (ingest, query):
            until(lambda: have(3, *topics), lambda: ingest.statuses)
            send(2000, 400, *topics)
            until(lambda: have(2003, "good"), lambda: ingest.statuses)
            for name in folders:
                until(
                    lambda name=name: trouble_of(ingest, topics[name]) is TableState.RETRYING, lambda: ingest.statuses
                )  # type: ignore[misc]
                assert "No space left on device" in (ingest.statuses[topics[name]].error or ""), ingest.statuses
            send(1, 10, "good")
            until(lambda: have(2004, "good"), lambda: ingest.statuses)
            for enlarge in (of_spark, of_tasks):
                enlarge(100_000_000)
            until(lambda: have(2003, *folders), lambda: ingest.statuses)
            assert query.isActive
        for name in folders:
            rows = shop.rows(name, "_kafka_partition", "_kafka_offset")
            assert len(rows) == len(set(rows)) == 2003, name


@contextmanager
def guarded_registry(url: str, denied: set[str], requests: list[str]) -> Iterator[str]:
    """The URL of a gateway to a registry, which denies access to some subjects; 503 for all subjects where ``*`` is denied."""

    class Handler(QuietHandler):
        def respond(self) -> None:
            requests.append(self.path)
            subject = unquote(self.path.partition("/subjects/")[2].partition("/")[0])
            if "*" in denied or subject in denied:
                self.send(503 if "*" in denied else 403, b"{}")
            else:
                response = urllib3.request("GET", url + self.path, retries=False)
                self.send(response.status, response.data)

    with http_server(Handler) as address:
        yield address


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_registry_that_denies_some_subjects_or_does_not_respond_refuses_no_start(shop: Shop) -> None:
    topics = {name: shop.create(name) for name in ("a", "b", "fine", "keyed", "plain")}
    for name in ("a", "b", "fine"):
        shop.send_avro(name, FIRST, [{"id": 1}])
    for name in ("keyed", "plain"):
        shop.send_json(name, [{"id": 1}])
    denied, requests = {"*"}, list[str]()
    asked = {
        "tables": [
            Table(topic=rf"{shop.prefix}\.keyed", format="json", key_format="binary"),
            Table(topic=rf"{shop.prefix}\.plain", format="json"),
        ]
    }

    def landed(*names: str) -> bool:
        statuses = ingest.statuses
        return all(topics[name] in statuses and statuses[topics[name]].rows for name in names)

    with guarded_registry(shop.registry, denied, requests) as url:
        planned = shop.ingest(registry=url, **asked).plan()
        assert [each.topic for each in planned if each.mistake is None] == [topics["keyed"], topics["plain"]]
        n_of_one_topic = 3  # with its retries: the others do not wait for it again
        assert len(requests) == n_of_one_topic, requests
        with running(shop, registry=url, **asked) as (ingest, _):
            until(lambda: landed("keyed"), lambda: ingest.statuses)
            for name in ("a", "b", "fine"):
                status = ingest.statuses[topics[name]]
                assert status.state is TableState.RETRYING and status.trouble is not None
                assert status.trouble.code == "PYKAFKA_WIRE_REGISTRY", status
                assert "does not respond" in (status.error or "")
            denied.clear()
            denied.update(f"{topics[name]}-value" for name in ("a", "b"))
            until(lambda: landed("fine", "plain"), lambda: ingest.statuses)
            for name in ("a", "b"):
                until(
                    lambda name=name: "denies access (HTTP 403)" in (ingest.statuses[topics[name]].error or ""),  # type: ignore[misc]
                    lambda: ingest.statuses,
                )
                status = ingest.statuses[topics[name]]
                assert status.state is TableState.RETRYING and status.trouble is not None
                assert status.trouble.code == "PYKAFKA_WIRE_REGISTRY", status
            denied.clear()
            until(lambda: landed("a", "b"), lambda: ingest.statuses)
        denied.add("*")
        shop.send_json("plain", [{"id": 2}])
        with running(shop, registry=url, **asked) as (ingest, _):  # the table itself says that its keys are bytes
            until(lambda: landed("plain"), lambda: ingest.statuses)
            assert ingest.statuses[topics["plain"]].error is None
    assert all(shop.rows(name, "id") == [(1,), (2,)][: 2 if name == "plain" else 1] for name in topics)


@pytest.mark.spark
def test_what_fails_beside_an_attempt_ends_neither_the_run_nor_the_retries(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A session that cannot be made when a stopped table's cause is looked up, and a query that does not say whether it runs."""
    monkeypatch.setattr("pykafka_wire.ingest.landing.schedule.FIRST_CHECK_S", 0.1)
    monkeypatch.setattr("pykafka_wire.ingest.landing.landing._AFTER_ERROR_S", 0.1)
    new_session = session_pool._made_of
    failing = {"session", "query"}

    def sometimes(base: Any) -> Any:
        if "session" in failing:
            raise RuntimeError("no session")
        return new_session(base)

    def is_running() -> bool:
        if threading.current_thread().name == "pykafka-wire-ingest-retries" and "query" in failing:
            failing.clear()
            raise RuntimeError("no query")
        return True

    monkeypatch.setattr(session_pool, "_made_of", sometimes)
    settings = Settings(
        checkpoint=str(tmp_path / "checkpoint"), kafka={"bootstrap.servers": "localhost:1"}, topics="t",
        into=str(tmp_path / "lake"), rejects="t", defaults=Table(topic=".*", format="string"),
    )  # fmt: skip
    landing = Landing(settings, "query", is_running=is_running)
    try:
        part = TopicRange(topic="t", topic_id="", start={0: 0}, end={0: 1})
        landing.land(spark, [part], 0, lambda _: Beginning(known={}, oldest={}))
        assert landing.statuses["t"].state is TableState.STOPPED, "its table is that of the rejects"
        until(lambda: (found := landing.statuses["t"].trouble) and found.n_failures > 1, lambda: landing.statuses)
    finally:
        landing.close()
    assert not failing and "no query" in caplog.text


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", ["upsert", "append"])
def test_a_table_that_is_compacted_does_not_hold_up_the_others_and_follows(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """Changes are not merged meanwhile, and what is added to a table in a local folder is committed by Spark."""
    users, clicks = shop.create("users"), shop.create("clicks")
    json_of = {"format": "json", "schema": "id INT"}
    users_of = {**json_of, "mode": "upsert", "key_format": "string"} if mode == "upsert" else {"format": "json"}
    asked = {
        "registry": None,
        "defaults": Table(topic=".*", **json_of, compact="false"),
        "tables": [Table(topic=rf"{shop.prefix}\.users", **users_of)],
    }

    def send(number: int) -> None:
        for name in ("users", "clicks"):
            shop.send_json(name, [{"id": number, f"new{number}": 1}], keys=["a"])

    def rows() -> tuple[int, int]:
        return ingest.statuses[users].rows, ingest.statuses[clicks].rows

    has_begun, may_end = hold_compaction(monkeypatch)
    send(1)
    with running(shop, **asked) as (ingest, _):
        try:
            assert has_begun.wait(60)
            for number in (2, 3):
                send(number)
                until(lambda number=number: rows() == (1 if mode == "upsert" else number, number), rows)
            if mode == "append":
                assert "Spark is compacting its small files" in (ingest.statuses[users].by_spark or "")
        finally:
            may_end.set()
        until(lambda: rows() == (3, 3), rows)
        n = 3
        while mode == "append" and ingest.statuses[users].by_spark:  # until the compaction is over
            n += 1
            send(n)
            until(lambda n=n: rows() == (n, n), rows)  # type: ignore[misc]
    assert shop.rows("users", "id") == ([(3,)] if mode == "upsert" else [(number + 1,) for number in range(n)])


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_table_of_rejects_that_is_dropped_meanwhile_is_made_anew(shop: Shop) -> None:
    topic, rejects = shop.create("clicks"), shop.folder / "lake" / "_rejects"
    asked = {"registry": None, "defaults": Table(topic=".*", format="json", schema="id INT")}
    with running(shop, **asked) as (ingest, _):
        for n in (1, 2):
            shop.send("clicks", [b'{"id": 1}', b"{damaged"])
            until(
                lambda n=n: ingest.statuses.get(topic) and ingest.statuses[topic].rejects == n, lambda: ingest.statuses
            )
            assert (ingest.statuses[topic].held_rejects, shop.table("_rejects").count()) == (1, 1)
            if n == 1:
                shutil.rmtree(rejects)
    shop.send("clicks", [b'{"id": 1}', b"{damaged"])
    ingest = shop.run(**asked)
    assert ingest.statuses[topic].held_rejects == shop.table("_rejects").count() == 2


@pytest.mark.broker
@pytest.mark.spark
def test_a_new_table_deletes_the_rejects_of_its_own_topic_alone(shop: Shop) -> None:
    """The table of topic ``first`` gets another name, and a table of topic ``second`` takes the old one."""
    first, second = shop.create("first"), shop.create("second")
    held = Table(topic=r".*\.first", name="held", format="json", schema="id INT")
    asked = {"registry": None, "topics": rf"{shop.prefix}\.(first|second)"}
    for documents in ([b'{"id": 1}', b"{damaged"], [b'{"id": 2}']):
        shop.send("first", documents)
        shop.run(**asked | {"topics": rf"{shop.prefix}\.first"}, tables=[held])
    shutil.move(shop.folder / "lake" / "held", shop.folder / "lake" / "moved")
    shop.send("second", [b'{"id": 7}', b"{damaged"])
    other = Table(topic=r".*\.second", name="held", format="json", schema="id INT")
    ingest = shop.run(**asked, tables=[replace(held, name="moved"), other])
    assert {name: status.error for name, status in ingest.statuses.items() if status.error} == {}
    rejects = sorted(row.topic for row in shop.table("_rejects").collect())
    assert rejects == [first, second]


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_other_jobs_commits_are_no_trouble(shop: Shop) -> None:
    """DELETE, OPTIMIZE, UPDATE and ALTER while changes are merged."""
    name = shop.create("users")
    table = f"delta.`{shop.folder}/lake/{shop.prefix}_users`"
    asked = {"defaults": Table(topic=".*", mode="upsert", key_format="string", on_conflict="divert")}
    keys = [b"%d" % n for n in range(10)]
    shop.send("users", list(shop.avro("users", FIRST, [{"id": n} for n in range(10)])), keys=keys)
    shop.run(**asked)
    is_over = threading.Event()

    def disturb() -> None:
        session, number = shop.spark.newSession(), 0
        altering = [f"ALTER TABLE {table} SET TBLPROPERTIES ('n' = '{each}')" for each in range(2)]
        while not is_over.wait(3.0):
            number += 1
            updating = f"UPDATE {table} SET id = id WHERE id % 10 = {number % 10}"
            for statement in (f"DELETE FROM {table} WHERE id < 0", f"OPTIMIZE {table}", updating, *altering[-1:]):
                del altering[-1:]
                try:
                    session.sql(statement)
                except Exception:  # the ingest has committed meanwhile
                    continue

    other = threading.Thread(target=disturb)
    other.start()
    try:
        with running(shop, **asked) as (ingest, query):
            for number in (1, 2):
                values = shop.avro("users", SECOND, [{"id": n + 10 * number, "amount": 0.5} for n in range(10)])
                shop.send("users", list(values), keys=keys)
                until(lambda number=number: (ingest.statuses[name].rows) == 10 * number, lambda: ingest.statuses)
            assert query.isActive and ingest.statuses[name].rejects == 0
    finally:
        is_over.set()
        other.join()
    assert [id for (id,) in shop.rows("users", "id")] == [n + 20 for n in range(10)]
    assert all(each.is_right for each in verify(shop.spark, ingest.settings, [name]))


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(600)
def test_changes_land_beside_another_job_s_steady_updates(shop: Shop) -> None:
    """Two commits that conflict are both of the same files: the ingest's is repeated at once, at random times.

    The neighbour pauses for a multiple of the time that its own UPDATE took, so a busy machine leaves a MERGE as many chances as an
    idle one.
    """
    topic = shop.create("rows")
    table = Table(
        topic=rf"{shop.prefix}\.rows",
        mode="upsert",
        format="json",
        schema="v INT",
        key_format="json",
        key_schema="id INT",
    )

    def send(values: range) -> None:
        shop.send_json("rows", [{"v": v} for v in values], keys=[{"id": v % 7} for v in values])

    send(range(7))
    shop.run(tables=[table])
    path = f"{shop.folder}/lake/{shop.prefix}_rows"
    neighbour, is_over, n_updates = shop.spark.newSession(), threading.Event(), [0]

    def update() -> None:
        pause_s = 0.5
        while not is_over.wait(pause_s):
            begun_s = time.monotonic()
            with suppress(Exception):  # the neighbour's own conflicts
                neighbour.sql(f"UPDATE delta.`{path}` SET v = v WHERE v >= 0")
                n_updates[0] += 1
            pause_s = max(0.5, 4 * (time.monotonic() - begun_s))

    thread = threading.Thread(target=update)
    thread.start()
    try:
        with running(shop, tables=[table]) as (ingest, _):
            first = 0
            while first < 300 or n_updates[0] <= 3:
                first += 100
                assert first < 10_000, "the neighbour commits nothing beside the ingest"
                send(range(first, first + 7))
                until(
                    lambda first=first: sorted(shop.rows("rows", "v")) == [(v,) for v in range(first, first + 7)],  # type: ignore[misc]
                    lambda: ingest.statuses,
                )
                trouble = ingest.statuses[topic].trouble
                assert trouble is None or trouble.n_failures < 3
    finally:
        is_over.set()
        thread.join(60)
