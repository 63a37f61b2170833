"""Logs a line once for all processes of a query on a machine, however often Spark replaces them.

Spark runs the driver's side of a query in several Python processes: one plans reads, others plan writes and commit them. It ends
processes that have been idle for a minute, so a query with a slow trigger gets new ones for each micro-batch. All of them get the
application's folder for temporary files (``SPARK_LOCAL_DIRS``), which Spark deletes when the application ends. The first process
that creates a file there for a line logs the line.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final

#: What Spark calls the folder that it makes for each application, within the user's folders for temporary files.
_OWN_FOLDER: Final = "blockmgr-"

#: What this process has logged, by process id: a forked child logs for itself.
_logged: set[tuple[object, ...]] = set()


def is_first(query: str, *line: str) -> bool:
    """Return whether this is the first time that a line is to be logged for a query, in this Spark application on this machine.

    Args:
        query: what identifies the query, such as its checkpoint; empty outside of a streaming query: then once in a process.
        line: what identifies the line.
    """
    key = (os.getpid(), query, *line)
    if key in _logged:
        return False
    _logged.add(key)
    folder = Path(os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0])
    if not query or not folder.name.startswith(_OWN_FOLDER):
        return True
    name = hashlib.sha256("\0".join((query, *line)).encode()).hexdigest()[:32]
    try:
        (folder / f"pykafka-wire-logged-{name}").touch(exist_ok=False)
    except FileExistsError:
        return False
    except OSError:  # better twice than never
        return True
    return True
