"""Where an Iceberg table's position is: in the summaries of the current snapshot and its ancestors, else in a property.

The property does not expire with snapshots, and stays when the table is set back to an older snapshot. So the property names the
snapshot of its position, by Iceberg's sequence number, and counts only if that snapshot is an ancestor of the current one. If
snapshots have expired, the table's earlier metadata files show its ancestors (:func:`with_expired`).

Iceberg's cherry-pick of a snapshot of the ingest makes a new snapshot with the same rows, but without the position. Its summary
names the picked snapshot, whose position counts if it begins where the table ended (:func:`has_gap`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from pykafka_wire.ingest.tables.iceberg.long_properties import joined
from pykafka_wire.ingest.tables.position import POSITION_PROPERTY, Landed, position_property

_log = logging.getLogger(__name__)

#: The entry of a snapshot's summary with the position.
SUMMARY: Final = "pykafka-wire"
#: The table property with the initial position of a table without snapshots.
BEGINS_AT: Final = "pykafka-wire.begins-at"
#: The entry of a snapshot's summary with the id of the snapshot that was cherry-picked.
_PICKED: Final = "source-snapshot-id"
#: The key, in the property, of the sequence number of the position's snapshot; 0 for none.
_SNAPSHOT: Final = "snapshot"


def with_expired(stored: Any) -> Any:
    """Return the metadata of a pyiceberg table, with expired snapshots if no other one has a position.

    Files in the table's metadata log have them, if those are kept.

    Without them a table that was set back, and got another program's snapshot since, looks like one that was not.
    """
    from pyiceberg.serializers import FromInputFile

    metadata = stored.metadata
    for entry in reversed(metadata.metadata_log):
        if POSITION_PROPERTY not in metadata.properties or next(history(metadata), None) is not None:
            break
        try:
            earlier = FromInputFile.table_metadata(stored.io.new_input(entry.metadata_file))
        except Exception as error:  # of a file system; the file may be deleted
            _log.debug("The earlier metadata of an Iceberg table cannot be read.", exc_info=error)
            break
        known = {snapshot.snapshot_id: snapshot for snapshot in earlier.snapshots}
        # pyiceberg removes the parent id if the parent expires.
        known |= {
            each.snapshot_id: each
            for each in metadata.snapshots
            if each.parent_snapshot_id or each.snapshot_id not in known
        }
        metadata = metadata.model_copy(update={"snapshots": [*known.values()]})
    return metadata


def summary_of(snapshot: Any) -> Mapping[str, Any]:
    """Return the summary of a snapshot, without its operation. Snapshots of format version 1 may have none."""
    return {} if snapshot.summary is None else dict(snapshot.summary.additional_properties)


def landed_in(snapshot: Any) -> Landed | None:
    """Return the position in a snapshot's summary; None for another program's snapshot."""
    summary = summary_of(snapshot)
    n_added = summary.get("added-records")
    return Landed.from_json(summary.get(SUMMARY), None if n_added is None else int(n_added))


def snapshots(metadata: Any, version: int | None = None) -> Iterator[Any]:
    """Yield a snapshot, by default the current one, and its ancestors, newest first, as far back as they are kept.

    Other snapshots belong to branches, or were rolled back.
    """
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    snapshot = by_id.get(metadata.current_snapshot_id if version in (None, -1) else version)
    while snapshot is not None:
        yield snapshot
        snapshot = by_id.get(snapshot.parent_snapshot_id)


def history(metadata: Any, version: int | None = None) -> Iterator[Landed]:
    """Yield the position in each commit of an ingest, newest first, as far back as snapshots are kept.

    Args:
        version: the snapshot to begin with, by default the current one.
    """
    return (landed for landed, _ in _history(metadata, version))


def _history(metadata: Any, version: int | None = None) -> Iterator[tuple[Landed, bool]]:
    """Yield the positions of :func:`history`, and whether each is that of a snapshot that was cherry-picked."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    older = metadata.current_snapshot_id if version in (None, -1) else version
    is_first = True
    for snapshot in snapshots(metadata, version):
        landed, picked = landed_in(snapshot), by_id.get(int(summary_of(snapshot).get(_PICKED, 0)))
        if landed is not None:
            yield landed, False
        elif picked is not None and (landed := landed_in(picked)) is not None:
            yield landed, True
        older = snapshot.parent_snapshot_id
        is_first = snapshot.sequence_number == 1  # pyiceberg removes the parent id if the parent expires
    if older is not None or not is_first:  # earlier snapshots have expired
        return
    initial_position = Landed.from_json(joined(metadata.properties).get(BEGINS_AT))
    if initial_position is not None:
        yield initial_position, False


