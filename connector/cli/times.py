"""Offsets and times as a user writes them, and as they are shown."""

from __future__ import annotations

from datetime import datetime, timezone

import click

from pykafka_wire.errors import OptionError
from pykafka_wire.options.starting_offsets import parse_timestamp
from pykafka_wire.wire.cluster.admin import EARLIEST, LATEST


def parse_time(text: str) -> int:
    """Milliseconds since the epoch; raises click.UsageError for anything else."""
    try:
        return parse_timestamp(text, "the time")
    except OptionError as error:
        raise click.UsageError(error.message) from error


def parse_position(text: str) -> tuple[str, int]:
    """``("offset", 42)``, ``("shift", -10)`` or ``("time", ms)``, where earliest and latest are special times."""
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return "time", EARLIEST if word == "earliest" else LATEST
    if word.isdecimal():
        return "offset", int(word)
    if word[:1] in "+-" and word[1:].isdecimal():
        return "shift", int(word)
    try:
        return "time", parse_time(text)
    except click.UsageError as error:
        raise click.UsageError(f"{error.message} Or: earliest, latest, an offset, +N or -N.") from error


def format_timestamp(timestamp_ms: int) -> str | None:
    """A timestamp as ISO-8601 in UTC, None for a negative one."""
    if timestamp_ms < 0:
        return None
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, tz=timezone.utc).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):  # beyond the year 9999
        return f"{timestamp_ms} ms (micro- or nanoseconds?)"
