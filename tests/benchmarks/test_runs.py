"""What the figures in docs/performance.md rest on: pairing, medians, and that contenders which saw different data are refused."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def runs() -> Iterator[ModuleType]:
    # The benchmarks are scripts, not a package.
    spec = importlib.util.spec_from_file_location("bench_runs", BENCHMARKS / "runs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["bench_runs"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["bench_runs"]


def contender(runs: ModuleType, name: str, values: list[float], log: list[str], result: object = None) -> object:
    left = iter(values)

    def run() -> object:
        log.append(name)
        return runs.Run(value=next(left), result=result, beside={"twice": 2.0})

    return runs.Contender(name=name, run=run)


def test_contenders_take_turns_and_warm_ups_do_not_count(runs: ModuleType) -> None:
    log: list[str] = []
    pair = [contender(runs, "ours", [1, 10, 20, 30], log), contender(runs, "theirs", [99, 5, 5, 5], log)]
    ours, theirs = runs.alternate(pair, runs=3, warmups=1)
    assert log == ["ours", "theirs"] * 4
    assert (ours.figure.low, ours.figure.median, ours.figure.high) == (10, 20, 30)
    assert theirs.figure.values == (5, 5, 5)
    assert theirs.beside == {"twice": 2.0}


def test_ratios_are_taken_within_pairs(runs: ModuleType) -> None:
    log: list[str] = []
    # The machine is ten times slower in the second turn: the ratio stays what it is.
    pair = [contender(runs, "ours", [20, 2, 40], log), contender(runs, "theirs", [10, 1, 10], log)]
    ours, theirs = runs.alternate(pair, runs=3, warmups=0)
    assert ours.ratio is None
    assert theirs.ratio.values == (2, 2, 4)
    assert theirs.ratio.median == 2


def test_contenders_that_saw_different_data_are_refused(runs: ModuleType) -> None:
    log: list[str] = []
    pair = [contender(runs, "ours", [1, 1], log, result=7), contender(runs, "theirs", [1, 1], log, result=8)]
    with pytest.raises(runs.DisagreementError, match=r"ours #0: 7.*theirs #0: 8"):
        runs.alternate(pair, runs=1, warmups=0)


def test_checks_are_compared_before_anything_is_measured(runs: ModuleType) -> None:
    def never() -> object:
        raise AssertionError("measured although the checks differ")

    def checks(result: int) -> Callable[[], object]:
        return lambda: result

    pair = [runs.Contender(name=str(n), run=never, check=checks(n)) for n in (1, 2)]
    with pytest.raises(runs.DisagreementError):
        runs.alternate(pair, runs=1, warmups=0)


def test_a_check_is_the_warm_up(runs: ModuleType) -> None:
    log: list[str] = []
    runs.alternate([contender(runs, "ours", [1, 2], log)], runs=1)
    assert log == ["ours", "ours"]
    left = iter([1.0])
    runs.alternate([runs.Contender(name="checked", run=lambda: runs.Run(value=next(left)), check=lambda: 1)], runs=1)


@pytest.mark.parametrize(("share", "expected"), [(0.01, 1), (0.5, 50), (0.99, 99), (1.0, 100)])
def test_percentile_is_the_nearest_rank(runs: ModuleType, share: float, expected: int) -> None:
    assert runs.percentile(list(range(1, 101)), share) == expected


def test_every_item_can_be_listed() -> None:
    command = [sys.executable, str(BENCHMARKS / "bench.py"), "--list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    names = [line[2:].split()[0] for line in listed.splitlines()[:-1]]
    assert len(names) == len(set(names)) > 30
    default = [line[2:].split()[0] for line in listed.splitlines() if line.startswith("* r") and "read" in line[:7]]
    assert default == ["read-none-16k-noop", "read-none-16k-sum", "read-lz4-16k-noop", "read-lz4-16k-sum"]
