"""Rows that Spark Connect's server keeps for a session, and who asks it to release them.

PySpark's finalizer of such rows asks the server, without a deadline, in whichever thread drops the last reference: where the
response is lost, that thread never ends. https://github.com/apache/spark/pull/58085
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

from pyspark.sql import DataFrame


def leave_release_to_server(batch: DataFrame) -> None:
    """Let the server alone release a micro-batch's rows, as it does at the micro-batch's end."""
    plan = _kept_plan(batch)
    if plan is not None:
        plan._spark_session = None


def computed_on_server(rows: DataFrame) -> DataFrame:
    """Return rows that are computed once, now, without the plan that they were computed by.

    A session of Spark Connect asks for their release in a thread of its own, which nothing waits for.
    """
    kept = rows.localCheckpoint()
    plan = _kept_plan(kept)
    if plan is None:
        return kept
    # PySpark takes the thread's active session for theirs, in which the server does not have them.
    session: Any = rows.sparkSession
    weakref.finalize(plan, _release, type(plan), plan._relation_id, session).atexit = False
    plan._spark_session = None
    return type(kept)(plan, session)


def _kept_plan(rows: DataFrame) -> Any:
    """Return the plan of rows that the server keeps; None in a classic session, which has none."""
    plan = vars(rows).get("_plan")
    return plan if hasattr(plan, "_spark_session") else None


def _release(kept: Any, relation_id: str, session: Any) -> None:
    # The finalizer of this one runs in the new thread.
    threading.Thread(target=lambda: kept(relation_id, session), name="pykafka-wire-ingest-release", daemon=True).start()
