"""The page's server: its documents, whom it answers, with which headers, and that it waits for nobody."""

from __future__ import annotations

import http.client
import json
import logging
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import pykafka_wire.page
from pykafka_wire.errors import OptionError
from pykafka_wire.ingest_status import TableState
from pykafka_wire.page import PageSettings
from pykafka_wire.page.server import Page
from pykafka_wire.page.snapshots import TableHistory
from tests.connector.page.synthetic import HOSTILE, SyntheticSource, filled_samples

STATIC = Path(pykafka_wire.page.__file__).resolve().parent / "static"


class Answer:
    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    @property
    def document(self) -> Any:
        return json.loads(self.body)


def ask(page: Page, path: str, *, host: str | None = None, method: str = "GET", **headers: str) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=30)
    try:
        connection.putrequest(method, path, skip_host=host is not None, skip_accept_encoding=True)
        for name, value in [*([] if host is None else [("Host", host)]), *headers.items()]:
            connection.putheader(name, value)
        connection.endheaders()
        response = connection.getresponse()
        return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
    finally:
        connection.close()


def ready(page: Page, path: str, **headers: str) -> Answer:
    """The answer when there is something to show."""
    deadline = time.monotonic() + 30
    while (answer := ask(page, path, **headers)).status == 503:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return answer


Serve = Callable[..., Page]


@pytest.fixture
def serve() -> Iterator[Serve]:
    pages = []

    def start(source: Any = None, settings: PageSettings | None = None) -> Page:
        page = Page(settings or PageSettings())
        pages.append(page)
        source = source or SyntheticSource(12)
        page.serve(
            source, filled_samples(source) if isinstance(source, SyntheticSource) and not source.is_broken else None
        )
        return page

    yield start
    for page in pages:
        page.close()


def test_the_whole_and_the_tables_are_documents(serve: Serve) -> None:
    page = serve()
    whole, tables = ready(page, "/api/ingest").document, ready(page, "/api/tables").document
    assert whole["api"] == tables["api"] == 1
    assert whole["totals"]["tables"] == len(tables["tables"]) == 12
    assert whole["totals"]["states"] == {
        s.value: sum(t["state"] == s.value for t in tables["tables"]) for s in TableState
    }
    states = [each["state"] for each in tables["tables"]]
    assert states == sorted(states, key=[*whole["totals"]["states"]].index), "trouble is on top"
    assert whole["totals"]["records_per_second"] > 0
    assert len(whole["plots"]["records_per_second"]) == len(tables["tables"][0]["rates"]) == 60
    landing = next(each for each in tables["tables"] if each["state"] == "landing")
    assert landing["catch_up_s"] == pytest.approx(landing["lag"] / landing["rows_per_second"], rel=0.01)
    stopped = tables["tables"][0]
    assert (stopped["catch_up_s"], stopped["rows_per_second"]) == (None, 0), "nothing moves"


def test_a_table_and_its_history_are_documents_of_one_topic(serve: Serve) -> None:
    page = serve()
    one = ready(page, "/api/table?topic=shop.orders").document
    assert one["topic"] == "shop.orders"
    assert {each["partition"] for each in one["partitions"]} == set(range(6))
    assert "Polars" in one["queries"]
    history = ready(page, "/api/table/history?topic=shop.orders").document
    assert [each["version"] for each in history["commits"]][:2] == [1240, 1239]
    assert {each["value"] for each in history["rejects"]} == {None}


def test_a_hostile_name_is_found_by_its_encoded_form(serve: Serve) -> None:
    page = serve(SyntheticSource(4, hostile=True))
    names = [each["topic"] for each in ready(page, "/api/tables").document["tables"]]
    assert HOSTILE in names
    encoded = "".join(f"%{byte:02x}" for byte in HOSTILE.encode())
    assert ready(page, f"/api/table?topic={encoded}").document["topic"] == HOSTILE
    assert b"<script" not in ask(page, f"/{encoded}").body, "what was asked for is not repeated"


def test_every_answer_forbids_what_is_not_the_pages_own(serve: Serve) -> None:
    page = serve()
    for path in ("/", "/main.js", "/page.css", "/api/ingest", "/none", "/api/none", "/api/table"):
        headers = ready(page, path).headers
        policy = dict(each.strip().split(" ", 1) for each in headers["content-security-policy"].split(";"))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["connect-src"] == policy["style-src"] == "'self'"
        assert policy["frame-ancestors"] == "'none'"
        assert policy["trusted-types"] == "'none'"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert "set-cookie" not in headers
        assert "server" not in headers
        assert "access-control-allow-origin" not in headers


