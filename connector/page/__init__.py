"""The page that shows a running ingest, and the same data as JSON at ``/api``: `docs/page.md`.

Owns the data of the page (:mod:`~pykafka_wire.page.snapshots`), the rates of the last quarter of an hour
(:mod:`~pykafka_wire.page.sampling`), the server (:mod:`~pykafka_wire.page.server`) and the page's files (``static/``), which need
no build step. Knows neither Spark nor tables: an ingest supplies snapshots. The page never waits for the ingest, and the ingest
never waits for the page.
"""

from __future__ import annotations

from pykafka_wire.page.address import PageSettings

__all__ = ["PageSettings"]
