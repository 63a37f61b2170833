"""docs/testing.md: its tests, as pytest runs them for a reader, and the fixtures on brokers that are named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pykafka_wire.local import LocalCluster
from pykafka_wire.testing import KafkaFaults
from tests.connector.shown_code import code

CONFTEST, PIPELINE = code("docs/testing.md")
# pytest finds the page's tests in this module, and gives them the session's brokers and Spark.
exec(PIPELINE, globals())

BY_NAME = """
import pytest


def test_a_topic(kafka, topic):
    name = topic(partitions=3, config={"retention.ms": "3600000"})
    assert "retention.ms=3600000" in kafka.tool("org.apache.kafka.tools.TopicCommand", "--describe", "--topic", name)


def test_the_registry(registry):
    assert registry == "http://registry:8081"


def test_faults(kafka_faults):
    pytest.fail("the brokers are not ours")
"""


def run_pytest(folder: Path, **environment: str) -> str:
    """What pytest prints of the tests in a folder, by a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", str(folder)],
        env={**os.environ, **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    return done.stdout + done.stderr


def test_brokers_and_a_registry_that_are_named_are_used(kafka: Any, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["pykafka_wire.testing"]')
    (tmp_path / "test_it.py").write_text(BY_NAME)
    named = {
        "PYKAFKA_WIRE_TEST_BOOTSTRAP": kafka.bootstrap_servers,
        "PYKAFKA_WIRE_TEST_REGISTRY": "http://registry:8081",
    }
    printed = run_pytest(tmp_path, **named)
    assert "2 passed, 1 skipped" in printed, printed
    assert "only brokers that these tests have started" in printed


def test_all_brokers_run_when_a_test_with_faults_ends(kafka: Any) -> None:
    if not isinstance(kafka, LocalCluster):
        pytest.skip("the brokers are not ours")
    faults = KafkaFaults(kafka)
    faults.pause()
    faults.end()
    assert kafka.nodes[0].running
    faults.kill()
    assert not kafka.nodes[0].running
    faults.end()
    assert kafka.nodes[0].running


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_the_page_as_it_stands_there(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_large_orders.py").write_text(PIPELINE)
    assert "2 passed" in (printed := run_pytest(tmp_path)), printed
