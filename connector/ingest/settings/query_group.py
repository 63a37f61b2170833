"""The consumer group of an ingest's query, by which the command line finds it; loads nothing."""

from __future__ import annotations

from typing import Final

#: Before the ingest's name and the query's id.
GROUP_PREFIX: Final = "ingest."
