"""Spark and the library of a table's format never commit to the table at the same time."""

from __future__ import annotations

import pytest

from pykafka_wire.ingest.committers import Committer, CommitterBusyError, Committers
from pykafka_wire.ingest.failures import Remedy, remedy_of

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("first", "second"), [(Committer.SPARK, Committer.PYTHON), (Committer.PYTHON, Committer.SPARK)]
)
def test_one_library_commits_as_often_as_it_wants_and_the_other_one_waits(first: Committer, second: Committer) -> None:
    committers = Committers("shop_orders")
    with committers.alone(first):
        with committers.alone(first), pytest.raises(CommitterBusyError):
            committers.alone(second).__enter__()
        with pytest.raises(
            CommitterBusyError, match=f"{second.value} cannot commit to table shop_orders now"
        ) as raised:
            committers.alone(second).__enter__()
    assert remedy_of(raised.value) is Remedy.WAIT
    with committers.alone(second), pytest.raises(CommitterBusyError):
        committers.alone(first).__enter__()
