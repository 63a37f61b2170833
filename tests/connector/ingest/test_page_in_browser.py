"""The page of an ingest that runs, in Chromium: `make page`."""

from __future__ import annotations

import io
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from PIL import Image

from pykafka_wire.ingest import Ingest, Table
from pykafka_wire.local import LocalCluster
from pykafka_wire.local.cluster import free_ports
from tests.connector.cli.conftest import SCRIPT
from tests.connector.conftest import QUIET
from tests.connector.ingest.conftest import Shop, avro_schema
from tests.connector.ingest.test_page import CONFLICT, FIRST, HOSTILE, SECOND
from tests.connector.ingest.test_status import terminal_rows
from tests.connector.page.browser import Tab, open_browser

#: README's first picture, and two more of docs/page.md: `DRAW=1 make page` draws them anew, in five minutes.
DOCS = Path(__file__).resolve().parents[3] / "docs"
#: Of a picture in the documentation, which is a third as large as one with all colours.
COLOURS = 96
#: Records of a topic before the start, so that its first micro-batch takes a while.
BACKLOG, SENT_AT_ONCE = 400_000, 50_000
LAKE = Path("/tmp/lake")
ORDER = avro_schema("id long", "country string", "amount double")
REFUND = avro_schema("id string", "country string", "amount string")
COUNTRIES = ("DE", "FR", "IT", "NO", "SE")
#: Rows a second of each topic, and a row; those of the first four are written in Avro.
FLOWS: Mapping[str, tuple[int, Callable[[int], dict[str, Any]]]] = {
    "orders": (160, lambda n: {"id": n, "country": COUNTRIES[n % 5], "amount": n % 300 + 0.5}),
    "payments": (90, lambda n: {"id": n, "country": COUNTRIES[n % 5], "amount": n % 300 + 0.5}),
    "shipments": (25, lambda n: {"id": n, "country": COUNTRIES[n % 5], "amount": 1.5}),
    "invoices": (60, lambda n: {"id": n, "country": COUNTRIES[n % 5], "amount": 9.5}),
    "clicks": (700, lambda n: {"user": n % 500, "page": f"/p/{n % 50}", "ms": n % 900}),
    "sessions": (240, lambda n: {"user": n % 500, "seconds": n % 900}),
    "inventory": (5, lambda n: {"sku": n % 40, "pieces": n % 90}),
    "reviews": (2, lambda n: {"user": n % 500, "stars": n % 6}),
}
AVRO = tuple(FLOWS)[:4]

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]


def test_a_stopped_and_a_rejecting_table_are_seen_and_understood(shop: Shop) -> None:
    for name in ("orders", "stopped", "bad"):
        shop.create(name)
    shop.send_avro("orders", FIRST, [{"id": n, "country": "NO"} for n in range(10)])
    shop.send_avro("stopped", FIRST, [{"id": 1, "country": "NO"}])
    shop.send_json("bad", [{"n": 1, HOSTILE: "a"}])
    ingest = shop.ingest(tables=[Table(topic=r".*\.bad", format="json", schema=f"n INT, `{HOSTILE}` STRING")])
    query = ingest.start(shop.spark, every="0 seconds", ui="0")
    page = ingest.page
    assert page is not None
    try:
        query.processAllAvailable()
        shop.send_avro("orders", SECOND, [{"id": 2**40, "country": "NO", "amount": 1.5}])
        shop.send_avro("stopped", CONFLICT, [{"id": "x", "country": "NO"}])
        shop.send("bad", [b'{"n": "a text", "hidden": "value of a record"}'])
        query.processAllAvailable()
        with open_browser() as browser:
            tab = browser.open(page.url)
            tab.wait_for(".badge[data-state=stopped]", timeout_s=60)
            tab.wait_for(".cell.rejects:has-text('1')", timeout_s=60)
            first = tab.text(".tables .row:not(.heads)")
            assert first.startswith(f"Stopped {shop.prefix}.stopped")
            assert "cannot store its topic's values: id is " in first
            assert tab.violations() == []
            tab.picture("real-tables")

            tab.click(f"a:has-text('{shop.prefix}.orders')")
            tab.wait_for(".change.widened:has-text('int → bigint')", timeout_s=60)
            assert "amount" in tab.text(".change.added")
            assert tab.violations() == []
            tab.picture("real-table")

            tab.press("Escape")
            tab.click(f"a:has-text('{shop.prefix}.bad')")
            tab.wait_for(".reject-reason", timeout_s=60)
            assert HOSTILE in " ".join(tab.texts("td code"))
            assert "value of a record" not in tab.text("main")
            assert "start with --ui-values to see it" in tab.text(".reject-list")
            tab.picture("real-rejects")

            tab.press("2")
            tab.wait_for("text=Micro-batch ", timeout_s=60)
            assert all(phase in tab.text(".plot-text") for phase in ("planning", "fetching", "writing", "committing"))
            assert tab.text(".facts:has-text('Spark')").count("4.2") == 1
            tab.picture("real-ingest")
            query.stop()
            tab.wait_for(".live:has-text('Ended')", timeout_s=60)
            assert (tab.messages, tab.dialogs) == ([], [])
    finally:
        query.stop()
        page.close()


