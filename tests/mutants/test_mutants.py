"""The suite fails when a check is switched off, one at a time (`make mutants`)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.switched_off import MUTANTS, changed_source

ROOT = Path(__file__).parents[2]


def run(tests: tuple[str, ...], mutant: str | None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "MUTANT"}
    if mutant is not None:
        environment["MUTANT"] = mutant
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.mutants.switched_off",
        "-p",
        "no:cacheprovider",
        *tests,
    ]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280)


@pytest.mark.parametrize("name", MUTANTS)
def test_what_is_to_be_switched_off_is_there(name: str) -> None:
    changed_source(ROOT / "wire" / Path(*MUTANTS[name].module.split(".")).with_suffix(".py"), MUTANTS[name].changes)


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.parametrize("name", MUTANTS)
def test_switched_off_it_is_missed(name: str) -> None:
    done = run(MUTANTS[name].tests, name)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    assert " failed" in done.stdout.splitlines()[-1]
    assert " error" not in done.stdout.splitlines()[-1]


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.parametrize("tests", sorted({mutant.tests for mutant in MUTANTS.values()}))
def test_switched_on_these_tests_pass(tests: tuple[str, ...]) -> None:
    done = run(tests, None)
    assert done.returncode == pytest.ExitCode.OK, done.stdout + done.stderr
