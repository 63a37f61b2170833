"""How a user names a place in a checkpoint: ``PATH``, ``PATH#MICRO_BATCH``, ``PATH#MICRO_BATCH/SOURCE`` or ``PATH#/SOURCE``."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Final

from pykafka_wire.errors import OptionError
from pykafka_wire.wire.masking import without_secrets

#: Before a reference, where an option has other values, too.
PREFIX: Final = "checkpoint:"
#: The same for a table's end.
TABLE_PREFIX: Final = "table:"

_FRAGMENT: Final = re.compile(r"(?P<batch>[0-9]{1,18})?(?:/(?P<source>[A-Za-z0-9_-]+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointReference:
    """A place in a checkpoint.

    Attributes:
        path: the folder, a local path or a URI, which may hold credentials.
        batch_id: the micro-batch, None for the newest one that is committed.
        source: the query's source, by the name that the checkpoint has for it, a number from 0 on; None for all.
        position: what was read there already, as ``checkpoint_position`` returns it; None if it is to be read.
        is_table: whether the position is a table's end, and the path its name.
        prefix: before the names of Kafka's columns in the table; None looks for them.
    """

    path: str = field(repr=False)
    batch_id: int | None = None
    source: str | None = None
    position: str | None = None
    is_table: bool = False
    prefix: str | None = None

    @property
    def described(self) -> str:
        """Return what is referred to, for errors."""
        return f"the {'table' if self.is_table else 'checkpoint'} {self}"

    def __str__(self) -> str:
        return self.with_fragment(self.batch_id, self.source)

    def with_fragment(self, batch_id: int | None, source: str | None = None) -> str:
        """Return the text of a reference to another place of this checkpoint, without credentials."""
        batch = "" if batch_id is None else str(batch_id)
        fragment = batch if source is None else f"{batch}/{source}"
        return without_secrets(self.path) + (f"#{fragment}" if fragment else "")


def parse_reference(value: str, option: str, *, needs_batch: bool = False) -> CheckpointReference:
    """Return the place that an option names, with or without :data:`PREFIX`.

    Args:
        option: the option's name, for errors.
        needs_batch: the micro-batch must be named.

    Raises:
        OptionError: there is no path, or what follows its last ``#`` is neither a micro-batch nor a source.
    """
    text = value.strip()
    if text[: len(PREFIX)].lower() == PREFIX:
        text = text[len(PREFIX) :]
    if text.startswith("{") and not needs_batch:
        try:
            return CheckpointReference(path=str(json.loads(text)["checkpoint"]), position=text)
        except (ValueError, KeyError) as error:
            raise OptionError(f"{option} is malformed ({error}): give what checkpoint_position returned.") from error
    path, separator, fragment = text.rpartition("#")
    if not separator:
        path, fragment = text, ""
    shown = without_secrets(text)
    example = "/lake/_checkpoints/orders#12"
    if not path.strip("/ ") and path.strip() != "/":
        raise OptionError(f"{option} names no folder in {shown!r}: give a query's checkpointLocation, as in {example}.")
    match = _FRAGMENT.fullmatch(fragment)
    if match is None:
        raise OptionError(
            f"{option} is {shown!r}: after # comes the number of a micro-batch, as in {example}, and the number of a source if "
            f"the query has several, as in {example}/0."
        )
    batch_id = None if match["batch"] is None else int(match["batch"])
    if needs_batch and batch_id is None:
        raise OptionError(f"{option} is {shown!r}: name the micro-batch after the folder, as in {example}.")
    return CheckpointReference(path=path.rstrip("/") or "/", batch_id=batch_id, source=match["source"])


def parse_table(value: str, option: str) -> CheckpointReference:
    """Return the end of a table behind :data:`TABLE_PREFIX`: ``PATH``, ``PATH#PREFIX``, or what ``table_position`` returns.

    Raises:
        OptionError: it is the name of a table. A source plans in a process without a Spark session, which alone can find one.
    """
    text = value.strip()[len(TABLE_PREFIX) :].strip()
    if not text.startswith("{"):
        if "/" not in text:
            raise OptionError(
                f"{option} is {without_secrets(value.strip())!r}: only a Spark session can find a table by its name. Give the path "
                f"of a Delta table, or set {option} to table_position(spark, {without_secrets(text)!r}), from pykafka_wire."
            )
        path, separator, prefix = text.partition("#")
        return CheckpointReference(path=path, is_table=True, prefix=prefix if separator else None)
    try:
        return CheckpointReference(path=str(json.loads(text)["checkpoint"]), position=text, is_table=True)
    except (ValueError, KeyError) as error:
        raise OptionError(f"{option} is malformed ({error}): give what table_position returned.") from error
