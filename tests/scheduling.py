"""Which process of pytest-xdist takes which files of tests."""

from __future__ import annotations

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController


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
