"""The version of this client, which it tells brokers with each connection (KIP-511)."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
