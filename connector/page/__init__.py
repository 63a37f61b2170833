"""A page that shows an ingest while it runs, and the same as JSON at ``/api``: `docs/page.md`.

Owns what a page shows (:mod:`~pykafka_wire.page.snapshots`), the rates of the last quarter of an hour
(:mod:`~pykafka_wire.page.sampling`), the server (:mod:`~pykafka_wire.page.server`) and the page itself (``static/``), without a
build step. It knows nothing of Spark and of tables: an ingest hands it snapshots. Nothing that it does waits for the ingest, and
nothing of the ingest waits for it.
"""

from __future__ import annotations

from pykafka_wire.page.address import PageSettings

__all__ = ["PageSettings"]
