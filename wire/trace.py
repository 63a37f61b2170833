"""The exchange with brokers, readable as a protocol analyser shows it: one line per request and per response.

Turned on by the setting ``trace`` or the environment variable ``PYKAFKA_WIRE_TRACE``: ``stderr``, or the path of a file that
lines are appended to. A line has the time, the broker, the direction, API and version, correlation id, size, the fields
that matter, and on a response the latency and the names of its error codes. Secrets (authentication bytes) and payloads
(record batches) are never in it.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TextIO

from pykafka_wire.wire.errors import error_info
from pykafka_wire.wire.primitives import Piece
from pykafka_wire.wire.protocol import Connection, Received, Sent
from pykafka_wire.wire.schema import Struct

ENVIRONMENT: Final = "PYKAFKA_WIRE_TRACE"
#: Longest text of the fields of one line; a Metadata response of thousands of partitions is cut.
_MAX_FIELDS: Final = 400
#: Fields that every message has or that say nothing to a reader.
_DULL: Final = frozenset({"throttle_time_ms", "unknown_tags", "error_message"})
#: Record batches: their size matters, not their bytes.
_PAYLOADS: Final = frozenset({"records"})
#: Tokens, passwords and their kin.
_SECRETS: Final = frozenset({"auth_bytes"})


class Trace:
    """Writes the lines; does nothing, at the cost of one check, where no target is set."""

    def __init__(self, target: str) -> None:
        self._target = target or os.environ.get(ENVIRONMENT, "")
        self._stream: TextIO | None = None
        self._lock = threading.Lock()

    def opened(self, broker: str, address: str, protocol: Connection, elapsed_s: float) -> None:
        """A connection is ready."""
        if self._target:
            self._write(
                f"{broker} == connected to {address}, {len(protocol.broker_versions)} APIs, {elapsed_s * 1000:.1f} ms"
            )

    def sent(self, broker: str, sent: Sent, pieces: list[Piece]) -> None:
        """A request leaves."""
        if self._target:
            size = sum(memoryview(piece).nbytes for piece in pieces)
            self._write(f"{broker} -> {_title(sent)} {size} B {_fields(sent.request)}")

    def received(self, broker: str, received: Received, latency_ms: float) -> None:
        """A response has come."""
        if self._target:
            errors = sorted({error_info(code).name for code in _error_codes(received.response) if code})
            outcome = f" {','.join(errors)}" if errors else ""
            self._write(
                f"{broker} <- {_title(received.sent)} {received.size} B {latency_ms:.1f} ms{outcome} "
                f"{_fields(received.response)}"
            )

    def _write(self, line: str) -> None:
        with self._lock:
            if self._stream is None:
                self._stream = sys.stderr if self._target == "stderr" else Path(self._target).open("a", buffering=1)  # noqa: SIM115  # open while the process lives
            self._stream.write(f"{datetime.now().strftime('%H:%M:%S.%f')[:-3]} {line}\n")


def _title(sent: Sent) -> str:
    return f"{type(sent.request).name} v{sent.version} #{sent.correlation_id}"


def _fields(message: Struct) -> str:
    text = " ".join(f"{name}={_value(name, value)}" for name, value in _items(message) if name not in _DULL)
    return text if len(text) <= _MAX_FIELDS else f"{text[:_MAX_FIELDS]}…"


def _items(message: Struct) -> Iterator[tuple[str, Any]]:
    for name in type(message).__annotations__:
        yield name, getattr(message, name, None)


def _value(name: str, value: Any) -> str:
    if name in _SECRETS:
        return "***"
    if name in _PAYLOADS:
        if value is None:
            return "null"
        pieces = value if isinstance(value, list) else [value]
        return f"{sum(memoryview(piece).nbytes for piece in pieces)}B"
    if isinstance(value, Struct):
        return "{" + " ".join(f"{n}={_value(n, v)}" for n, v in _items(value) if n not in _DULL) + "}"
    if isinstance(value, list):
        shown = ",".join(_value("", element) for element in value[:20])
        return f"[{shown}{',…' if len(value) > 20 else ''}]"
    if isinstance(value, bytes | bytearray | memoryview):
        return f"{len(value)}B"
    return "null" if value is None else str(value)


def _error_codes(message: Any) -> Iterator[int]:
    if isinstance(message, Struct):
        for name, value in _items(message):
            if name == "error_code":
                yield value
            elif isinstance(value, Struct | list):
                yield from _error_codes(value)
    elif isinstance(message, list):
        for element in message:
            if isinstance(element, Struct | list):
                yield from _error_codes(element)