def test_the_page_is_of_files_that_hold_no_inline_script_and_no_address_elsewhere(serve: Serve) -> None:
    page = serve()
    html = ask(page, "/").body.decode()
    assert re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=|<style", html) is None
    for file in STATIC.iterdir():
        answer = ask(page, f"/{file.name}")
        assert (answer.status, answer.body) == (200, file.read_bytes())
        others = set(re.findall(r"https?://[^\s\"'`<>)]+", file.read_text(encoding="utf-8")))
        assert others <= {"http://www.w3.org/2000/svg"}
    scripts = "".join(file.read_text(encoding="utf-8") for file in STATIC.glob("*.js"))
    assert (
        re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|\.style\b", scripts)
        is None
    )
    for parent in ("../server.py", "%2e%2e/server.py", "static/page.css"):
        assert ask(page, f"/{parent}").status == 404


def test_it_is_read_only(serve: Serve) -> None:
    page = serve()
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        answer = ask(page, "/api/ingest", method=method)
        assert (answer.status, "read only" in answer.document["error"]) == (405, True)
    assert ask(page, "/api/table").status == 400
    assert ask(page, "/api/table?topic=" + "x" * 250).status == 400
    assert ready(page, "/api/table?topic=unknown").status == 404
    assert ready(page, "/api/table/history?topic=unknown").status == 404


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:80",
        "127.0.0.1.evil.example",
        "",
        "10.0.0.7:8080",
        "[::2]:1",
        "127.0.0.1@evil.example",
    ],
)
def test_a_page_of_this_machine_answers_to_no_other_name(serve: Serve, host: str) -> None:
    """A site that lets its own name lead here (DNS rebinding) reads nothing."""
    page = serve()
    for path in ("/", "/api/ingest"):
        answer = ask(page, path, host=host)
        assert answer.status == 421
        assert b"shop" not in answer.body


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:9", "LOCALHOST", "[::1]:80", "127.0.0.2:1"])
def test_it_answers_to_this_machines_names(serve: Serve, host: str) -> None:
    assert ask(serve(), "/", host=host).status == 200


def test_a_page_for_other_machines_asks_for_the_token(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    page = serve(settings=PageSettings(host="0.0.0.0"))
    token = page.url.partition("#token=")[2]
    assert len(token) >= 32
    for wrong in (
        {},
        {"Authorization": "Bearer"},
        {"Authorization": f"Bearer {token[:-1]}"},
        {"Authorization": f"Basic {token}"},
        {"Authorization": "Bearer ä"},
        {"Authorization": f"Bearer {token}x"},
    ):
        answer = ask(page, "/api/ingest", **wrong)
        assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert token.encode() not in answer.body
    assert ask(page, f"/api/ingest?token={token}").status == 401, "a URL is logged by others"
    assert ready(page, "/api/ingest", Authorization=f"Bearer {token}").status == 200
    assert ready(page, "/api/ingest", Authorization=f"Bearer {token}", host="ingest.example").status == 200
    assert ask(page, "/").status == 200, "the page itself is no secret, and asks for the token"
    assert token not in caplog.text
    assert token not in repr(page)
    assert page.url != serve(settings=PageSettings(host="0.0.0.0")).url


def test_a_token_of_ones_own_stays_and_is_asked_for_everywhere(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGE_TOKEN", token := "a-token:of/ones+own")
    page = serve(settings=PageSettings(token="env:PAGE_TOKEN"))
    assert page.url.endswith(f"/#token={quote(token, safe='')}")
    assert ask(page, "/api/ingest").status == 401
    assert ready(page, "/api/ingest", Authorization=f"Bearer {token}").status == 200
    for bad in ("short", "with blanks in between", " blanks-at-the-end ", "näive-but-long-enough", ""):
        monkeypatch.setenv("PAGE_TOKEN", bad)
        with pytest.raises(OptionError, match="the page's token must have at least 16 characters"):
            PageSettings.parse("8080", token="env:PAGE_TOKEN")
    with pytest.raises(OptionError, match="NO_SUCH_TOKEN"):
        PageSettings.parse("8080", token="env:NO_SUCH_TOKEN")


def test_the_link_names_a_machine_that_others_reach() -> None:
    page = Page(PageSettings(host="0.0.0.0"))
    try:
        assert page.url.startswith(f"http://{socket.gethostname()}:{page.port}/#token=")
    finally:
        page.close()
    page = Page(PageSettings())
    try:
        assert page.url == f"http://127.0.0.1:{page.port}/"
    finally:
        page.close()


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("8080", "127.0.0.1", 8080),
        ("0.0.0.0:80", "0.0.0.0", 80),
        ("[::1]:0", "::1", 0),
        ("box:1", "box", 1),
        (" 9 ", "127.0.0.1", 9),
    ],
)
def test_an_address_is_a_port_or_a_host_with_it(text: str, host: str, port: int) -> None:
    assert PageSettings.parse(text) == PageSettings(host=host, port=port)


