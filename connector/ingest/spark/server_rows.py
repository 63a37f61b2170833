"""Cached rows on the server of Spark Connect, and their release.

PySpark's finalizer of cached rows sends a release request without a deadline, in the thread that drops the last reference: if the
response is lost, that thread hangs. https://github.com/apache/spark/pull/58085
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

from pyspark.sql import DataFrame


def leave_release_to_server(batch: DataFrame) -> None:
    """Leave the release of a micro-batch's rows to the server, which releases them at the end of the micro-batch."""
    plan = _kept_plan(batch)
    if plan is not None:
        plan._spark_session = None


def computed_on_server(rows: DataFrame) -> DataFrame:
    """Compute rows once, now, and return the cached rows without the plan that computed them.

    With Spark Connect, a separate daemon thread sends the release request, and nothing waits for that thread.
    """
    kept = rows.localCheckpoint()
    plan = _kept_plan(kept)
    if plan is None:
        return kept
    # PySpark would use the thread's active session, whose server side does not have these rows.
    session: Any = rows.sparkSession
    weakref.finalize(plan, _release, type(plan), plan._relation_id, session).atexit = False
    plan._spark_session = None
    return type(kept)(plan, session)


def _kept_plan(rows: DataFrame) -> Any:
    """Return the plan of rows that the server caches; None in a classic session."""
    plan = vars(rows).get("_plan")
    return plan if hasattr(plan, "_spark_session") else None


def _release(kept: Any, relation_id: str, session: Any) -> None:
    # The finalizer of ``kept`` runs in the new thread.
    threading.Thread(target=lambda: kept(relation_id, session), name="pykafka-wire-ingest-release", daemon=True).start()
