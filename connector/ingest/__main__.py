"""``python -m pykafka_wire.ingest shop.toml``: for ``spark-submit``, whose session it uses, and Databricks' jobs."""

from __future__ import annotations

import sys

from pykafka_wire.cli.app import application

if __name__ == "__main__":
    application(["ingest", *sys.argv[1:]])
