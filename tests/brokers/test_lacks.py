"""The list of tests that other brokers fail names tests that exist, and finds them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.brokers.lacks import LACKS, fails_for

TESTS = Path(__file__).parent.parent


@pytest.mark.parametrize("broker", LACKS)
def test_every_test_that_is_left_out_exists(broker: str) -> None:
    for name in (name for names in LACKS[broker].values() for name in names):
        file, _, case = name.partition("::")
        function = case.partition("[")[0]
        assert re.search(rf"^def {function}\(", (TESTS / file).read_text(encoding="utf-8"), re.MULTILINE), name


def test_tests_are_left_out_by_name_by_fixture_and_by_protocol() -> None:
    lack, names = next(iter(LACKS["kfake"].items()))
    assert fails_for("kfake", f"tests/{names[0]}[a parameter]", ["kafka"]) == lack
    (one, other) = next(names for lack, names in LACKS["librdkafka"].items() if "acks=0" in lack)
    assert "acks=0" in (fails_for("librdkafka", f"tests/{one}", ["kafka"]) or "")
    assert "acks=0" in (fails_for("librdkafka", f"tests/{other}", ["kafka"]) or "")
    assert fails_for("librdkafka", f"tests/{one.replace('-0]', '-all]')}", ["kafka"]) is None
    assert fails_for("4.4.0", f"tests/{names[0]}", ["kafka"]) is None
    assert fails_for("kfake", "tests/wire/test_x.py::test_y", ["kafka"]) is None
    assert "Apache Kafka itself" in (fails_for("kfake", "tests/wire/test_x.py::test_y", ["two_brokers"]) or "")
    assert "Apache Kafka itself" in (fails_for("kfake", "tests/wire/test_x.py::test_y[TV1]", ["kafka"]) or "")