def has_gap(metadata: Any) -> bool:
    """Return whether a snapshot of the ingest was cherry-picked whose rows do not begin where the table ended, so that no position
    says what the table has."""
    newer: Landed | None = None
    for landed, is_picked in _history(metadata):
        if newer is not None and not newer.follows(landed):
            return True
        if not is_picked:
            break
        newer = landed
    return False


def held(metadata: Any) -> Landed | None:
    """Return the table's position; None if the table has none, or has lost it."""
    return next(history(metadata), None) or recorded(metadata)


def is_rolled_back(metadata: Any) -> bool:
    """Return whether the table has a position of an older commit than the newest one, and the property not yet."""
    position, newest = held(metadata), newest_recorded(metadata)
    if position is None or newest is None:
        return False
    return position.sequence < newest.sequence and position.attempt != newest.attempt


def numbered(metadata: Any) -> Landed | None:
    """Return the table's position with a sequence number that is not below that of any earlier commit, rolled back or not.

    After a rollback to a commit itself, the number is a new one, since rejects of this commit that were replayed later are to be
    written again.
    """
    position, newest = held(metadata), newest_recorded(metadata)
    if position is None or newest is None or position.sequence >= newest.sequence:
        return position
    current = next(snapshots(metadata), None)
    is_new = is_rolled_back(metadata) and (current is None or landed_in(current) is not None)
    return replace(position, sequence=newest.sequence + is_new)


def recorded(metadata: Any) -> Landed | None:
    """Return the position in the property, if it is one of the current snapshot and its ancestors."""
    landed, snapshot = newest_recorded(metadata), _recorded_snapshot(metadata)
    if landed is None or snapshot is None:
        return landed
    numbers = [each.sequence_number or 0 for each in snapshots(metadata)]
    is_ancestor = snapshot in numbers or snapshot < min(numbers, default=1)
    return landed if is_ancestor else None


def newest_recorded(metadata: Any) -> Landed | None:
    """Return the position in the property, of whichever snapshot it is."""
    return Landed.from_json(joined(metadata.properties).get(POSITION_PROPERTY))


def property_of(landed: Landed, snapshot: int) -> dict[str, str]:
    """Return the property with a position, which is that of the snapshot with this sequence number."""
    ((name, text),) = position_property(landed).items()
    return {name: json.dumps({**json.loads(text), _SNAPSHOT: snapshot})}


def of_current_snapshot(properties: Mapping[str, str], metadata: Any) -> dict[str, str]:
    """Return properties in which a position without a snapshot is that of the current snapshot."""
    text = properties.get(POSITION_PROPERTY)
    if text is None:
        return dict(properties)
    current = next(snapshots(metadata), None)
    number = 0 if current is None else current.sequence_number or 0
    return {**properties, POSITION_PROPERTY: json.dumps({_SNAPSHOT: number, **json.loads(text)})}


def with_positions(kept: Collection[int], metadata: Any) -> set[int]:
    """Return the ids of snapshots to keep so that ``kept`` keep their positions: with the ancestors of each, up to the newest one
    with a position, and with the snapshots that were cherry-picked since.
    """
    needed = set(kept)
    for snapshot_id in kept:
        path = []
        for snapshot in snapshots(metadata, snapshot_id):
            path += [snapshot.snapshot_id, int(summary_of(snapshot).get(_PICKED, snapshot.snapshot_id))]
            if landed_in(snapshot) is not None or snapshot.sequence_number == 1:
                needed.update(path)
                break
    return needed


def _recorded_snapshot(metadata: Any) -> int | None:
    """Return the sequence number of the snapshot whose position the property has; None if it is unknown."""
    document: Any = json.loads(joined(metadata.properties).get(POSITION_PROPERTY, "{}"))
    if _SNAPSHOT in document:
        return int(document[_SNAPSHOT])
    landed = newest_recorded(metadata)  # written by an older version
    if landed is None or not landed.attempt:
        return None
    for snapshot in metadata.snapshots:
        found = landed_in(snapshot)
        if found is not None and found.attempt == landed.attempt:
            return snapshot.sequence_number or 0
    return None
