"""``python -m pykafka_wire.cli``: the same as the command ``pykafka-wire``."""

from __future__ import annotations

from pykafka_wire.cli import main

main()