def test_page_and_terminal_agree_while_landing_in_trouble_and_after_a_restart(shop: Shop) -> None:
    for name in ("orders", "stopped"):
        shop.create(name)
    for first in range(0, 200_000, 50_000):  # as many as a producer holds, and more than land before a page is open
        shop.send_avro("orders", FIRST, [{"id": n, "country": "NO"} for n in range(first, first + 50_000)])
    shop.send_avro("stopped", FIRST, [{"id": 1, "country": "NO"}])
    orders = f"{shop.prefix}.orders"
    by_spark = {
        "tables": [Table(topic=rf"{shop.prefix}\.orders", write="spark")]
    }  # takes seconds, in which a page is looked at

    def agree(tab: Tab, ingest: Ingest) -> None:
        """Wait until the page's list has the figures of the terminal, but for the freshness, which changes."""
        deadline, rows = time.monotonic() + 60, dict[str, list[str]]()
        while time.monotonic() < deadline:
            rows = {name: [row[0], *row[2:]] for name, row in terminal_rows(ingest.status()).items()}
            shown = dict(
                zip((alias[2:] for alias in tab.texts(".row .alias:not(:empty)") if alias[0] == "→"),
                    zip(*(map(plain, tab.texts(f".cell{each}:not(.heads *)")) for each in LIST), strict=True), strict=True)
            )  # fmt: skip
            if {name: [plain(cell) for cell in row] for name, row in rows.items()} == {
                k: [*v] for k, v in shown.items()
            }:
                return
            tab.pause(500)
        raise AssertionError((rows, shown))

    with open_browser() as browser:
        ingest = shop.ingest(**by_spark)
        query = ingest.start(shop.spark, every="0 seconds", ui="0")
        try:
            assert ingest.page is not None
            tab = browser.open(f"{ingest.page.url}#/table/{orders}")
            tab.wait_for(".badge:is([data-state=queued], [data-state=landing], [data-state=committing])", timeout_s=60)
            text = tab.text("main")
            assert not any(words in text for words in ("Starting", "not moving", "was not opened", "INSTALL"))
            query.processAllAvailable()
            tab.wait_for("main:has-text('caught up')", timeout_s=60)
            shop.send_avro("stopped", CONFLICT, [{"id": "x", "country": "NO"}, {"id": "y", "country": "NO"}])
            query.processAllAvailable()
            tab.press("Escape")
            tab.wait_for(".figure:has-text('of tables in trouble')", timeout_s=60)
            assert "1 stopped" in tab.text(".figures") and "all well" not in tab.text(".figures")
            assert "200,001 since the start" in tab.text(".figures")
            agree(tab, ingest)
            tab.picture("real-trouble")
        finally:
            query.stop()
            ingest.close()
        ingest = shop.ingest(**by_spark)
        query = ingest.start(shop.spark, every="0 seconds", ui="0")
        try:
            query.processAllAvailable()
            tab = browser.open(f"{ingest.page.url}#/table/{orders}" if ingest.page is not None else "")
            tab.wait_for("td:has-text('write')", timeout_s=60)  # its commits
            tab.wait_for(".badge:has-text('Up to date')", timeout_s=60)
            text = tab.text("main")
            assert "no new rows yet" in text and "Commits 0 since the start" in text
            assert "nothing landed yet" not in text and "Schema id none" not in text
            tab.picture("real-restart")
            tab.press("Escape")
            tab.wait_for(".row .name")
            agree(tab, ingest)
        finally:
            query.stop()
            ingest.close()


#: The figures of a table in the page's list, in the order of a terminal's, without the freshness.
LIST = (".state", ".lag span:first-child", ".rows_per_second .rate", ".rows", ".rejects", ".schema_id")


def plain(text: str) -> str:
    """A figure without what differs between a terminal and a page: capitals, blanks, a long dash, a part of a record."""
    return re.sub(r"\s", "", text).replace("–", "-").lower()


