"""CPU time and peak memory (sampled) of Spark's processes while something runs."""

from __future__ import annotations

import contextlib
import threading
import time

import psutil  # type: ignore[import-untyped]

_EVERY_S = 0.02
_CPU_EVERY_S = 0.1
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
    """CPU time of a JVM and of the processes below it, sampled from entering to leaving.

    What a process used before its last sample is known after it has ended: no other process is asked for it.

    Attributes:
        seconds: user and system time.
        python_seconds: what the Python processes used of it.
        sampler_seconds: what the sampling itself used, of this process.
    """

    def __init__(self, jvm_pid: int) -> None:
        self._jvm = psutil.Process(jvm_pid)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="cpu-time", daemon=True)
        #: CPU seconds at the first and at the last sample, by process.
        self._first: dict[psutil.Process, float] = {}
        self._last: dict[psutil.Process, float] = {}
        self._java: set[psutil.Process] = set()
        self.seconds = self.python_seconds = self.sampler_seconds = 0.0

    def __enter__(self) -> CpuTime:
        self._look()
        self._first = dict(self._last)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._look()
        # One that began meanwhile has used all of its time here.
        used = {process: seconds - self._first.get(process, 0.0) for process, seconds in self._last.items()}
        self.seconds = sum(used.values())
        self.python_seconds = sum(seconds for process, seconds in used.items() if process not in self._java)

    def _sample(self) -> None:
        while not self._stop.wait(_CPU_EVERY_S):
            self._look()
        self.sampler_seconds = time.thread_time()

    def _look(self) -> None:
        """Executors are JVMs of their own; a process whose parent has ended is another one's child."""
        for process in {self._jvm, *self._last, *self._jvm.children(recursive=True)}:
            with contextlib.suppress(psutil.NoSuchProcess):
                if not process.is_running():  # another process may have its number now
                    continue
                times = process.cpu_times()
                if process not in self._last and process.name() == "java":
                    self._java.add(process)
                self._last[process] = times.user + times.system
