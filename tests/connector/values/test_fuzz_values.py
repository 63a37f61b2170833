"""Damaged values through every decoder under ``divert``: no task ends, no row is shifted, no value takes memory that it must not.

`make test` tries some thousands of values, `make fuzz-values` a million (FUZZ_VALUES). The seed is printed and can be given by
FUZZ_SEED, so that a failure can be repeated.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pykafka_wire.values.converter import Converter
from pykafka_wire.values.json import flat_objects
from tests.conformance import generate
from tests.connector.values.fuzz_cases import Case, fuzz_cases
from tests.connector.values.protobuf_samples import normal

N_VALUES = int(os.environ.get("FUZZ_VALUES", "4000"))
SEED = int(os.environ.get("FUZZ_SEED", "0")) or random.SystemRandom().randrange(2**32)
#: As many as a worker gets at once on a small topic; the limit of memory holds for all of them together.
BATCH = 200
MAX_GROWTH_BYTES = 64 << 20
#: Of processor time for a batch: a wait for the processor is no hang.
MAX_BATCH_S = 20.0


@pytest.fixture(autouse=True)
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layouts of flat objects are used for as few rows as these."""
    monkeypatch.setattr(flat_objects, "_MIN_ROWS", 8)


@pytest.fixture(scope="module")
def cases() -> Iterator[list[Case]]:
    with fuzz_cases() as found:
        yield found


def batch(rng: random.Random, case: Case, first: int) -> tuple[list[bytes | None], list[bool]]:
    """Values, of which those that are whole hold the numbers of their rows; and which are."""
    values: list[bytes | None] = list(case.whole(list(range(first, first + BATCH))))
    is_whole = [True] * BATCH
    for place in range(BATCH):
        chance, value = rng.random(), values[place]
        assert value is not None
        if chance < 0.15:
            continue
        is_whole[place] = False
        if chance < 0.17:
            values[place] = None
        elif chance < 0.18:
            values[place] = rng.choice(case.bombs)
        elif chance < 0.22:
            values[place] = rng.randbytes(rng.randrange(60))
        elif chance < 0.3:
            values[place] = value[: rng.randrange(len(value))]
        elif chance < 0.35:
            values[place] = value + rng.randbytes(rng.randrange(1, 5))
        else:
            for _ in range(rng.choice((1, 1, 2, 4))):
                # Behind the frame, which alone would hide all that follows.
                keep = 5 if rng.random() < 0.9 else 0
                value = value[:keep] + generate.mutate(rng, value[keep:] or b"\0")
            values[place] = value
    return values, is_whole


def memory_kib(field: str) -> int:
    text = Path("/proc/self/status").read_text("ascii")
    return int(text.partition(f"{field}:")[2].split()[0])


def test_no_damaged_value_ends_a_task_shifts_a_row_or_takes_memory(cases: list[Case]) -> None:
    print(f"FUZZ_SEED={SEED}")
    rng = random.Random(SEED)
    n_values = n_diverted = n_batches = 0
    most_growth, slowest = 0, 0.0
    for case in cases:  # what is loaded and cached once
        Converter(format=case.value_format, type=case.type, on_error="divert")(pa.array(case.whole([1]), pa.binary()))
    while n_values < N_VALUES:
        case = cases[n_batches % len(cases)]
        first = n_values * 10 + 1
        values, is_whole = batch(rng, case, first)
        rows = pa.array(values, pa.binary())
        converter = Converter(format=case.value_format, type=case.type, on_error="divert")
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        before, started = memory_kib("VmRSS"), time.process_time()
        found = converter(rows)
        taken = time.process_time() - started
        growth = (memory_kib("VmHWM") - before) * 1024 - rows.nbytes
        most_growth, slowest = max(most_growth, growth), max(slowest, taken)
        assert growth < MAX_GROWTH_BYTES, (case.name, growth)
        assert taken < MAX_BATCH_S, (case.name, taken)
        n_diverted += check(rng, case, converter, values, is_whole, found, first)
        n_values += BATCH
        n_batches += 1
    print(
        f"{n_values} values, {n_diverted} diverted; a batch of {BATCH} took {most_growth / 2**20:.1f} MiB above its size "
        f"and {slowest:.2f} s at most"
    )
    assert n_diverted > n_values / 5


def check(
    rng: random.Random,
    case: Case,
    converter: Converter,
    values: list[bytes | None],
    is_whole: list[bool],
    found: Any,
    first: int,
) -> int:
    """How many rows were diverted. Each whole value must be in its own row, each other one what it is on its own."""
    assert len(found) == len(values)
    errors, ids = found.field("error").to_pylist(), found.field("value").field("id").to_pylist()
    decoded = found.field("value").is_valid().to_pylist()
    for place, value in enumerate(values):
        where = (case.name, place, value if value is None else value[:200], errors[place])
        assert errors[place] is None or "an unexpected" not in errors[place], where
        assert not (errors[place] is not None and decoded[place]), where
        if value is None:
            assert errors[place] is None and not decoded[place], where
        elif is_whole[place]:
            assert errors[place] is None and ids[place] == first + place, where
        elif rng.random() < 0.02:
            alone = converter(pa.array([value], pa.binary()))
            assert same(alone) == same(found.slice(place, 1)), where
    return sum(error is not None for error in errors)


def same(one: Any) -> object:
    """What is equal for arrays of an equal value, the order of maps included."""
    try:
        return normal(one.to_pylist())
    except (ArithmeticError, ValueError):  # a time that Python does not have
        return sorted(one.to_string().splitlines())


def test_each_value_that_is_made_to_do_damage_is_harmless(cases: list[Case]) -> None:
    for case in cases:
        (good,) = case.whole([7])
        for bomb in case.bombs:
            rows = pa.array([good, bomb, good], pa.binary())
            Path("/proc/self/clear_refs").write_text("5")
            before = memory_kib("VmRSS")
            found = Converter(format=case.value_format, type=case.type, on_error="divert")(rows).to_pylist()
            growth = (memory_kib("VmHWM") - before) * 1024 - rows.nbytes
            where = (case.name, bomb[:100], found[1]["error"])
            assert growth < MAX_GROWTH_BYTES, (*where, growth)
            assert found[0]["value"]["id"] == found[2]["value"]["id"] == 7, where
            assert "an unexpected" not in (found[1]["error"] or ""), where
            nulls = Converter(format=case.value_format, type=case.type, on_error="null")(rows).to_pylist()
            assert nulls == [each["value"] for each in found] or "NaN" in str(nulls), where
