"""One Java process of a local cluster: its start, its log, its signals and its end.

Owns: spawning, readiness, signals, and the tie to the watchdog. Must not know: what the process is for.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

# Lines at the end of a log that an error quotes: enough for the stack trace of a broker that does not start.
TAIL_LINES = 30
POLL_S = 0.03
# A broker that shuts down cleanly first moves its leaders: under a second for a few partitions.
STOP_TIMEOUT_S = 30.0
WATCHDOG_TIMEOUT_S = 15.0


class LocalClusterError(RuntimeError):
    """A process of a local cluster failed to start, stop or run a command; the message ends with the end of its log."""


class PortTakenError(LocalClusterError):
    """Another process took a port between its choice and its use."""


class Watchdog:
    """The owner's side of the watchdog program, which ends the watched processes when this object or its process ends."""

    def __init__(self, folder: Path) -> None:
        program = Path(__file__).with_name("watchdog.py")
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(program), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._input = self._process.stdin
        with self._process.stdout:
            ready = self._process.stdout.readline()
        if ready != b"ready\n":
            raise LocalClusterError(f"the cluster's watchdog ended with code {self._process.wait()}")

    def watch(self, pid: int) -> None:
        self._send(f"+{pid}\n")

    def forget(self, pid: int) -> None:
        self._send(f"-{pid}\n")

    def close(self) -> None:
        """End every process still watched, remove the folder, and wait for both."""
        with contextlib.suppress(OSError):
            self._input.close()
        try:
            self._process.wait(WATCHDOG_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _send(self, line: str) -> None:
        try:
            self._input.write(line.encode())
            self._input.flush()
        except OSError as error:
            raise LocalClusterError(f"the cluster's watchdog has ended: {error}") from error


class SupervisedProcess:
    """A process that can be started again under the same command, and that dies with its owner.

    Args:
        ready: what it writes to its log when it is ready.
    """

    def __init__(self, name: str, command: Sequence[str], log_path: Path, watchdog: Watchdog, ready: str) -> None:
        self.name = name
        #: Its whole log, over all of its starts.
        self.log_path = log_path
        self._command = list(command)
        self._watchdog = watchdog
        self._ready = ready
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def pid(self) -> int | None:
        """Return its process id, None while it is not running."""
        return self._process.pid if self._process is not None else None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def spawn(self) -> None:
        """Start it, without waiting. Its output is appended to the log."""
        if self.running:
            raise LocalClusterError(f"{self.name} is already running (pid {self.pid})")
        with self.log_path.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.log_path.parent,
                # A session of its own: Ctrl-C must reach only the owner, which then closes the cluster cleanly.
                start_new_session=True,
            )
        self._watchdog.watch(self._process.pid)

    def is_ready(self) -> bool:
        """Return whether it is ready, after :meth:`spawn`.

        Raises:
            PortTakenError: it ended because a port was taken.
            LocalClusterError: it ended for another reason.
        """
        ended = not self.running  # before the log is read: what it wrote last must not be missed
        log = self.log()
        if not ended:
            return self._ready in log
        code = self._process.returncode if self._process is not None else None
        self._reap()
        taken = "BindException" in log or "Address already in use" in log
        raise (PortTakenError if taken else LocalClusterError)(
            f"{self.name} ended with code {code} before it was ready; its log ends:\n{self.log_tail}"
        )

    def stop(self) -> None:
        """Shut it down cleanly (SIGTERM) and wait for its end. Does nothing if it is not running.

        Raises:
            LocalClusterError: it did not end in time; it was killed then.
        """
        if self._process is not None and self.running:
            # A stopped process does not act on SIGTERM, and one that has just ended on neither.
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill()
                raise LocalClusterError(
                    f"{self.name} did not end within {STOP_TIMEOUT_S:.0f} s of SIGTERM and was killed; its log ends:\n"
                    f"{self.log_tail}"
                ) from None
        self._reap()

    def kill(self) -> None:
        """Kill it, as a power failure would (SIGKILL), and wait for its end."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._reap()

    def pause(self) -> None:
        """Suspend it (SIGSTOP): connections stay open, and it does not respond."""
        process = self._signal(signal.SIGSTOP)
        if hasattr(os, "waitid"):  # macOS: Python 3.13
            # On a busy machine some threads continue until another one has acted on the signal.
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Resume it after :meth:`pause` (SIGCONT)."""
        self._signal(signal.SIGCONT)

    def log(self) -> str:
        """Return its log since its last start."""
        try:
            with self.log_path.open("rb") as file:
                file.seek(self._log_start)
                return file.read().decode("utf-8", "replace")
        except FileNotFoundError:
            return ""

    @property
    def log_tail(self) -> str:
        return "\n".join(self.log().splitlines()[-TAIL_LINES:]) or "(empty)"

    def _signal(self, number: signal.Signals) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            raise LocalClusterError(f"{self.name} is not running, so {number.name} cannot reach it")
        self._process.send_signal(number)
        return self._process

    def _reap(self) -> None:
        if self._process is not None:
            self._watchdog.forget(self._process.pid)
            self._process = None


def wait_ready(processes: Sequence[SupervisedProcess], timeout_s: float) -> None:
    """Return when all of them are ready. They are watched together: the first that ends has the reason in its log, and others may
    only wait for it.

    Raises:
        PortTakenError: one ended because a port was taken.
        LocalClusterError: one ended, or was not ready in time and was killed.
    """
    deadline = time.monotonic() + timeout_s
    while processes := [process for process in processes if not process.is_ready()]:
        if time.monotonic() >= deadline:
            for process in processes:
                process.kill()
            raise LocalClusterError(
                f"{', '.join(process.name for process in processes)} not ready within {timeout_s:.0f} s; the log of "
                f"{processes[0].name} ends:\n{processes[0].log_tail}"
            )
        time.sleep(POLL_S)


def run_java(
    command: Sequence[str],
    *,
    what: str,
    stdin: str | None = None,
    timeout_s: float,
    watchdog: Watchdog | None = None,
) -> str:
    """Return the standard output of a Java program that ended with code 0.

    Raises:
        LocalClusterError: it failed or took too long; the message holds what it printed.
    """
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        if watchdog is not None:
            watchdog.watch(process.pid)
        try:
            out, error = process.communicate(stdin or "", timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise LocalClusterError(f"{what} did not end within {timeout_s:.0f} s") from None
        finally:
            process.kill()  # does nothing if it has ended
            process.wait()
            if watchdog is not None:
                watchdog.forget(process.pid)
    if process.returncode != 0:
        printed = "\n".join((out + error).splitlines()[-TAIL_LINES:])
        raise LocalClusterError(f"{what} failed with code {process.returncode}:\n{printed}")
    return out
