"""Checkpoints as Spark writes them, for queries that never ran."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

#: When micro-batch N was planned: this and N seconds, in ms since the epoch.
PLANNED_MS = 1_700_000_000_000


def write_checkpoint(
    folder: Path,
    micro_batches: Mapping[int, Sequence[Any] | Mapping[str, Any]],
    *,
    committed: int = -1,
    started_at: Mapping[int, Any] | Mapping[str, Any] | None = None,
) -> Path:
    """A checkpoint with these offsets of each micro-batch's sources, by name (version 2 of the log) or in order; those up to
    ``committed`` are committed, and ``started_at`` is where sources of the JVM connector started."""
    for log in ("offsets", "commits"):
        (folder / log).mkdir(parents=True, exist_ok=True)
    (folder / "metadata").write_text('{"id":"a0fabb60-5be6-4d2e-828b-8054b4c385b1"}')
    for batch_id, sources in micro_batches.items():
        metadata = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": PLANNED_MS + 1000 * batch_id, "conf": {}})
        named = isinstance(sources, Mapping)
        lines = (
            [f"{name}:{_text(offset)}" for name, offset in sources.items()]
            if isinstance(sources, Mapping)
            else [_text(offset) for offset in sources]
        )
        text = "\n".join(["v2" if named else "v1", metadata, *lines])
        (folder / "offsets" / str(batch_id)).write_text(text)
        (folder / "offsets" / f".{batch_id}.crc").write_bytes(b"crc\x00")
        if batch_id <= committed:
            (folder / "commits" / str(batch_id)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    for source, offset in (started_at or {}).items():
        (folder / "sources" / str(source)).mkdir(parents=True)
        (folder / "sources" / str(source) / "0").write_bytes(b"\x00v1\n" + _text(offset).encode())
    return folder


def ours(offsets: Mapping[str, Mapping[str, int]], **more: Any) -> dict[str, Any]:
    """This package's offset of a source."""
    return {"version": 1, "offsets": offsets, "query": "q", "group": "pykafka-wire-q", **more}


def _text(offset: Any) -> str:
    return offset if isinstance(offset, str) else json.dumps(offset)
