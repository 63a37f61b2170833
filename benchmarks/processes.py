"""CPU time and peak memory (sampled) of Spark's processes while something runs."""

from __future__ import annotations

import contextlib
import threading

import psutil  # type: ignore[import-untyped]

_EVERY_S = 0.02
#: The last argument of the daemon, and of the workers that it forks, which run tasks. Spark's other Python processes have
#: other modules there.
_TASKS = "pyspark.worker"


class PeakMemory:
    """Samples a JVM and the Python workers below it, from entering to leaving.

    Attributes:
        worker_bytes: the largest resident size that any one Python process had that runs tasks.
        driver_bytes: the same of those that the driver plans and commits with, or runs a streaming source in.
        jvm_bytes: the JVM's largest resident size.
        n_workers: how many processes that run tasks were seen.
    """

    def __init__(self, jvm_pid: int) -> None:
        self._jvm = psutil.Process(jvm_pid)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="peak-memory", daemon=True)
        self._seen: set[int] = set()
        self.worker_bytes = 0
        self.driver_bytes = 0
        self.jvm_bytes = 0

    @property
    def n_workers(self) -> int:
        return len(self._seen)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._stop.wait(_EVERY_S):
            self.jvm_bytes = max(self.jvm_bytes, self._jvm.memory_info().rss)
            for process in self._jvm.children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    n_bytes = process.memory_info().rss
                    if process.cmdline()[-1:] == [_TASKS]:
                        self.worker_bytes = max(self.worker_bytes, n_bytes)
                        self._seen.add(process.pid)
                    else:
                        self.driver_bytes = max(self.driver_bytes, n_bytes)


class CpuTime:
    """CPU time of a JVM and of the processes below it, from entering to leaving; those that have ended meanwhile count, too.

    Attributes:
        seconds: user and system time.
        python_seconds: what the Python processes used of it.
    """

    def __init__(self, jvm_pid: int) -> None:
        self._jvm = psutil.Process(jvm_pid)
        self._before = (0.0, 0.0)
        self.seconds = self.python_seconds = 0.0

    def __enter__(self) -> CpuTime:
        self._before = self._used()
        return self

    def __exit__(self, *_: object) -> None:
        java, python = (after - before for after, before in zip(self._used(), self._before, strict=True))
        self.seconds, self.python_seconds = java + python, python

    def _used(self) -> tuple[float, float]:
        """CPU seconds of Java and of Python: executors are JVMs of their own, and what has ended was Python."""
        java = python = 0.0
        for process in [self._jvm, *self._jvm.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                own = times.user + times.system
                python += times.children_user + times.children_system
                if process.name() == "java":
                    java += own
                else:
                    python += own
        return java, python
