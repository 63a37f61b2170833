"""Which process of pytest-xdist takes which files of tests, and in which order."""

from __future__ import annotations

import pytest
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

from tests.shared_servers import SharedServers, fixtures_of


def in_order(items: list[pytest.Item], servers: SharedServers) -> None:
    """Files with Spark first, then those that start servers, then those with brokers: the order of how long they take. Those
    that share servers follow each other."""
    with_spark = {item.path for item in items if item.get_closest_marker("spark")}
    with_servers = {item.path for item in items if _starts_servers(item)}
    with_brokers = {item.path for item in items if item.get_closest_marker("broker")}

    def place(item: pytest.Item) -> tuple[bool, bool, bool, list[str]]:
        path = item.path
        return path not in with_spark, path not in with_servers, path not in with_brokers, sorted(servers.needed(path))

    items.sort(key=place)


def _starts_servers(item: pytest.Item) -> bool:
    """Whether a test may start servers of its own: by these fixtures, or without any fixture for brokers."""
    fixtures = {*fixtures_of(item)}
    return bool({"java", "kafka_cluster"} & fixtures) or (
        item.get_closest_marker("broker") is not None and "kafka" not in fixtures
    )


class FromBothEnds(LoadFileScheduling):
    """Files in their order, but the last of three processes or more takes them from the end.

    There are the unit tests, most of which wait: one process of them fits beside others that are busy, and several would leave the
    processor idle at the end. It starts neither brokers nor Spark before it has done them all.
    """

    def _assign_work_unit(
        self, node: WorkerController
    ) -> None:  # the only place where it chooses, without a public name
        if len(self.nodes) > 2 and node is self.nodes[-1]:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)
