"""Whether the process forked since an object was made: a child must not go on under its parent's producer id.

Owns a count of the forks that lead to this process. Whoever keeps a producer id, sequences or records of its own process
remembers :data:`generation` with them, and compares before each use. A module's attribute, not a call or ``os.getpid()``: it
is compared for each record that is sent.
"""

from __future__ import annotations

import os

#: How many forks separate this process from the one that imported this module first. Changes in forked children only.
generation: int = 0


def _count_fork() -> None:
    global generation
    generation += 1


os.register_at_fork(after_in_child=_count_fork)
