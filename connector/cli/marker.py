"""``marker``: the last micro-batch of an exactly-once query, read from its marker."""

from __future__ import annotations

import sys
from typing import Any

import click

from pykafka_wire.cli.connection import command, connected, output
from pykafka_wire.cli.output import FAILED
from pykafka_wire.sink.exactly_once.marker import FoundMarker, Marker, UnreadableMarker, marker_group, read_markers


@command()
@click.argument("transactional_id", metavar="ID")
def marker(transactional_id: str) -> None:
    """Show the last micro-batch of an exactly-once query, by its kafka.transactional.id.

    After a decided micro-batch, the transactions of its tasks that may still be open are listed.
    """
    with connected() as cluster:
        markers = read_markers(cluster, transactional_id)
    to, rows = output(), [_fields(topic, stored) for topic, stored in markers.items()]
    to.rows(rows, empty=f"The group {marker_group(transactional_id)} has no marker.", only_json=("tasks",))
    for stored in () if to.json else markers.values():
        if isinstance(stored, Marker) and stored.pending:
            click.echo()
            to.rows(_tasks(stored), title=f"Decided transactions of micro-batch {stored.batch_id}")
    if not markers:
        sys.exit(FAILED)


def _fields(topic: str, marker: FoundMarker) -> dict[str, Any]:
    if not isinstance(marker, Marker):
        text = marker.description if isinstance(marker, UnreadableMarker) else "nothing"
        return {"marker topic": topic, "state": text}
    return {
        "marker topic": topic,
        "query": marker.query_id,
        "micro-batch": marker.batch_id,
        "state": "settled" if marker.is_settled else _decided_text(marker),
        "records": marker.n_records,
        "digest": marker.digest,
        "tasks": _tasks(marker),
    }


def _decided_text(marker: Marker) -> str:
    missing = ", ".join(map(str, marker.missing_parts))
    return f"decided, part {missing} of its list of transactions is missing" if missing else "decided"


def _tasks(marker: Marker) -> list[dict[str, Any]]:
    return [
        {
            "task": task.task,
            "transactional id": task.transaction.transactional_id,
            "producer id": task.transaction.identity.producer_id,
            "epoch": task.transaction.identity.producer_epoch,
            "records": task.n_records,
            "digest": task.digest,
            "written": [f"{r.topic}-{r.partition} {r.first_offset} to {r.last_offset}" for r in task.ranges],
        }
        for task in marker.pending
    ]
