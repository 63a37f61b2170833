"""The position of an Iceberg table is that of its current snapshot, to whichever snapshot the table was set, even if others
have expired.

Each commit that lands records can have rejects, once, whatever numbers earlier commits had.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pykafka_wire.errors import IngestError
from pykafka_wire.ingest.tables.iceberg import limits, positions
from pykafka_wire.ingest.tables.iceberg import table as iceberg_table
from pykafka_wire.ingest.tables.iceberg.table import IcebergTable
from pykafka_wire.ingest.tables.position import AlreadyLandedError, Landed, new_attempt
from tests.connector.ingest.laws.generated import examples
from tests.connector.ingest.laws.test_positions import BEGINS_AT, SCHEMA, TABLE, Driver, IcebergLake, made

pytestmark = pytest.mark.unit

LAND = ("land",)
FORGET = st.one_of(st.just(("thin out",)), st.tuples(st.just("expire"), st.integers(1, 4)))
#: Another program's commit among those of the ingest; then snapshots are forgotten, and the table is set to an older one.
ROUNDS = st.tuples(
    st.lists(st.just(LAND), min_size=1, max_size=2),
    st.sampled_from(
        [(), (("append",),), (("delete",),), (("append",), ("delete",)), (("append",), ("drop summaries",))]
    ),
    st.lists(st.just(LAND), min_size=1, max_size=3),
    st.lists(FORGET, min_size=1, max_size=1),
    st.tuples(st.tuples(st.just("set back"), st.integers(0, 2))),
    st.lists(st.just(("append",)), max_size=1),
    # Another program forgets all older snapshots while no ingest runs.
    st.lists(st.just(("expire", 9)), max_size=1),
)
STEPS = st.lists(ROUNDS, min_size=1, max_size=3).map(
    lambda rounds: [step for each in rounds for part in each for step in part]
)


def _current(lake: IcebergLake) -> int:
    return int(lake.opened().version)


def _check_rejects(lake: IcebergLake, landed: Landed) -> None:
    """The table of rejects takes the rejects of a commit once."""
    nothing: Any = None
    rejects, writer = IcebergTable(nothing, lake._settings, "_rejects"), Driver(lake)
    if not rejects.exists:
        rejects.create_of(SCHEMA, TABLE, "q", None)
    writer._table = rejects
    writer._write(range(1), landed)
    with pytest.raises(AlreadyLandedError):
        writer._write(range(1), landed)


def _check(steps: list[tuple[Any, ...]]) -> int:
    """Return how often the table was set back."""
    n_set_back = end = 0
    with made(IcebergLake) as lake:
        ends = {_current(lake): 0}
        for step, *chosen in steps:
            before = ends[_current(lake)]
            if step == "land":
                driver = Driver(lake)
                end = max(end, before) + 1
                driver.land(end)
                ends[_current(lake)] = end
                assert driver._held is not None
                _check_rejects(lake, replace(driver._held, application=":table", attempt=new_attempt()))
            elif step == "append":
                lake.append()
                ends[_current(lake)] = before
            elif step == "delete":
                if lake.ids():
                    lake.delete(lake.ids()[0])
                    ends[_current(lake)] = before
            elif step == "drop summaries":
                lake.drop_summaries()
            elif step == "thin out":
                lake.opened().expire(3_600_000)
            elif step == "expire":  # by another program: the oldest ones
                stored = lake._stored
                refs = {ref.snapshot_id for ref in stored.metadata.refs.values()}
                old = [each.snapshot_id for each in stored.metadata.snapshots if each.snapshot_id not in refs]
                old = old[: chosen[0]]
                if old:
                    stored.maintenance.expire_snapshots().by_ids(old).commit()
            else:
                snapshots = lake._stored.metadata.snapshots
                if snapshots:
                    n_set_back += 1
                    chosen_id = snapshots[chosen[0] % len(snapshots)].snapshot_id
                    lake._stored.manage_snapshots().set_current_snapshot(chosen_id).commit()
            held = lake.opened().landed()
            expected = ends[_current(lake)]
            assert held is not None and held.end == {0: expected}, (step, held, expected)
    return n_set_back


def test_the_position_is_that_of_the_current_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    # Snapshots are thinned out although there are few.
    monkeypatch.setattr(iceberg_table, "_NEWEST", 1)
    counts = []

    @examples(8)
    @example(steps=[LAND, ("append",), ("drop summaries",), ("thin out",), LAND])
    @given(steps=STEPS)
    def law(steps: list[tuple[Any, ...]]) -> None:
        counts.append(_check(steps))

    law()
    assert sum(counts) >= len(counts) - 1, counts


def test_a_cherry_pick_after_a_rollback_doubles_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oracle is the list of rows: those of the ingest are the records before the position, once; or the table stops."""
    monkeypatch.setattr(iceberg_table, "_NEWEST", 1)  # snapshots are thinned out although there are few

    @examples(10)
    @example(steps=[("land", 0), ("append", 0), ("land", 0), ("set back", 2), ("pick", 1)])
    @example(steps=[("land", 0), ("set back", 1), ("append", 0), ("pick", 0), ("append", 0), ("thin out", 0)])
    @given(
        steps=st.lists(
            st.one_of(
                st.just((*LAND, 0)),
                st.tuples(st.sampled_from(["append", "set back", "pick", "pick", "thin out"]), st.integers(0, 5)),
            ),
            max_size=12,
        )
    )
    def law(steps: list[tuple[str, int]]) -> None:
        with made(IcebergLake) as lake:
            _pick(lake, [("land", 0), ("land", 0), *steps, ("land", 0)])

    law()


