"""The page of an ingest that runs, in Chromium: `make page`."""

from __future__ import annotations

import pytest

from pykafka_wire.ingest import Table
from tests.connector.ingest.conftest import Shop
from tests.connector.ingest.test_page import CONFLICT, FIRST, HOSTILE, SECOND
from tests.connector.page.browser import open_browser

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
            assert "Failed to merge fields 'id' and 'id'" in first
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
            assert "which is shown with --ui-values" in tab.text(".rejects")
            tab.picture("real-rejects")

            tab.press("2")
            tab.wait_for("text=Micro-batch ", timeout_s=60)
            assert "landing" in tab.text(".plot-text")
            assert tab.text(".facts:has-text('Spark')").count("4.2") == 1
            tab.picture("real-ingest")
            query.stop()
            tab.wait_for(".live:has-text('Ended')", timeout_s=60)
            assert (tab.messages, tab.dialogs) == ([], [])
    finally:
        query.stop()
        page.close()
