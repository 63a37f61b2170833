"""``python -m pykafka_wire.ingest shop.toml``: for ``spark-submit`` and Databricks jobs; it uses their Spark session."""

from __future__ import annotations

import sys

from pykafka_wire.cli import main

if __name__ == "__main__":
    main(["ingest", *sys.argv[1:]])
