"""Every test of the JVM connector's own suites has a row in docs/parity.md, which names what covers its behaviour here."""

from __future__ import annotations

import ast
import os
import re
import zipfile
from pathlib import Path

import pytest

from pykafka_wire.local.jars import JVM_CONNECTOR
from tests.connector.parity.test_parity import PARITY, SCENARIOS

TESTS = Path(__file__).resolve().parents[2]
#: Tests of each suite in 4.2.0: 114 written out plainly, 39 more in loops or through a method of the suite.
SUITES = {
    "KafkaMicroBatchSource": 62,
    "KafkaRelation": 25,
    "KafkaSink": 16,
    "KafkaDontFailOnDataLoss": 6,
    "KafkaOffsetReader": 12,
    "KafkaOffsetRangeCalculator": 19,
    "ConsumerStrategy": 5,
    "JsonUtils": 2,
    "KafkaSourceOffset": 3,
    "KafkaSourceProvider": 3,
}
_DECLARED = re.compile(
    r"^ +(test|testWithAllOffsetFetchingSQLConf|testWithUninterruptibleThread|testWithMinPartitions"
    r'|testWithMaxRecordsPerPartition|testWithMinPartitionsAndMaxRecordsPerPartition)\(\s*((?:s?"[^"]*"(?:\s*\+\s*)?)+)',
    re.M,
)
_DOES_NOT_APPLY = "does not apply: "
_PARITY = "parity: "


def rows() -> list[tuple[str, str, str]]:
    """(suite, its test, what holds it) of each row of the table."""
    text = PARITY.read_text(encoding="utf-8")
    table = text[text.index("| Suite | Its test | Covered by |") :].split("\n\n")[0]
    cells = [line.strip("|").split(" | ") for line in table.splitlines()[2:]]
    return [(suite.strip(), name.strip(), held.strip()) for suite, name, held in cells]


def test_every_test_of_every_suite_has_a_row() -> None:
    found = [suite for suite, _, _ in rows()]
    assert {suite: found.count(suite) for suite in dict.fromkeys(found)} == SUITES


@pytest.mark.parametrize("held", sorted({held for _, _, held in rows()}))
def test_what_holds_a_behaviour_is_there(held: str) -> None:
    if held.startswith(_PARITY):
        assert held.removeprefix(_PARITY) in {scenario.name for scenario in SCENARIOS}
        return
    if held.startswith(_DOES_NOT_APPLY):
        assert len(held) > len(_DOES_NOT_APPLY) + 10, "a reason"
        return
    path, name = held.strip("`").split("::")
    functions = [node.name for node in ast.parse((TESTS / path).read_text()).body if isinstance(node, ast.FunctionDef)]
    assert name in functions


@pytest.mark.long
def test_the_rows_are_those_of_the_published_suites() -> None:
    given = os.environ.get("PYKAFKA_WIRE_JVM_TEST_SOURCES")
    if not given:
        connector = JVM_CONNECTOR[0]
        pytest.skip(f"name a copy of {connector}, classifier test-sources, in PYKAFKA_WIRE_JVM_TEST_SOURCES")
    jar = zipfile.ZipFile(given)
    published = []
    for suite in SUITES:
        source = jar.read(f"org/apache/spark/sql/kafka010/{suite}Suite.scala").decode()
        for _, literals in _DECLARED.findall(source):
            name = "".join(re.findall(r'"([^"]*)"', literals))
            # Those that build a name of a parameter alone are the suite's own methods.
            if not name.startswith("with $") and not re.match(r"with \w+ = \$", name):
                published.append((suite, name))
    assert sorted((suite, name) for suite, name, _ in rows()) == sorted(published)
