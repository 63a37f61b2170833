"""No difference to Spark's own JVM connector without a reason: the same scenarios through both, side by side."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.connector.parity.batch import BATCH
from tests.connector.parity.refusals import REFUSALS
from tests.connector.parity.rig import Both, Scenario, aspects, table
from tests.connector.parity.stream import STREAM

SCENARIOS = (*BATCH, *STREAM, *REFUSALS)
PARITY = Path(__file__).resolve().parents[3] / "docs" / "parity.md"


@pytest.fixture
def both(spark: Any, outside: Any, topic: Any, tmp_path: Path) -> Iterator[Both]:
    """Both connectors, on the session's broker."""
    started = Both(spark, outside, topic, tmp_path)
    yield started
    started.close()


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.parametrize(
    "scenario",
    [pytest.param(s, id=s.name, marks=[pytest.mark.long] if s.long else []) for s in SCENARIOS],
)
def test_both_connectors_do_the_same(scenario: Scenario, both: Both) -> None:
    scenario.run(both)
    assert all(side.found for side in both.sides)
    found = both.differences()
    unexplained = {key: pair for key, pair in found.items() if key.rsplit(": ", 1)[1] not in scenario.differs}
    assert not unexplained
    assert set(aspects(found)) == set(scenario.differs), "a difference that is explained is not there any more"


def test_the_table_shows_every_scenario() -> None:
    assert table(SCENARIOS) in PARITY.read_text(encoding="utf-8"), (
        f"docs/parity.md must hold this table:\n{table(SCENARIOS)}"
    )


def test_scenarios_have_names_of_their_own() -> None:
    names = [scenario.name for scenario in SCENARIOS]
    assert len(set(names)) == len(names)
