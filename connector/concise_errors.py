"""What Spark gets of an error of this package: its sentence, without the traceback inside of the package.

Spark prints a Python error with its traceback, and that up to six times: for the task, its attempts, the job and the query.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Final, TypeVar

_log = logging.getLogger(__name__)

#: What Spark calls of a data source, its readers and its writers.
_CALLED_BY_SPARK: Final = (
    "schema", "reader", "streamReader", "writer", "streamWriter", "partitions", "read", "initialOffset", "latestOffset",
    "reportLatestOffset", "prepareForTriggerAvailableNow", "write", "commit", "abort",
)  # fmt: skip
ClassT = TypeVar("ClassT", bound=type)


def with_concise_errors(cls: ClassT) -> ClassT:
    """A class that Spark calls, whose errors leave its methods without frames of this package and without those that they were
    raised from: their texts say all of it, and Spark prints them up to six times. The log has the whole traceback at DEBUG.
    Errors of other classes stay as they are."""
    for name in _CALLED_BY_SPARK:
        if name in vars(cls):
            setattr(cls, name, _concise(vars(cls)[name]))
    return cls


def _concise(method: Callable[..., Any]) -> Callable[..., Any]:
    if inspect.isgeneratorfunction(method):

        @functools.wraps(method)
        def iterate(*arguments: Any, **named: Any) -> Iterator[Any]:
            with _WithoutFrames():
                yield from method(*arguments, **named)

        return iterate

    @functools.wraps(method)
    def call(*arguments: Any, **named: Any) -> Any:
        with _WithoutFrames():
            return method(*arguments, **named)

    return call


class _WithoutFrames:
    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            return
        # Spark's lookup of the data source loads neither.
        from pykafka_wire.errors import ConnectorError
        from pykafka_wire.wire.errors import WireError

        if isinstance(error, (ConnectorError, WireError)):
            _log.debug("What Spark gets: %s", error, exc_info=error)
            raise error.with_traceback(None) from None
