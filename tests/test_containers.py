"""conf/compose, built and run by Docker: an order that is written becomes a row that the page shows. `make containers`."""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.brokers.container import docker_unavailable
from tests.conftest import CONF

COMPOSE = ["docker", "compose", "--file", str(CONF / "compose" / "compose.yaml"), "--project-name", "pykafka-wire-test"]
READY_S = 300.0

pytestmark = [pytest.mark.long, pytest.mark.docker, pytest.mark.timeout(1800)]  # the image is built


def compose(*arguments: str) -> str:
    done = subprocess.run([*COMPOSE, *arguments], capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@pytest.fixture
def running() -> Iterator[None]:
    if (reason := docker_unavailable()) is not None:
        pytest.skip(reason)
    try:
        compose("up", "--build", "--detach")
        yield
    finally:
        compose("down", "--volumes", "--remove-orphans")


def get_json(path: str, token: str) -> Any:
    request = urllib.request.Request(f"http://127.0.0.1:8080{path}", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=10) as response:
        return json.load(response)


def test_the_composed_ingest_lands_orders_and_its_page_shows_them(running: None) -> None:
    deadline = time.monotonic() + READY_S
    rows = 0
    while rows < 10:
        assert time.monotonic() < deadline, compose("logs")[-4000:]
        time.sleep(2)
        found = re.search(r"page: http://\S+#token=(\S+)", compose("logs", "ingest"))
        if found is None:
            continue
        try:
            tables = get_json("/api/tables", found[1])["tables"]
        except OSError:  # 503: nothing to show yet
            continue
        rows = sum(each["rows"] for each in tables if each["topic"] == "shop.orders")
    counted = compose(
        "exec",
        "ingest",
        "pykafka-wire",
        "query",
        "/etc/pykafka-wire/ingest.toml",
        "SELECT count(*) AS n FROM shop_orders",
    )
    assert int(counted.split()[-1]) >= 10
    assert "orders" in compose("exec", "ingest", "ls", "/lake/shop")