def test_the_first_picture_is_of_an_ingest_that_runs(shop: Shop) -> None:
    """Eight topics, one of which waits, one is stopped and one has rejects."""
    shop.prefix = "shop"
    seconds = 90 if "DRAW" in os.environ else 30
    for name in FLOWS:
        shop.create(name)
    ended = threading.Event()
    writer = threading.Thread(target=write, args=(shop, ended, seconds * 0.6), daemon=True)
    asked: dict[str, Any] = {
        "into": str(LAKE / "shop"),
        "name": "shop",
        "tables": [
            Table(topic=r"shop\.reviews", format="json", schema="user INT, stars INT", min_rows=1000, max_delay="10m"),
            Table(topic=r"shop\.clicks", format="json", schema="user INT, page STRING, ms INT"),
            *(Table(topic=rf"shop\.{name}", format="json") for name in FLOWS if name not in AVRO),
        ],
    }
    ingest = shop.ingest(**asked)
    assert not LAKE.exists(), f"{LAKE} is a name for the picture: move it away"
    for name in AVRO:  # so that the registry has the schemas at the start
        shop.send_avro(name, ORDER, [FLOWS[name][1](n) for n in range(4_000)])
    for first in range(0, BACKLOG, SENT_AT_ONCE):
        shop.send_json("clicks", [FLOWS["clicks"][1](n) for n in range(first, first + SENT_AT_ONCE)])
    writer.start()
    query = None
    try:
        query = ingest.start(shop.spark, every="5 seconds", ui="0")
        assert ingest.page is not None
        with open_browser() as browser:
            tab = browser.open(ingest.page.url, size=(1280, 640))
            tab.wait_for(".row:has-text('shop.clicks') .badge[data-state=landing]", timeout_s=120)
            draw(tab, "page-landing.png")
            tab.wait_for(".badge[data-state=waiting]", timeout_s=seconds + 120)
            tab.wait_for(".badge[data-state=stopped]", timeout_s=seconds + 120)
            tab.pause(int(seconds * 400))
            rows = tab.texts(".tables .row:not(.heads)")
            assert rows[0].startswith("Stopped shop.payments")
            assert "cannot store its topic's values" in rows[0]
            (waits,) = [row for row in rows if "shop.reviews" in row]
            assert "up to" in waits
            draw(tab, "page.png")
            query.stop()
            ingest.close()
            ingest = shop.ingest(**asked)
            query = ingest.start(shop.spark, every="5 seconds", ui="0")
            assert ingest.page is not None
            tab = browser.open(f"{ingest.page.url}#/table/shop.orders", size=(1280, 640))
            tab.wait_for("td:has-text('write')", timeout_s=120)  # commits of the earlier run
            draw(tab, "page-restart.png")
    finally:
        ended.set()
        writer.join()
        if query is not None:
            query.stop()
        if ingest.page is not None:
            ingest.page.close()
        shutil.rmtree(LAKE, ignore_errors=True)


