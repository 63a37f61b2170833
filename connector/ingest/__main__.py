"""``python -m pykafka_wire.ingest shop.toml``: for ``spark-submit``, whose session it uses, and Databricks' jobs."""

from __future__ import annotations

import sys

from pykafka_wire.errors import ConnectorError
from pykafka_wire.ingest.command import ingest
from pykafka_wire.wire.errors import WireError

if __name__ == "__main__":
    try:
        ingest.main(prog_name="pykafka_wire.ingest")
    except (WireError, ConnectorError) as error:
        sys.exit(f"Error: {error}")
