"""Option names: which ones a read or a write accepts.

The connector's own options are listed in :mod:`pykafka_wire.options.table`. Client settings, ``kafka.*``, are checked by
:mod:`pykafka_wire.wire.settings`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final, Literal

from pykafka_wire.errors import OptionError
from pykafka_wire.options.table import OPTIONS

Mode = Literal["stream", "batch", "sink"]

#: Options that Spark itself adds to a source's, for tables, views and streaming writers (seen on 4.0 to 4.3).
_SPARKS_OWN: Final = frozenset(
    {"path", "paths", "provider", "owner", "location", "external", "is_managed_location", "comment", "collation"}
    | {"serialization.format", "checkpointlocation", "queryname", "outputmode"}
)

#: Options of another mode, and what to use instead; (names, modes they are refused in, reason).
_MISPLACED: Final[tuple[tuple[frozenset[str], frozenset[str], str], ...]] = (
    (
        frozenset({"endingoffsets", "endingoffsetsbytimestamp", "endingtimestamp"}),
        frozenset({"stream"}),
        "a stream has no end; use a batch read, or trigger(availableNow=True)",
    ),
)


def check_names(options: Iterable[str], mode: Mode) -> None:
    known = {spec.name.lower(): spec.name for spec in OPTIONS}
    for name in options:
        lowered = name.lower()
        if lowered.startswith(("kafka.", "option.")) or lowered in _SPARKS_OWN:
            continue
        if lowered not in known:
            near = difflib.get_close_matches(lowered, known, n=1)
            hint = f"did you mean {known[near[0]]}?" if near else "see the table of options in the README."
            raise OptionError(f"there is no option {name!r}: {hint}")
        for names, modes, reason in _MISPLACED:
            if lowered in names and mode in modes:
                raise OptionError(f"{known[lowered]} does not apply here: {reason}.")
