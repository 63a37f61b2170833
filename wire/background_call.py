"""A call that goes on in a thread of its own, for a caller that must return in time whether the call has ended or not.

A forked child has none of its parent's threads. For it a call from before the fork is lost, whether it had ended or not: who holds
one asks :attr:`BackgroundCall.is_lost` before each use, and begins anew. One that is used all the same ends with an error, and
takes no lock, which the parent's thread may have held.

A consumer's poll commits and looks offsets up in this way, and a reader of many brokers opens connections: without a broker each
takes ``default.api.timeout.ms``, and they must not. Owns the thread and its outcome; what is called belongs to the caller. It knows
no broker.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Generic, TypeVar, cast

from pykafka_wire.wire import forks
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import TransportError

ResultT = TypeVar("ResultT")


class BackgroundCall(Generic[ResultT]):
    """One call, which begins at once. It gets a deadline that :meth:`cancel` brings forward."""

    def __init__(self, call: Callable[[Deadline], ResultT], *, deadline: Deadline, name: str) -> None:
        self._fork_generation = forks.generation
        self._name = name
        self._cancelled = threading.Event()
        self._deadline = replace(deadline, cancelled=self._cancelled)
        self._result: ResultT | None = None
        self._error: BaseException | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(call,), name=name, daemon=True)
        self._thread.start()

    @property
    def is_lost(self) -> bool:
        """Return whether this process was forked since the call began: its thread, and what it opened, are the parent's."""
        return self._fork_generation != forks.generation

    def wait(self, deadline: Deadline) -> bool:
        """Return whether the call has ended, waited for until ``deadline``."""
        return self.is_lost or self._ended.wait(deadline.remaining_ms() / 1000)

    def result(self) -> ResultT:
        """Return what an ended call has returned. Raises what it raised, and TransportError where it is lost."""
        if self.is_lost:
            raise TransportError(f"this process was forked while its parent was at it ({self._name})")
        if self._error is not None:
            raise self._error
        return cast("ResultT", self._result)

    def cancel(self) -> None:
        """Bring the call's deadline forward to now."""
        if not self.is_lost:
            self._cancelled.set()

    def _run(self, call: Callable[[Deadline], ResultT]) -> None:
        try:
            self._result = call(self._deadline)
        except BaseException as error:
            self._error = error
        finally:
            self._ended.set()