@pytest.mark.parametrize("text", ["", "box", "box:", ":8080", "::1:80", "65536", "-1", "80x", "٣"])
def test_another_address_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="PORT or HOST:PORT"):
        PageSettings.parse(text)


def test_a_port_in_use_is_refused_before_anything_is_served(serve: Serve) -> None:
    page = serve()
    with pytest.raises(OptionError, match=f"127.0.0.1:{page.port}.*another port"):
        Page(PageSettings(port=page.port))
    with pytest.raises(OptionError, match="address of this machine"):
        Page(PageSettings(host="203.0.113.1"))


class SlowSource(SyntheticSource):
    """The driver does not respond any more after the first snapshot, and logs of tables cannot be read in time."""

    def __init__(self) -> None:
        super().__init__(3)
        self.go_on = threading.Event()
        self.n_histories = 0
        self.n_snapshots = 0

    def snapshot(self, *, is_watched: bool) -> Any:
        self.n_snapshots += 1
        if self.n_snapshots > 1:
            assert self.go_on.wait(60)
        return super().snapshot(is_watched=is_watched)

    def history(self, topic: str) -> TableHistory:
        self.n_histories += 1
        assert self.go_on.wait(60)
        return super().history(topic)


def test_a_slow_driver_and_slow_logs_keep_no_request_waiting(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pykafka_wire.page.live._HISTORY_WAIT_S", 0.1)
    source = SlowSource()
    page = Page(PageSettings())
    page.serve(source)
    try:
        first = ready(page, "/api/ingest").document
        for _ in range(20):
            answer = ask(page, "/api/table/history?topic=shop.orders")
            assert answer.status == 503
            assert answer.headers["retry-after"] == "2"
        assert source.n_histories == 1, "it is read once, however often it is asked for"
        started = time.monotonic()
        assert ask(page, "/api/ingest").document["at"] == first["at"], "the newest that there is"
        assert time.monotonic() - started < 2
        source.go_on.set()
        assert ready(page, "/api/table/history?topic=shop.orders").document["commits"]
    finally:
        source.go_on.set()
        page.close()


def test_before_the_first_snapshot_it_asks_to_come_again(serve: Serve) -> None:
    source = SyntheticSource(3)
    source.is_broken = True
    page = serve(source)
    answer = ask(page, "/api/ingest")
    assert (answer.status, answer.document["error"]) == (503, "the ingest is starting: ask again.")
    source.is_broken = False
    assert ready(page, "/api/ingest").status == 200


def test_a_history_that_fails_is_an_error_of_that_request_alone(serve: Serve) -> None:
    class Failing(SyntheticSource):
        def history(self, topic: str) -> TableHistory:
            raise RuntimeError("secret place")

    page = serve(Failing(2))
    ready(page, "/api/ingest")
    answer = ask(page, "/api/table/history?topic=shop.orders")
    assert (answer.status, b"secret place" in answer.body) == (500, False)
    assert ask(page, "/api/ingest").status == 200


def test_what_was_asked_for_is_shared_and_compressed(serve: Serve) -> None:
    page = serve(SyntheticSource(500))
    plain = ready(page, "/api/tables")
    small = ask(page, "/api/tables", **{"Accept-Encoding": "gzip"})
    assert small.headers["content-encoding"] == "gzip"
    assert len(small.body) < len(plain.body) / 2
    started = time.process_time()
    for _ in range(20):
        ask(page, "/api/tables")
    assert time.process_time() - started < 2, "a document is made once a second at most"


def test_a_closed_page_is_gone(serve: Serve) -> None:
    page = serve()
    ready(page, "/api/ingest")
    page.close()
    with pytest.raises(OSError):
        ask(page, "/api/ingest")
    page.close()
    Page(PageSettings(port=page.port)).close()
