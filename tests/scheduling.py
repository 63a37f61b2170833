"""Which process of pytest-xdist takes which files of tests, and in which order."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Final

import pytest
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

from tests.shared_servers import SharedServers, fixtures_of

#: In pytest's cache: file -> the shared servers that it needs. The first worker writes it for the scheduler, whose process collects
#: no tests.
_NEEDED: Final = "pykafka-wire/needed-servers"
#: Among them: the session of Spark, which stays until the process ends. To start and to warm one up takes 40 s of processor time.
_SPARK: Final = "spark"


def in_order(items: list[pytest.Item], servers: SharedServers) -> None:
    """Files with Spark first, then those that start servers, then those with brokers: the order of how long they take. Those
    that share servers follow each other, before those that need none."""
    with_spark = {item.path for item in items if item.get_closest_marker("spark")}
    with_servers = {item.path for item in items if _starts_servers(item)}
    with_brokers = {item.path for item in items if item.get_closest_marker("broker")}

    def place(item: pytest.Item) -> tuple[bool, bool, bool, bool, list[str]]:
        path, needed = item.path, servers.needed(item.path)
        return path not in with_spark, path not in with_servers, path not in with_brokers, not needed, sorted(needed)

    items.sort(key=place)


def _starts_servers(item: pytest.Item) -> bool:
    """Whether a test may start servers of its own: by these fixtures, or without any fixture for brokers."""
    fixtures = {*fixtures_of(item)}
    return bool({"java", "kafka_cluster"} & fixtures) or (
        item.get_closest_marker("broker") is not None and "kafka" not in fixtures
    )


def tell_scheduler(config: pytest.Config, items: list[pytest.Item], servers: SharedServers) -> None:
    """Leave for the scheduler which shared servers each file needs; one worker does it, since all collect the same."""
    cache = getattr(config, "cache", None)
    if cache is not None and config.workerinput["workerid"] == "gw0":  # type: ignore[attr-defined]
        needed = {_file_of(item.nodeid): {*servers.needed(item.path)} for item in items}
        for item in items:
            needed[_file_of(item.nodeid)] |= {_SPARK} & {*fixtures_of(item)}
        cache.set(_NEEDED, {file: sorted(names) for file, names in needed.items()})


class FilesByServer(LoadFileScheduling):
    """Files in their order, but a process goes on with files that need the servers it runs, and leaves those that need
    another's servers to that one while there is anything else: each shared server is started in one process, not in all. Two
    processes, or half of many, have a session of Spark; the others end when all files that are left need one.

    The last of three processes or more takes files from the end. There are the unit tests, most of which wait: one process of
    them fits beside others that are busy, and several would leave the processor idle at the end. It starts neither brokers nor
    Spark before it has done them all.
    """

    def _assign_work_unit(
        self, node: WorkerController
    ) -> None:  # the only place where it chooses, without a public name
        files = [file for file in self.workqueue if not self._needs_spark(file) or self._may_use_spark(node)]
        if not files:
            node.shutdown()
            return
        if len(self.nodes) > 2 and node is self.nodes[-1]:
            files.reverse()
        running = self._servers_of(node)
        elsewhere = {name for other in self.nodes if other is not node for name in self._servers_of(other)}

        def cost(file: str) -> tuple[int, bool]:
            needed = self._servers_for(file)
            return len((needed - running) & elsewhere), not needed & running

        self.workqueue.move_to_end(min(files, key=cost), last=False)
        super()._assign_work_unit(node)

    def _may_use_spark(self, node: WorkerController) -> bool:
        """Return whether the process has a session of Spark, or too few others have one."""
        with_spark = [each for each, files in self.assigned_work.items() if any(map(self._needs_spark, files))]
        return node in with_spark or len(with_spark) < max(2, len(self.nodes) // 2)

    def _needs_spark(self, file: str) -> bool:
        return _SPARK in self._needed.get(file, ())

    def _servers_of(self, node: WorkerController) -> set[str]:
        """The shared servers that a process will run behind what it has been given."""
        return self._servers_for(next(reversed(self.assigned_work[node]), ""))

    def _servers_for(self, file: str) -> set[str]:
        """The shared servers that a file needs; a session of Spark is the process's own."""
        return {*self._needed.get(file, ())} - {_SPARK}

    @cached_property
    def _needed(self) -> Mapping[str, Collection[str]]:
        cache = getattr(self.config, "cache", None)
        return {} if cache is None else cache.get(_NEEDED, {})


def _file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]
