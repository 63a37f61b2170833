"""A topic's configs, changed one by one on a real broker."""

from __future__ import annotations

import time
from typing import Any

import pytest

from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.admin import alter_topic_configs, describe_configs_of
from pykafka_wire.wire.errors import BrokerError

pytestmark = pytest.mark.broker


def test_configs_are_set_and_deleted_all_or_none(cluster: Cluster, topic: Any) -> None:
    name = topic(config={"retention.ms": "-1"})

    def own() -> dict[str, str | None]:
        return {each.name: each.value for each in describe_configs_of(cluster, name) if each.is_own}

    before = own()
    assert before["retention.ms"] == "-1"
    alter_topic_configs(cluster, name, values={"max.message.bytes": "2000"}, delete=["retention.ms"])
    # The controller has altered it; a broker learns of it a moment later.
    after = {name: value for name, value in before.items() if name != "retention.ms"} | {"max.message.bytes": "2000"}
    deadline = time.monotonic() + 60
    while own() != after:
        assert time.monotonic() < deadline, own()
        time.sleep(0.05)
    with pytest.raises(BrokerError) as raised:
        alter_topic_configs(cluster, name, values={"max.message.bytes": "3000", "retention.ms": "soon"})
    assert raised.value.name == "INVALID_CONFIG"
    assert own()["max.message.bytes"] == "2000"
    others = [each for each in describe_configs_of(cluster, name) if not each.is_own]
    assert "retention.ms" in [each.name for each in others]
    assert [each.name for each in others] == sorted(each.name for each in others)
