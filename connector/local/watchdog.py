"""A program that ends the processes of a local cluster, and removes its folder, when their owner has ended.

Owns: the rule that no broker outlives the process that started it, even one that dies by SIGKILL.
Must not know: Kafka. It reads lines from its standard input, ``+PID`` to watch a process group and ``-PID`` to forget
it. The end of the input means that the owner has closed the pipe or ended: the kernel closes the pipe even if the owner is
killed. This works on Linux and on macOS, which has no PR_SET_PDEATHSIG (and that signal fires when a *thread* ends).

It runs with ``python -I -S``: standard library only, none of the owner's environment.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time

# SIGKILL takes effect as soon as the process is scheduled; seconds are only needed on a machine that is thrashing. (On
# Linux a dead process counts as there until its parent has waited for it, so this may also time out.)
GONE_WITHIN_S = 3.0


def main(folder: str) -> None:
    # Ctrl-C and a service manager's SIGTERM reach the whole process group. The owner handles them; this process must outlive it.
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    # The owner waits for this: a signal that comes while the interpreter starts would still end it.
    with contextlib.suppress(BrokenPipeError):  # an owner that was interrupted meanwhile waits no more
        os.write(1, b"ready\n")
    groups: set[int] = set()
    for line in sys.stdin:
        if line.startswith("+"):
            groups.add(int(line[1:]))
        elif line.startswith("-"):
            groups.discard(int(line[1:]))
    for group in groups:
        _signal(group, signal.SIGKILL)
    deadline = time.monotonic() + GONE_WITHIN_S
    while any(_signal(group, 0) for group in groups) and time.monotonic() < deadline:
        time.sleep(0.02)
    shutil.rmtree(folder, ignore_errors=True)


def _signal(group: int, number: int) -> bool:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):  # macOS returns EPERM for a group of zombies
        return False
    return True


if __name__ == "__main__":
    main(sys.argv[1])
