"""A call that goes on in a thread of its own, for a caller that must return in time whether the call has ended or not.

A consumer's poll commits and looks offsets up in this way, and a reader of many brokers opens connections: without a broker each
takes ``default.api.timeout.ms``, and they must not. Owns the thread and its outcome; what is called belongs to the caller. It knows
no broker.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Generic, TypeVar, cast

from pykafka_wire.wire.deadline import Deadline

ResultT = TypeVar("ResultT")


class BackgroundCall(Generic[ResultT]):
    """One call, which begins at once. It gets a deadline that :meth:`cancel` brings forward."""

    def __init__(self, call: Callable[[Deadline], ResultT], *, deadline: Deadline, name: str) -> None:
        self._cancelled = threading.Event()
        self._deadline = replace(deadline, cancelled=self._cancelled)
        self._result: ResultT | None = None
        self._error: BaseException | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(call,), name=name, daemon=True)
        self._thread.start()

    def wait(self, deadline: Deadline) -> bool:
        """Whether the call has ended, waited for until ``deadline``."""
        return self._ended.wait(deadline.remaining_ms() / 1000)

    def result(self) -> ResultT:
        """What an ended call has returned. Raises what it raised."""
        if self._error is not None:
            raise self._error
        return cast("ResultT", self._result)

    def cancel(self) -> None:
        """Bring the call's deadline forward to now."""
        self._cancelled.set()

    def _run(self, call: Callable[[Deadline], ResultT]) -> None:
        try:
            self._result = call(self._deadline)
        except BaseException as error:
            self._error = error
        finally:
            self._ended.set()
