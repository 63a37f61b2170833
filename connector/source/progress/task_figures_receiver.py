"""Receives what a query's tasks report, in its process on the driver, where the option ``taskMetrics`` is ``driver``."""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
from typing import Final

from pykafka_wire.task_metrics import DriverReceiver, TaskFigures

#: Larger than any datagram of figures: a dozen numbers of 20 digits.
_MAX_DATAGRAM: Final = 2048
_WAKE_UP_S: Final = 1.0


class TaskFiguresReceiver:
    """Sums up what tasks send, in the query's process on the driver. A thread of its own reads, until :meth:`close`.

    Attributes:
        address: for the tasks.
    """

    def __init__(self) -> None:
        self._socket = _bound_socket()
        self.address = DriverReceiver(self._socket.getsockname()[1], secrets.token_urlsafe(12))
        self._lock = threading.Lock()
        self._total = TaskFigures(tasks=0)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._receive, name="task metrics", daemon=True)
        self._thread.start()

    def total(self) -> TaskFigures:
        """The sum of all tasks so far."""
        with self._lock:
            return self._total

    def close(self) -> None:
        """Stop receiving."""
        self._closed.set()
        loopback = "::1" if self._socket.family == socket.AF_INET6 else "127.0.0.1"
        # To close the socket would not end the thread's wait; a datagram does.
        with contextlib.suppress(OSError), socket.socket(self._socket.family, socket.SOCK_DGRAM) as own:
            own.sendto(b"", (loopback, self.address.port))
        self._thread.join(_WAKE_UP_S)
        self._socket.close()

    def _receive(self) -> None:
        while not self._closed.is_set():
            try:
                datagram = self._socket.recv(_MAX_DATAGRAM)
            except OSError:
                return
            figures = self.address.decode(datagram)
            if figures is not None:
                with self._lock:
                    self._total = self._total.plus(figures)


def _bound_socket() -> socket.socket:
    """A UDP socket on a free port of all addresses, of both families where the machine has both."""
    try:
        sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    except OSError:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind(("", 0))
        return sock
    try:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind(("::", 0))
    except OSError:
        sock.close()
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind(("", 0))
    return sock
