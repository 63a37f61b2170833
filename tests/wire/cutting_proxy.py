"""A TCP proxy that cuts connections, or lets them stall, in the middle of a client's requests or a broker's responses.

The client is made to connect through it by replacing the addresses that it would connect to, so the brokers need not
know.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from types import TracebackType
from typing import NamedTuple

import pytest

from pykafka_wire.wire.connection.transport import Sockets


class _Fault(NamedTuple):
    """What is to happen after so many more bytes."""

    after: int
    stall: bool


class CuttingProxy:
    """Forwards to one broker; :meth:`cut_response_after` and its like arm it for one fault on one connection.

    Attributes:
        n_cuts: connections that were cut or stalled.
        n_asked, n_responded: bytes that came from clients and from the broker.
        bytes_a_second: how many of the broker's a connection lets through, None for all.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._faults: dict[bool, _Fault] = {}
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.n_cuts = self.n_asked = self.n_responded = 0
        self.bytes_a_second: int | None = None

    def __enter__(self) -> CuttingProxy:
        self._run(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends every connection, and refuses new ones."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._sockets:
            _end(each)
        for thread in self._threads:
            thread.join(10)

    def stand_between(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Sends every connection that is opened from now on through the proxy."""
        address = self._listener.getsockname()
        monkeypatch.setattr(Sockets, "addresses", lambda *_: [(int(socket.AF_INET), address)])

    def cut_response_after(self, n_bytes: int) -> None:
        """Of the broker's next bytes, on whatever connection, let `n_bytes` through, then cut."""
        self._arm(True, n_bytes, stall=False)

    def cut_request_after(self, n_bytes: int) -> None:
        """The same of what clients say."""
        self._arm(False, n_bytes, stall=False)

    def stall_response_after(self, n_bytes: int) -> None:
        """Of the broker's next bytes let `n_bytes` through, and no more on that connection, which stays open."""
        self._arm(True, n_bytes, stall=True)

    def disarm(self) -> None:
        """Forget the faults that have not come."""
        with self._lock:
            self._faults.clear()

    def _arm(self, responses: bool, n_bytes: int, *, stall: bool) -> None:
        with self._lock:
            self._faults[responses] = _Fault(n_bytes, stall)

    def _run(self, target: object, *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                broker = socket.create_connection(self._target)
            except OSError:
                return
            self._sockets += [client, broker]
            self._run(self._pump, client, broker, False)
            self._run(self._pump, broker, client, True)

    def _pump(self, source: socket.socket, sink: socket.socket, responses: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                allowed, stall = self._allowed(responses, len(data))
                if responses and self.bytes_a_second is not None:
                    time.sleep(len(data) / self.bytes_a_second)
                sink.sendall(data[:allowed])
                if stall:
                    while source.recv(65_536):
                        pass
                if allowed is not None:
                    break
        _end(source)
        _end(sink)

    def _allowed(self, responses: bool, n_bytes: int) -> tuple[int | None, bool]:
        """How much of the next `n_bytes` may pass before the fault, None for all of it and no fault; whether to stall."""
        with self._lock:
            if responses:
                self.n_responded += n_bytes
            else:
                self.n_asked += n_bytes
            fault = self._faults.get(responses)
            if fault is None:
                return None, False
            if fault.after > n_bytes:
                self._faults[responses] = fault._replace(after=fault.after - n_bytes)
                return None, False
            del self._faults[responses]
            self.n_cuts += 1
            return fault.after, fault.stall


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