def _pick(lake: IcebergLake, steps: list[tuple[str, int]]) -> None:
    for step, number in steps:
        metadata = lake._stored.metadata
        ancestors = [each.snapshot_id for each in positions.snapshots(metadata)]
        # Iceberg refuses to pick an ancestor, and a snapshot of which an ancestor is a pick.
        picked = {positions.summary_of(each).get("source-snapshot-id") for each in positions.snapshots(metadata)}
        others = [
            each.snapshot_id
            for each in metadata.snapshots
            if each.snapshot_id not in ancestors and str(each.snapshot_id) not in picked
        ]
        if step == "append":
            lake.append()
        elif step == "thin out":
            lake.opened().expire(3_600_000)
        elif step == "set back" and ancestors:
            lake._stored.manage_snapshots().set_current_snapshot(ancestors[number % len(ancestors)]).commit()
        elif step == "pick" and others:
            lake.pick(others[number % len(others)])
        landed = [number for number in lake.ids() if number >= 0]
        try:
            held = lake.opened().landed()
        except IngestError:
            assert landed != [*range(len(landed))]
            return
        assert held is not None and landed == [*range(held.end[0])]
        if step == "land":
            Driver(lake).land(held.end[0] + 2)
            assert [number for number in lake.ids() if number >= 0] == [*range(held.end[0] + 2)]


def test_a_table_whose_snapshots_have_no_numbers_is_refused_until_it_gets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    version_1 = replace(TABLE, properties={"format-version": "1"})
    with pytest.raises(IngestError, match="has format version 1"), monkeypatch.context() as patched:
        patched.setattr("tests.connector.ingest.laws.test_positions.TABLE", version_1)
        with made(IcebergLake):
            pass
    with made(IcebergLake) as lake, monkeypatch.context() as patched:
        patched.setattr(limits, "_NUMBERED_VERSION", 1)
        nothing: Any = None
        lake._catalog.drop_table(("shop", "numbers"))
        IcebergTable(nothing, lake._settings, "numbers").create_of(SCHEMA, version_1, "q", BEGINS_AT)
        Driver(lake).land(3)
        lake.append()
        patched.undo()
        with pytest.raises(IngestError, match="has format version 1"):
            lake.opened().landed()
        with lake._stored.transaction() as upgrade:
            upgrade.upgrade_table_version(2)
        Driver(lake).land(4)
        assert [number for number in lake.ids() if number >= 0] == [0, 1, 2, 3]
