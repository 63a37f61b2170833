"""A TCP proxy that cuts connections in the middle of what a broker answers.

The client is made to connect through it by replacing the addresses that it would connect to, so the brokers need not
know.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType

import pytest

from pykafka_wire.wire.transport import Channel


class CuttingProxy:
    """Forwards to one broker; :meth:`cut_answer_after` arms it to cut a connection once."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._cut_after: int | None = None
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.n_cuts = 0

    def __enter__(self) -> CuttingProxy:
        self._run(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
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
        monkeypatch.setattr(Channel, "_addresses", lambda _channel: [(int(socket.AF_INET), address)])

    def cut_answer_after(self, n_bytes: int) -> None:
        """Of the broker's next bytes, on whatever connection, let `n_bytes` through, then cut."""
        with self._lock:
            self._cut_after = n_bytes

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

    def _pump(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                allowed = self._allowed(len(data)) if answers else None
                if allowed is not None:
                    sink.sendall(data[:allowed])
                    break
                sink.sendall(data)
        _end(source)
        _end(sink)

    def _allowed(self, n_bytes: int) -> int | None:
        """How much of the next `n_bytes` may pass before the cut, None for all of it and no cut."""
        with self._lock:
            if self._cut_after is None:
                return None
            if self._cut_after > n_bytes:
                self._cut_after -= n_bytes
                return None
            allowed, self._cut_after = self._cut_after, None
            self.n_cuts += 1
            return allowed


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
