"""The exchange with brokers, readable as a protocol analyser shows it: one line per request and per response.

Turned on by the setting ``trace`` or the environment variable ``PYKAFKA_WIRE_TRACE``: ``stderr``, ``stdout``, or the path of a
file that lines are appended to. A line has the time, the broker, the direction, API and version, correlation id, size, the
fields that matter, and on a response the latency and the names of its error codes. Fields that are declared secret
(authentication bytes) and payloads (record batches) are never in it. A target that cannot be written to ends the trace, not
the exchange. It knows no socket; the connection calls it.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import uuid
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TextIO

from pykafka_wire.wire.connection.state_machine import Received, Sent, StateMachine
from pykafka_wire.wire.error_codes import error_info
from pykafka_wire.wire.errors import WireError
from pykafka_wire.wire.protocol.fields import Struct
from pykafka_wire.wire.topic_partitions import topic_id_text

_logger = logging.getLogger(__name__)

ENVIRONMENT: Final = "PYKAFKA_WIRE_TRACE"
#: Longest text of the fields of one line: about four lines of a terminal. A Metadata response of thousands of partitions
#: is cut.
_MAX_FIELDS: Final = 400
#: Elements of one array that are shown.
_MAX_ELEMENTS: Final = 20
#: Fields that nearly every message has and that say nothing when they are at their default. Error codes stand in a line
#: by name.
_DULL: Final = frozenset({"throttle_time_ms", "error_code", "error_message", "client_software_name"})


class Trace:
    """Writes the lines; does nothing, at the cost of one check, where no target is set. Threads may share it."""

    def __init__(self, target: str) -> None:
        self._target = target or os.environ.get(ENVIRONMENT, "")
        self._file: TextIO | None = None
        self._lock = threading.Lock()

    def handshake(self, broker: str, events: Iterable[Sent | Received]) -> None:
        """Show what a connection's handshake has sent and got since it was last looked at."""
        for event in events:
            if isinstance(event, Sent):
                self.sent(broker, event)
            else:
                self.received(broker, event, None)

    def opened(self, broker: str, address: str, machine: StateMachine, elapsed_s: float) -> None:
        """Note that a connection is ready."""
        if self._target:
            self._write(
                f"{broker} == connected to {address}, {len(machine.broker_versions)} APIs, {elapsed_s * 1000:.1f} ms"
            )

    def closed(self, broker: str, error: WireError) -> None:
        """Note that a connection broke."""
        if self._target:
            self._write(f"{broker} == closed: {error.message}")

    def sent(self, broker: str, sent: Sent) -> None:
        """Note that a request leaves."""
        if self._target:
            self._write(f"{broker} -> {_title(sent)} {sent.size} B {_fields(sent.request, sent.version)}".rstrip())

    def received(self, broker: str, received: Received, latency_ms: float | None) -> None:
        """Note that a response has come."""
        if self._target:
            sent = received.sent
            errors = sorted({error_info(code).name for code in received.response.error_codes() if code})
            parts = [
                f"{broker} <- {_title(sent)} {received.size} B",
                "" if latency_ms is None else f"{latency_ms:.1f} ms",
                ",".join(errors),
                _fields(received.response, sent.version),
            ]
            self._write(" ".join(part for part in parts if part))

    def close(self) -> None:
        """Close the file; another line opens it again."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def after_fork(self) -> None:
        """Begin anew in a forked child: a thread that it does not have may have held the lock."""
        self._lock = threading.Lock()

    def _write(self, line: str) -> None:
        stamped = f"{datetime.now().strftime('%H:%M:%S.%f')[:-3]} {line}\n"
        with self._lock:
            try:
                self._stream().write(stamped)
            except (OSError, ValueError) as error:
                _logger.warning("The trace ends: %s cannot be written to (%s).", self._target, error)
                self._target, self._file = "", None

    def _stream(self) -> TextIO:
        if self._target in ("stderr", "stdout"):
            return sys.stderr if self._target == "stderr" else sys.stdout
        if self._file is None:
            # Line by line, so that the lines of several processes do not mix.
            self._file = Path(self._target).open("a", buffering=1, encoding="utf-8")  # noqa: SIM115
        return self._file


def _title(sent: Sent) -> str:
    return f"{type(sent.request).name} v{sent.version} #{sent.correlation_id}"


def _fields(message: Struct, version: int) -> str:
    text = _items(message, version)
    return text if len(text) <= _MAX_FIELDS else f"{text[:_MAX_FIELDS]}…"


def _items(message: Struct, version: int) -> str:
    """Return the fields that a version has, secrets masked and payloads as their size, those that say nothing left out."""
    shown = []
    for field in type(message).fields:
        value = getattr(message, field.name)
        if not field.in_version(version) or (field.name in _DULL and not (field.name == "throttle_time_ms" and value)):
            continue
        if field.tag is not None and value == field.new_default():
            continue  # not on the wire either
        is_shown = value is None or not field.secret
        shown.append(f"{field.name}={_value(value, version) if is_shown else '***'}")
    return " ".join(shown)


def _value(value: Any, version: int) -> str:  # Any: whatever a field may hold
    if isinstance(value, Struct):
        return "{" + _items(value, version) + "}"
    if isinstance(value, list | tuple):
        shown = [_value(element, version) for element in value[:_MAX_ELEMENTS]]
        if len(value) > _MAX_ELEMENTS:
            shown.append(f"… {len(value)} in all")
        return f"[{', '.join(shown)}]"
    if isinstance(value, bytes | bytearray | memoryview):
        return f"{memoryview(value).nbytes}B"
    if isinstance(value, str):
        return value if value.isprintable() and " " not in value and value else repr(value)
    if isinstance(value, uuid.UUID):
        return topic_id_text(value)
    return "null" if value is None else str(value)
