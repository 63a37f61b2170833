"""Peak memory of the processes of a read or a write."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from connectors import CONNECTORS, OURS
from datasets import Filled
from processes import PeakMemory
from reads import into_noop
from rig import Rig
from runs import Contender, Run
from streams import noop_query

#: Does it once, with the options given.
Transfer = Callable[[Rig, dict[str, str]], None]


def batch_read(rig: Rig, options: dict[str, str]) -> None:
    """Reads a topic whole."""
    into_noop(CONNECTORS[0].reader(rig.spark.read, options).load())


def stream_read(rig: Rig, options: dict[str, str]) -> None:
    """Reads a topic whole, as one micro-batch."""
    options = {**options, "startingOffsets": "earliest"}
    with noop_query(rig, CONNECTORS[0], options, {"availableNow": True}) as query:
        query.awaitTermination()


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The largest resident size of a Python worker; beside it that of the driver's Python processes and of its JVM.

    The JVM has run all items before, and does not give back what its heap has grown to.
    """

    dataset: Filled
    transfer: Transfer

    def datasets(self) -> tuple[Filled, ...]:
        return (self.dataset,)

    @contextlib.contextmanager
    def contenders(self, rig: Rig) -> Iterator[Sequence[Contender]]:
        options = {"kafka.bootstrap.servers": rig.bootstrap_servers, "subscribe": rig.topic(self.dataset)}

        def run() -> Run:
            with PeakMemory(rig.jvm_pid) as peak:
                self.transfer(rig, options)
            beside = {"driver_python_mb": peak.driver_bytes / 1e6, "driver_jvm_mb": peak.jvm_bytes / 1e6}
            return Run(value=peak.worker_bytes, beside={**beside, "workers": peak.n_workers})

        yield [Contender(name=OURS, run=run)]
