"""Task transactions as a model, explored in every order: nothing lost, nothing doubled.

`make model` explores larger ones, for some minutes.
"""

from __future__ import annotations

import pytest

from tests.connector.sink.protocol_model import RULES, Model, explore, without

SMALL = {
    "three tasks": Model(first_version=True, n_tasks=3),
    "two micro-batches": Model(first_version=True, n_batches=2),
    "tasks that compute other rows": Model(first_version=True, shuffles=True),
    "workers that live on, and a speculative copy": Model(
        first_version=True, n_tasks=1, n_batches=2, one_application=True, duplicates=1
    ),
    "an administrator who aborts in a partition": Model(first_version=True, cuts=1),
    "a replay that times out, too": Model(first_version=True, n_tasks=1, n_runs=3, timeouts=2),
}
LARGE = {
    "three tasks, three runs, two time-outs": Model(first_version=True, n_tasks=3, n_runs=3, timeouts=2),
    "three tasks, speculative copies": Model(first_version=True, n_tasks=3, duplicates=2, one_application=True),
    "two micro-batches, three runs": Model(first_version=True, n_tasks=1, n_batches=2, n_runs=3, crashes=2, timeouts=2),
    "three tasks, two micro-batches": Model(first_version=True, n_tasks=3, n_batches=2),
    "other rows, three runs": Model(first_version=True, n_runs=3, timeouts=2, shuffles=True),
    "cuts, three runs": Model(first_version=True, n_runs=3, cuts=2),
}


def of_version(model: Model, version: str) -> Model:
    return model if version == "TV1" else Model(**{**_fields(model), "first_version": False})


def _fields(model: Model) -> dict[str, object]:
    return {name: getattr(model, name) for name in model.__dataclass_fields__}


def check(model: Model) -> None:
    found = explore(model)
    assert found.violation is None, "\n".join(found.trace)
    # Not by doing nothing: micro-batches are finished without a fault, and after every fault.
    assert {(model.crashes, model.timeouts), (0, model.timeouts), (model.crashes, 0)} <= found.completed


@pytest.mark.parametrize("version", ["TV1", "TV2"])
@pytest.mark.parametrize("name", SMALL)
def test_nothing_is_lost_or_doubled_in_any_order(name: str, version: str) -> None:
    check(of_version(SMALL[name], version))


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("version", ["TV1", "TV2"])
@pytest.mark.parametrize("name", LARGE)
def test_nothing_is_lost_or_doubled_in_any_order_of_larger_models(name: str, version: str) -> None:
    check(of_version(LARGE[name], version))


#: The smallest model that needs a rule.
NEEDED_BY = {
    "only what is open in its partition is committed": Model(first_version=True, n_tasks=1, cuts=1),
    "a replay replaces only equal rows": SMALL["tasks that compute other rows"],
    "a replacement is decided before it is ended": SMALL["a replay that times out, too"],
    "a repeated micro-batch uses new ids": Model(first_version=True, n_tasks=1, one_application=True),
    "each attempt has an id of its own": Model(first_version=True, n_runs=1, duplicates=1),
    "what has ended is settled before Spark's log": Model(first_version=True, n_tasks=1, n_batches=2),
}


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_is_needed(rule: str) -> None:
    found = explore(without(NEEDED_BY.get(rule, Model(first_version=True, n_tasks=1)), rule))
    assert found.violation is not None, f"{found.n_states} states, and none needs it"