def draw(tab: Tab, name: str) -> None:
    """Take a picture; with DRAW it is the documentation's."""
    data = tab.screenshot()
    assert 20_000 < len(data) < 150_000, (name, len(data))
    if "DRAW" in os.environ:
        picture = Image.open(io.BytesIO(data)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
        picture.save(DOCS / name, optimize=True)


def accepts(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def read_document(url: str, path: str) -> tuple[dict[str, Any], int, float]:
    """A document of the page, with its bytes and the seconds that it took."""
    begun_at = time.monotonic()
    with urllib.request.urlopen(url + path, timeout=30) as response:
        data = response.read()
    return json.loads(data), len(data), time.monotonic() - begun_at


@contextmanager
def running(*arguments: str, environment: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """The command ``ingest`` in a process group of its own, which is killed at the end."""
    command = [str(SCRIPT), "ingest", *arguments]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True, env={**os.environ, **(environment or {})}
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_page_in_trouble_never_looks_alive_and_recovers(host: str, tmp_path: Path) -> None:
    """Ten thousand rejects, brokers that do not respond, a driver that is killed and started again."""
    (port,), token = free_ports(1), "" if host == "127.0.0.1" else "a-token-of-ones-own"
    with LocalCluster() as kafka:
        producer = Producer({**QUIET, "bootstrap.servers": kafka.bootstrap_servers})
        admin = AdminClient({**QUIET, "bootstrap.servers": kafka.bootstrap_servers})
        for name, n_bad in (("clicks", 10_000), ("orders", 0)):
            admin.create_topics([NewTopic(f"shop.{name}", 1, 1)])[f"shop.{name}"].result(60)
            for n in range(12_000):
                producer.produce(f"shop.{name}", b"{" if n < n_bad else b'{"n": %d}' % n)
                producer.poll(0)
        assert producer.flush(60) == 0
        file = tmp_path / "shop.toml"
        file.write_text(
            f"checkpoint = '{tmp_path}/lake/_checkpoint'\ntopics = 'shop\\..*'\ninto = '{tmp_path}/lake'\n"
            f"[kafka]\n'bootstrap.servers' = '{kafka.bootstrap_servers}'\n[defaults]\nformat = 'json'\nschema = 'n INT'\n",
            encoding="utf-8",
        )
        asked = [str(file), "--every", "2s", "--ui", f"{host}:{port}", *(["--ui-token", "env:TOKEN"] if token else [])]
        url = f"http://127.0.0.1:{port}/"
        with open_browser() as browser, running(*asked, environment={"TOKEN": token}) as first:
            deadline = time.monotonic() + 240
            while not accepts(port):
                assert time.monotonic() < deadline and first.poll() is None
                time.sleep(0.5)
            link = f"{url}#token={quote(token)}" if token else url
            tab = browser.open(link)
            tab.wait_for(".cell.rejects:has-text('10,000')", timeout_s=180)
            if not token:
                for path in (
                    "api/ingest",
                    "api/tables",
                    "api/table?topic=shop.clicks",
                    "api/table/history?topic=shop.clicks",
                ):
                    _, n_bytes, seconds = read_document(url, path)
                    assert n_bytes < 100_000 and seconds < 10, (path, n_bytes, seconds)
            tab.click("a:has-text('shop.clicks')")
            tab.wait_for(".rejects-panel:has-text('The newest 20 of 10,000')", timeout_s=60)
            assert tab.texts(".reject-place span:first-child")[0] == "partition 0, offset 9,999"
            for scheme in ("light", "dark"):
                for size in ((1280, 800), (390, 844)):
                    for place in ("#/", "#/table/shop.clicks", "#/ingest"):
                        seen = browser.open(link, size=size, scheme=scheme)
                        seen.wait_for("main:not([aria-busy])")
                        seen.evaluate(f"location.hash = '{place}'")
                        seen.pause(2_000)
                        seen.picture(f"trouble-{host}-{place.rpartition('/')[2]}-{size[0]}-{scheme}")
                        assert seen.violations() == []
                        seen.close()
            tab.press("Escape")
            (broker,) = kafka.nodes
            broker.pause()
            tab.wait_for("#banner:has-text('Brokers have not responded for ')", timeout_s=60)
            assert tab.text(".live") == "No response from brokers" and "all well" not in tab.text(".figures")
            assert tab.violations() == []
            tab.picture(f"trouble-{host}-brokers-gone")
            broker.resume()
            tab.wait_for(".live:has-text('Live')", timeout_s=60)
            assert tab.is_hidden("#banner") and first.poll() is None
            os.killpg(first.pid, signal.SIGKILL)
            first.wait(30)  # else the system still knows the process, and the lease of the checkpoint is taken for held
            tab.wait_for(".live:has-text('Last seen')", timeout_s=6)
            assert "No response: the ingest has ended or was killed" in tab.text("#banner")
            tab.picture(f"trouble-{host}-killed")
            with running(*asked, environment={"TOKEN": token}):
                tab.wait_for(".live:has-text('Live')", timeout_s=180)
                assert tab.is_hidden("#banner")
                tab.wait_for(".cell.rejects:has-text('10,000')", timeout_s=60)


def write(shop: Shop, ended: threading.Event, conflict_s: float) -> None:
    """Write to all topics, each second as many as it has, more or less; one topic's schema changes in a way that no table can."""
    chance, n, second = random.Random(7), 0, 0
    while not ended.wait(1.0):
        second += 1
        for name, (rate, row) in FLOWS.items():
            rows = [row(n + i) for i in range(round(rate * chance.uniform(0.3, 1.7)))]
            n += len(rows)
            if name == "payments" and second > conflict_s:
                shop.send_avro(name, REFUND, [{key: str(value) for key, value in each.items()} for each in rows])
            elif name in AVRO:
                shop.send_avro(name, ORDER, rows)
            else:
                shop.send_json(name, rows)
        if second % 20 == 10:
            shop.send("clicks", [b'{"user": "somebody", "page": "/", "ms": 1}'])
