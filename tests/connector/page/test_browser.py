"""The page in Chromium: `make page`, with Debian's package and Playwright. Axe judges contrast and names, the tests the rest.

Snapshots are synthetic here; ``tests/connector/ingest/test_page_in_browser.py`` looks at an ingest that runs.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from pykafka_wire.ingest_status import IngestStatus, ordered
from pykafka_wire.page import PageSettings
from pykafka_wire.page.sampling import Samples
from pykafka_wire.page.server import Page
from tests.connector.ingest import test_status as situations
from tests.connector.page.browser import Browser, Tab, open_browser
from tests.connector.page.synthetic import HOSTILE, STOPPED, SyntheticSource, filled_samples

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

WIDE, NARROW = (1280, 800), (390, 844)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as found:
        yield found


@pytest.fixture
def tab(browser: Browser) -> Iterator[Callable[..., Tab]]:
    tabs = []

    def open_tab(page: Page, place: str = "", **more: Any) -> Tab:
        tabs.append(browser.open(page.url + place, **more))
        return tabs[-1]

    yield open_tab
    for each in tabs:
        each.close()


@pytest.fixture
def serve() -> Iterator[Callable[..., Page]]:
    pages = []

    def start(source: SyntheticSource, settings: PageSettings | None = None, *, is_new: bool = False) -> Page:
        page = Page(settings or PageSettings())
        pages.append(page)
        page.serve(source, Samples() if is_new else filled_samples(source))
        return page

    yield start
    for page in pages:
        page.close()


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("n_tables", [3, 500])
def test_every_view_is_legible_and_fits(
    serve: Any, tab: Any, size: tuple[int, int], scheme: str, n_tables: int
) -> None:
    page = serve(SyntheticSource(n_tables))
    topics = ["shop.orders", "shop.clicks"]  # rejecting, stopped
    for place in ("", "#/ingest", *(f"#/table/{topic}" for topic in topics)):
        found = tab(page, place, size=size, scheme=scheme)
        found.wait_for("main:not([aria-busy])")
        if place.startswith("#/table"):
            found.wait_for("text=made with 11 columns")
        assert found.violations() == []
        assert found.evaluate("document.documentElement.scrollWidth") == size[0], "nothing is wider than the screen"
        assert found.messages == []
        found.picture(f"{n_tables}-{scheme}-{size[0]}-{re.sub('[^a-z]+', '-', place) or 'tables'}")
        found.close()


@pytest.mark.parametrize("size", [WIDE, (1100, 700), NARROW], ids=["wide", "middle", "narrow"])
def test_the_names_of_a_topic_and_its_table_are_whole_at_every_length(
    serve: Any, tab: Any, size: tuple[int, int]
) -> None:
    names = ("shop.customers", "prod-eu.inventory.public.customer_addresses.v2", "x" * 120)
    source = SyntheticSource(12, first=names)
    found = tab(serve(source), size=size)
    found.wait_for(".row .name")
    shown = "[...document.querySelectorAll('.row .name, .row .alias')]"
    assert len(found.evaluate(f"{shown}.map((e) => e.textContent)")) == 24
    assert found.evaluate(f"{shown}.filter((e) => e.scrollWidth > e.clientWidth + 1).map((e) => e.textContent)") == []
    assert found.evaluate("document.documentElement.scrollWidth") == size[0]
    # A short name and its table stand in one line, where the columns stand beside each other.
    if size == WIDE:
        tops = "[...document.querySelectorAll('.row[role=row]:not(.heads)')].find((e) => e.textContent.includes('shop.customers'))"
        assert (
            found.evaluate(f"new Set([...{tops}.querySelectorAll('.name, .alias')].map((e) => e.offsetTop)).size") == 1
        )


def test_a_table_s_panels_say_that_its_log_is_read(serve: Any, tab: Any) -> None:
    source = SyntheticSource(3)
    reading, read = threading.Event(), source.history

    def slow(*asked: Any, **more: Any) -> Any:
        reading.wait(60)
        return read(*asked, **more)

    source.history = slow  # type: ignore[method-assign]
    try:
        found = tab(serve(source), "#/table/shop.orders")
        found.wait_for("main:not([aria-busy])")
        for title in ("Columns", "Schema", "Commits", "Newest rejects"):
            assert found.text(f".panel:has(h2:text-is('{title}'))").endswith("Reading the table's log …"), title
    finally:
        reading.set()
    found.wait_for("text=made with 11 columns")
    assert "Reading the table's log" not in found.text("main")


def test_a_log_that_cannot_be_read_is_not_shown_as_being_read(serve: Any, tab: Any) -> None:
    source = SyntheticSource(3)

    def broken(topic: str) -> Any:
        raise OSError("no such file")

    source.history = broken  # type: ignore[method-assign]
    found = tab(serve(source), "#/table/shop.orders")
    found.wait_for(".notice:has-text('log cannot be shown')")
    assert "Reading the table's log" not in found.text("main")


def test_trouble_is_on_top_and_says_what_is_the_matter(serve: Any, tab: Any) -> None:
    found = tab(serve(SyntheticSource(12)))
    found.wait_for(".row .name")
    rows = found.texts(".tables .row:not(.heads)")
    assert rows[0].startswith("Stopped")
    assert "Failed to merge fields" in rows[0]
    assert "since 12 min" in rows[0]
    assert rows[1].startswith("Retrying")
    assert re.search(r"trying again (in \d+ s|now)", rows[1])
    assert [row.split()[0] for row in rows] == ["Stopped", "Retrying", *["Landing"] * 5, "Waiting", *["Up"] * 4]
    assert found.title().startswith("(2) ")
    found.click("a:has-text('shop.clicks')")
    found.wait_for(".error h2:has-text('The table is stopped; the other tables continue')")
    of_error = found.text(".error:not([hidden])")
    assert "trying again in" in of_error and of_error.count(STOPPED.code) == 1, (
        "the code stands below the sentence alone"
    )


@pytest.mark.parametrize("make", situations.SITUATIONS)
def test_no_figure_of_a_table_is_cut_at_a_usual_width(serve: Any, tab: Any, make: Callable[[], IngestStatus]) -> None:
    source = SyntheticSource(0)
    source.status = make()
    page = serve(source, is_new=True)
    cut = "[...document.querySelectorAll('.figures dd')].filter((e) => e.scrollWidth > e.clientWidth).map((e) => e.textContent)"
    for size in ((1200, 700), (390, 844)):
        seen = tab(page, "#/table/t", size=size)
        seen.wait_for(".figures.small dd")
        assert seen.evaluate(cut) == []


@pytest.mark.parametrize("width", [1000, 1100, 1200, 1280, 1440])
def test_no_figure_of_the_list_is_cut(serve: Any, tab: Any, width: int) -> None:
    """14,440 rows a second must not look like 14,44."""
    source = SyntheticSource(0)
    source.status = situations.with_large_figures()
    seen = tab(serve(source), size=(width, 800))
    seen.wait_for(".row .rate:has-text('100,000')")
    cells = ".row:not(.heads) :is(.freshness_s, .lag span, .rate, .rows, .rejects, .files, .bytes)"
    # Of a text that is centred or to the right, the overflow on the left is in no scrollWidth.
    cut = f"""[...document.querySelectorAll('{cells}')].filter((e) => {{
      const range = document.createRange(); range.selectNodeContents(e);
      const text = range.getBoundingClientRect(), cell = e.closest('.cell').getBoundingClientRect();
      return text.width && (text.left < cell.left - 1 || text.right > cell.right + 1);
    }}).map((e) => e.textContent)"""
    assert seen.evaluate(cut) == []


def plain(text: str) -> str:
    """A figure without what differs between a terminal and a page: capitals, blanks, a long dash."""
    return re.sub(r"\s", "", text).replace("–", "-").lower()


def open_status(serve: Any, tab: Any, make: Callable[[], IngestStatus], place: str = "") -> Tab:
    source = SyntheticSource(0)
    source.status = make()
    found: Tab = tab(serve(source, is_new=True), place)
    found.wait_for("main:not([aria-busy])")
    return found


@pytest.mark.parametrize("make", situations.SITUATIONS)
def test_the_page_shows_what_a_terminal_shows(serve: Any, tab: Any, make: Callable[[], IngestStatus]) -> None:
    found = open_status(serve, tab, make)
    found.wait_for(".row .name")
    columns = (".state", ".freshness_s", ".lag span:first-child", ".rate", ".rows", ".rejects", ".schema_id")
    for number, (name, figures) in enumerate(situations.terminal_rows(make()).items(), 2):
        row = f".tables [role=rowgroup]:last-child .row:nth-child({number - 1})"
        assert found.text(f"{row} .alias") == f"→ {name}", "the list has the table's name"
        shown = [plain(found.text(f"{row} {column}")) for column in columns]
        for figure, of_page in zip(map(plain, figures), shown, strict=True):
            assert figure == of_page or (figure == "-" and of_page == "0"), (figures, shown)
    total = sum(table.rows for table in make().tables)
    assert f"Rows {total} since the start" in found.text(".figures")
    assert found.violations() == []


def test_after_a_restart_no_table_looks_empty(serve: Any, tab: Any) -> None:
    found = open_status(serve, tab, situations.after_a_restart, "#/table/t")
    found.wait_for("text=made with 11 columns")
    text = found.text("main")
    assert "no new rows yet" in text and "nothing landed yet" not in text
    assert "Commits 0 since the start" in text, "not that the table has none, whose commits stand below"
    assert "Schema id 12" in text
    found = open_status(serve, tab, situations.after_a_restart, "#/ingest")
    assert "Continuing where the tables ended, for 5.0 s: 0 of 4 records." in found.text("main")
    assert "100,60" not in found.text("main"), "the micro-batch was committed by an earlier run"


def test_a_table_that_lands_for_the_first_time_is_not_called_unknown(serve: Any, tab: Any) -> None:
    found = open_status(serve, tab, situations.while_landing)
    assert "all well" in found.text(".figures")
    for place in ("", "#/table/t"):
        text = open_status(serve, tab, situations.while_landing, place).text("main")
        assert "Landing 50 %" in text and "to catch up" in text
        assert not any(words in text for words in ("Starting", "starting", "not moving", "not opened"))
    assert "none" not in text.partition("Schema id")[2].splitlines()[0], "an Avro table has a schema of the registry"
    assert "Schema id not known yet" in text
    assert "4,000" in text.partition("Log end")[2], "its partitions are those of the micro-batch"


def test_a_lag_is_of_tables_in_trouble_only_where_tables_are(serve: Any, tab: Any) -> None:
    figures = open_status(serve, tab, situations.in_trouble).text(".figures")
    assert "Lag 2 of tables in trouble" in figures
    assert "1 stopped" in figures and "all well" not in figures
    figures = open_status(serve, tab, situations.behind).text(".figures")
    assert "Lag 2 yet to be landed" in figures
    assert "all well" in figures and "trouble" not in figures


def with_trouble(reason: str | None, *, is_stopped: bool = True) -> IngestStatus:
    """Two tables, of which one has this trouble, or none."""
    status = situations.in_trouble()
    now = status.moment.now
    tables = []
    for table in status.tables:
        trouble = table.trouble and (
            reason
            and replace(table.trouble, reason=reason, is_stopped=is_stopped, since=now - 5, next_attempt=now + 60)
        )
        tables.append(replace(table, trouble=trouble or None))
    return replace(status, tables=ordered(tables))


def test_an_open_list_follows_a_table_into_trouble_and_out_of_it(serve: Any, tab: Any) -> None:
    source = SyntheticSource(0)
    source.status = with_trouble(None)
    found = tab(serve(source, is_new=True))
    found.wait_for(".figure:has-text('all well')")
    assert found.title().startswith("Tables") and found.texts(".cell.trouble:not([hidden])") == []
    source.status = with_trouble("its broker has gone", is_stopped=False)
    found.wait_for(".tables .row:nth-child(1) .badge[data-state=retrying]")
    assert "its broker has gone" in found.text(".cell.trouble:not([hidden])")
    assert "1 retrying" in found.text(".figures") and found.title().startswith("(1) ")
    source.status = with_trouble("a column was dropped")
    found.wait_for(".tables .row:nth-child(1) .badge[data-state=stopped]")
    assert "a column was dropped" in found.text(".cell.trouble:not([hidden])")
    assert "its broker" not in found.text("main") and "1 stopped" in found.text(".figures")
    source.status = with_trouble(None)
    found.wait_for(".figure:has-text('all well')")
    assert found.texts(".cell.trouble:not([hidden])") == [] and "a column was dropped" not in found.text("main")
    assert found.title().startswith("Tables") and found.messages == []


def test_an_open_table_follows_its_trouble_and_shows_none_after_it(serve: Any, tab: Any) -> None:
    source = SyntheticSource(0)
    source.status = with_trouble("its broker has gone", is_stopped=False)
    found = tab(serve(source, is_new=True), "#/table/t")
    found.wait_for(".error h2:has-text('could not be landed and is retried')")
    assert "its broker has gone" in found.text(".error:not([hidden])")
    source.status = with_trouble("a column was dropped")
    found.wait_for(".error h2:has-text('The table is stopped')")
    assert "a column was dropped" in found.text(".error:not([hidden])") and "its broker" not in found.text("main")
    source.status = with_trouble(None)
    found.wait_for(".title .badge:not([data-state=stopped])")
    assert found.texts(".error:not([hidden])") == [] and "a column was dropped" not in found.text("main .figures")
    assert found.violations() == []


def test_readers_that_a_table_will_lose_and_has_lost_are_named(serve: Any, tab: Any) -> None:
    """Before it happens in the list and above the table, afterwards beside its queries."""
    found = open_status(serve, tab, situations.before_readers_are_lost)
    assert [text.strip() for text in found.texts(".cell.trouble:not([hidden])")] == [
        f"{situations.LOST} with its next rows"
    ]
    found = open_status(serve, tab, situations.before_readers_are_lost, "#/table/t")
    assert situations.LOST in found.text(".lost-readers") and "exclude" in found.text(".lost-readers h2")
    found.wait_for("text=made with 11 columns")
    assert found.text(".limited-readers") == "" and found.violations() == []
    found = open_status(serve, tab, situations.in_trouble, "#/table/u")
    assert found.is_hidden(".lost-readers")
    source = SyntheticSource(3)
    source.limited_readers = ("The table has Delta's feature variantType: Polars refuses the table.",)
    found = tab(serve(source), "#/table/shop.orders")
    found.wait_for(".limited-readers:has-text('Polars refuses the table')")
    assert found.violations() == []


def test_two_records_are_not_fetched_for_two_minutes(serve: Any, tab: Any) -> None:
    text = open_status(serve, tab, situations.behind, "#/ingest").text("main")
    assert "fetching 0.1 s, writing 0.3 s, driver 2 min" in text
    assert "Waiting for new records." in text
    text = open_status(serve, tab, situations.before_the_first_read, "#/ingest").text("main")
    assert "Planning a micro-batch." in text and "Waiting" not in text


def test_headings_stand_above_their_columns(serve: Any, tab: Any) -> None:
    found = tab(serve(SyntheticSource(12)))
    found.wait_for(".row .name")
    tops = found.evaluate(
        "[...document.querySelectorAll('.heads button')].map((e) => Math.round(e.getBoundingClientRect().top))"
    )
    assert len(tops) == 10 and len(set(tops)) == 1, tops
    for column in (".freshness_s", ".lag", ".rows_per_second", ".rows", ".rejects", ".files", ".bytes", ".schema_id"):
        part = {".lag": " span", ".rows_per_second": " .rate"}.get(column, "")
        head, figure = (
            found.evaluate(RIGHT_EDGE % each)
            for each in (f".heads {column} button", f"{column}.cell:not(.heads *){part}")
        )
        assert abs(head - figure) <= 1, column


#: Of the text in an element.
RIGHT_EDGE = """(() => {
  const range = document.createRange();
  range.selectNodeContents(document.querySelector(`%s`));
  return range.getBoundingClientRect().right;
})()"""


def test_tables_are_filtered_by_words_and_by_state(serve: Any, tab: Any) -> None:
    found = tab(serve(SyntheticSource(500)))
    found.wait_for(".row .name")
    assert len(found.texts(".row .name")) == 500
    found.fill("#filter", "ORDERS .07")
    assert found.texts(".row .name") == ["shop.orders.07"]
    assert found.texts(".shown") == ["1 of 500 tables"]
    found.fill("#filter", "registry did not respond")
    # Rows out of sight have no text until they are drawn.
    assert {text.split()[0] for text in found.texts(".tables .row:not(.heads)") if text} == {"Retrying"}
    found.fill("#filter", "no such thing")
    assert "No table matches." in found.text("main")
    found.press("Escape")
    assert len(found.texts(".row .name")) == 500
    found.click("button:has-text('Stopped')")
    assert {text.split()[0] for text in found.texts(".tables .row:not(.heads)") if text} == {"Stopped"}
    found.click("button:has-text('Stopped')")
    found.click("[role=columnheader] button:has-text('Topic')")
    names = found.texts(".row .name")
    assert names[:2] == ["shop.carts", "shop.carts.01"]
    assert found.attribute("[role=columnheader].topic", "aria-sort") == "ascending"


def test_it_is_used_by_keys_alone(serve: Any, tab: Any) -> None:
    found = tab(serve(SyntheticSource(12)))
    found.wait_for(".row .name")
    found.press("j")
    assert found.evaluate("document.activeElement.textContent") == "shop.clicks"
    found.press("j")
    found.press("k")
    found.press("Enter")
    found.wait_for("h1:has-text('shop.clicks')")
    assert found.evaluate("document.activeElement.id") == "main", "a reader's place is at the new view"
    found.press("Escape")
    found.wait_for(".row .name")
    found.press("/")
    found.type("pay")
    assert found.texts(".row .name") == ["shop.payments"]
    found.press("Escape")
    assert len(found.texts(".row .name")) == 12
    found.press("2")
    found.wait_for("text=Work by table")
    found.press("1")
    found.wait_for(".row .name")
    found.press("?")
    assert found.evaluate("document.getElementById('help').open")
    found.press("Enter")
    assert not found.evaluate("document.getElementById('help').open")
    for _ in range(4):
        found.press("Tab")
    assert found.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid", "the focus is seen"


def test_names_from_topics_are_texts_whatever_is_in_them(serve: Any, tab: Any) -> None:
    source = SyntheticSource(4, hostile=True)
    source.shows_values = True
    found = tab(serve(source))
    found.wait_for(".row .name")
    name = next(text for text in found.texts(".row .name") if "script" in text)
    assert name == re.sub("[\u202e\u0007]", "\ufffd", HOSTILE), "what reorders a text is seen"
    found.click(".row:has-text('alert(1)')")
    found.wait_for("text=made with 11 columns")
    assert found.text("h1").strip() == name
    assert any("<img src=1" in text for text in found.texts(".reject-reason"))
    assert any("<img src=1" in text for text in found.texts("td code"))
    assert found.evaluate("document.querySelectorAll('img').length") == 1, "the page's own"
    assert found.evaluate("document.scripts.length") == 1
    assert found.messages == []
    assert found.dialogs == []
    assert {url.split("/")[2] for url in found.requests} == {found.url.split("/")[2]}


def test_the_query_is_copied_by_a_click(serve: Any, tab: Any) -> None:
    found = tab(serve(SyntheticSource(3)), "#/table/shop.orders")
    found.wait_for(".queries code")
    found.click("button:has-text('Polars')")
    found.click("button:has-text('Copy')")
    found.wait_for("text=copied")
    assert found.evaluate("navigator.clipboard.readText()") == SyntheticSource(3).queries("shop.orders")["Polars"]


def test_a_page_that_loses_its_ingest_says_since_when_and_comes_back(serve: Any, tab: Any) -> None:
    source = SyntheticSource(12)
    page = serve(source)
    found = tab(page)
    found.wait_for(".live:has-text('Live, running 2 h')")
    page.close()
    found.wait_for(".live:has-text('Last seen')", timeout_s=30)
    assert "Disconnected. These figures are from" in found.text("#banner")
    assert len(found.texts(".row .name")) == 12, "what was seen last stays"
    assert found.violations() == []
    found.picture("disconnected")
    serve(source, replace(page.settings, port=page.port))
    found.wait_for(".live:has-text('Live, running 2 h')", timeout_s=30)
    assert found.is_hidden("#banner")


def test_a_driver_that_does_not_respond_is_told_from_a_server_that_is_gone(serve: Any, tab: Any) -> None:
    source = SyntheticSource(3)
    found = tab(serve(source))
    found.wait_for(".live:has-text('Live')")
    source.is_broken = True
    found.wait_for(".live:has-text('Last seen')", timeout_s=60)
    assert "driver does not respond" in found.text("#banner")


def test_a_starting_an_empty_and_an_ended_ingest_say_what_they_are(serve: Any, tab: Any) -> None:
    source = SyntheticSource(0)
    source.is_broken = True
    found = tab(serve(source, is_new=True))
    found.wait_for("#banner:has-text('The ingest is starting')")
    assert found.is_visible(".skeleton")
    found.picture("starting")
    source.is_broken = False
    found.wait_for("text=No topic matches shop\\..* yet.", timeout_s=30)
    assert found.violations() == []
    found.picture("empty")
    source.state = "ended"
    found.wait_for("#banner:has-text('The ingest has ended.')", timeout_s=30)


def test_a_topic_that_is_gone_is_no_error_of_the_page(serve: Any, tab: Any) -> None:
    found = tab(serve(SyntheticSource(3)), "#/table/shop.gone%2F%3Cb%3E")
    found.wait_for("text=No such topic")
    assert "shop.gone/<b>" in found.text("main")
    assert found.violations() == []


def test_the_token_leaves_the_address_and_is_asked_for_without_it(serve: Any, tab: Any) -> None:
    page = serve(SyntheticSource(3), PageSettings(host="0.0.0.0"))
    token = page.url.partition("#token=")[2]
    here = f"http://127.0.0.1:{page.port}/"
    found = tab(replace_url(page, f"{here}#token={token}"))
    found.wait_for(".row .name")
    assert token not in found.evaluate("location.href")
    assert found.evaluate("document.cookie") == ""
    assert not any(token in url for url in found.requests)
    found = tab(replace_url(page, here))
    found.wait_for("#token")
    assert found.violations() == []
    found.picture("token")
    found.fill("#token", "wrong")
    found.press("Enter")
    found.wait_for("text=This token is wrong")
    found.fill("#token", token)
    found.press("Enter")
    found.wait_for(".row .name")


class replace_url:  # noqa: N801
    """A page by another address than its own link."""

    def __init__(self, page: Page, url: str) -> None:
        self.url = url


def test_five_hundred_tables_stay_smooth(serve: Any, tab: Any) -> None:
    found = tab(serve(SyntheticSource(500)))
    found.wait_for(".row .name")
    found.wait_for(".row .plot-line[d*=L]")
    drawn = found.evaluate("document.querySelectorAll('.row .plot-line[d*=L]').length")
    assert drawn < 100, "rows that were not on the screen are not drawn"
    with found.measured_tasks() as tasks:
        for _ in range(30):
            found.wheel(600)
        found.pause(5_000)  # two responses and more
    assert len(tasks) > 30
    assert max(tasks) < 100, "milliseconds in which it does not react, where nothing else needs the CPU"
    found.wheel(-100_000)
    assert found.text(".tables .row:not(.heads)").startswith("Stopped")
