"""What Spark gets of an error of this package: its sentence, without the traceback inside of the package.

Spark prints a Python error with its traceback, and that up to six times: for the task, its attempts, the job and the query.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

_log = logging.getLogger(__name__)

#: What Spark calls of a data source, its readers and its writers.
_CALLED_BY_SPARK: Final = (
    "schema", "reader", "streamReader", "writer", "streamWriter", "partitions", "read", "initialOffset", "latestOffset",
    "reportLatestOffset", "prepareForTriggerAvailableNow", "write", "commit", "abort",
)  # fmt: skip
ClassT = TypeVar("ClassT", bound=type)


def with_concise_errors(cls: ClassT) -> ClassT:
    """Return a class that Spark calls, whose errors leave its methods with one frame of this package and without those that
    they were raised from: their texts say all of it, and Spark prints them up to six times. The log has the whole traceback
    at DEBUG. An error of the Kafka client names its settings as options of Spark's, kafka.…. Errors of other classes stay as they
    are."""
    for name in _CALLED_BY_SPARK:
        if name in vars(cls):
            setattr(cls, name, _concise(vars(cls)[name]))
    return cls


def _concise(method: Callable[..., Any]) -> Callable[..., Any]:
    # An error that is raised where it was caught has one frame of this package: a function in between would add its own.
    if inspect.isgeneratorfunction(method):

        @functools.wraps(method)
        def iterate(*arguments: Any, **named: Any) -> Iterator[Any]:
            try:
                yield from method(*arguments, **named)
            except Exception as error:
                if not _is_sentence(error):
                    raise
                raise _for_spark(error) from None

        return iterate

    @functools.wraps(method)
    def call(*arguments: Any, **named: Any) -> Any:
        try:
            return method(*arguments, **named)
        except Exception as error:
            if not _is_sentence(error):
                raise
            raise _for_spark(error) from None

    return call


def _is_sentence(error: Exception) -> bool:
    """Return whether an error's text says all; then it is logged with its traceback."""
    # Spark's lookup of the data source loads neither.
    from pykafka_wire.errors import ConnectorError
    from pykafka_wire.wire.errors import WireError

    if not isinstance(error, (ConnectorError, WireError)):
        return False
    _log.debug("What Spark gets: %s", error, exc_info=error)
    return True


def _for_spark(error: Exception) -> Exception:
    from pykafka_wire.wire.errors import WireError

    return error.with_prefix("kafka.") if isinstance(error, WireError) else error.with_traceback(None)
