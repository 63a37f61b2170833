"""What tasks report of their work: one small UDP datagram at the end of each, to the query's process on the driver or to a StatsD
agent.

Spark gives a Python source no way back from its tasks to the driver, neither an accumulator nor a metric. So a task sends its
figures, if the option ``taskMetrics`` asks for it: to the port that its input partition has, on the host that Spark's local
property ``spark.driver.host`` names. The sums travel in ``reportLatestOffset()``, and reach a listener one micro-batch later. An
ingest, whose reads are batches, asks for figures by a local property of its jobs.
Nothing waits for the datagram; one that is lost is missing from the sums, and changes nothing else. Owns the figures, both
forms of the datagram, and its receiver on the driver.
"""

from __future__ import annotations

import contextlib
import functools
import hmac
import json
import logging
import secrets
import socket
import sys
import threading
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final

from pykafka_wire.wire.connection.counters import ClientTotals

_log = logging.getLogger(__name__)

#: Larger than any datagram of figures: a dozen numbers of 20 digits.
_MAX_DATAGRAM: Final = 2048
_WAKE_UP_S: Final = 1.0
#: No task has done more of anything than an int64 can count.
_MAX_FIGURE: Final = 2**63 - 1
_STATSD_PREFIX: Final = "pykafka_wire.task."
#: Spark sends its settings to tasks as local properties (seen in 4.0 to 4.3).
_DRIVER_HOST: Final = "spark.driver.host"
#: The local property of jobs whose reads send their figures without an option. Spark's redaction knows a token by the name.
_JOB_PROPERTY: Final = "spark.pykafka-wire.figures-token"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFigures:
    """The work of one task, or of many.

    Attributes:
        tasks: how many tasks these are the figures of.
        bytes_consumed: of records, as fetched (compressed): of a batch that a range begins or ends in, the range's share.
            ``bytes_received`` has all that brokers have sent.
        bytes_produced: of record batches, as sent (compressed).
        retries: requests, ranges and batches that were sent again.
        lost_ranges, lost_offsets: that the task has found to be lost, and skipped with ``failOnDataLoss=false``.
        wait_s: seconds of waiting for brokers: for connections, and for responses to begin.
        read_s: seconds of fetching and decoding, waits included.
        task_s: seconds from a read's begin to its end; what is not ``read_s`` went into what Spark does with the rows.
        throttle_s: seconds for which brokers have throttled the task because of a quota.
    """

    tasks: int = 1
    fetches: int = 0
    records_consumed: int = 0
    bytes_consumed: int = 0
    records_produced: int = 0
    bytes_produced: int = 0
    requests: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    connections_opened: int = 0
    retries: int = 0
    lost_ranges: int = 0
    lost_offsets: int = 0
    wait_s: float = 0.0
    throttle_s: float = 0.0
    read_s: float = 0.0
    task_s: float = 0.0

    def plus(self, other: TaskFigures) -> TaskFigures:
        """Return the sum of both."""
        return TaskFigures(**{name: getattr(self, name) + getattr(other, name) for name in _NAMES})

    def since(self, before: TaskFigures) -> TaskFigures:
        """Return what was added to ``before``."""
        return TaskFigures(**{name: getattr(self, name) - getattr(before, name) for name in _NAMES})

    @classmethod
    def of_client(cls, totals: ClientTotals, *, retries: int = 0, **figures: Any) -> TaskFigures:  # Any: int or float
        """Return a task's figures from what its client did, and what the task itself has counted."""
        shared = {name: getattr(totals, name) for name in _NAMES if hasattr(totals, name)}
        return cls(**{**shared, "retries": totals.retries + retries, **figures})


_NAMES: Final = tuple(field.name for field in fields(TaskFigures))


@dataclass(frozen=True, slots=True)
class StatsdAgent:
    """A StatsD agent that understands tags, at an address that the tasks can reach."""

    host: str
    port: int

    def send(self, figures: TaskFigures) -> None:
        """Send the figures that are not 0, as counters."""
        tag = f"|#query_id:{query_id}" if (query_id := _local_property("sql.streaming.queryId")) else ""
        lines = []
        for name, value in asdict(figures).items():
            if name.endswith("_s"):
                name, value = f"{name[:-2]}_ms", round(value * 1000)
            if value:
                lines.append(f"{_STATSD_PREFIX}{name}:{value}|c{tag}")
        _send("\n".join(lines).encode(), self.host, self.port)


@dataclass(frozen=True, slots=True)
class DriverReceiver:
    """Where a query's process on the driver receives figures. The driver's host is what Spark's executors know it by.

    Attributes:
        is_here: the reads are of this very process, whose other threads use the same client at the same time: a read has received
            what it has consumed, and the client's other counts are nobody's.
    """

    port: int
    token: str
    is_here: bool = False

    def send(self, figures: TaskFigures) -> None:
        """Send the figures to the driver; nothing outside of a Spark task, unless it :attr:`is_here`."""
        if self.is_here:
            of_client = {counter.name for counter in fields(ClientTotals)} & set(_NAMES)
            figures = replace(figures, **dict.fromkeys(of_client, 0) | {"bytes_received": figures.bytes_consumed})
        host = "localhost" if self.is_here else _local_property(_DRIVER_HOST)
        if host:
            _send(self.encode(figures), host.strip("[]"), self.port)  # Spark puts an IPv6 address into brackets

    def encode(self, figures: TaskFigures) -> bytes:
        """Return the datagram for a task's figures: the token, and a JSON array of numbers."""
        return self.token.encode() + json.dumps([getattr(figures, name) for name in _NAMES]).encode()

    def decode(self, datagram: bytes) -> TaskFigures | None:
        """Return the figures of a datagram; None for one that is no task's of this query."""
        token = self.token.encode()
        if not hmac.compare_digest(datagram[: len(token)], token):
            return None  # not from a task of this query: it is not parsed
        try:
            values = json.loads(datagram[len(token) :])
        except (ValueError, RecursionError):
            return None
        if not isinstance(values, list) or len(values) != len(_NAMES):
            return None
        # NaN is not in any range.
        if not all(type(value) in (int, float) and 0 <= value <= _MAX_FIGURE for value in values):
            return None
        return TaskFigures(**dict(zip(_NAMES, values, strict=True)))


def ask_for_figures(context: Any, receiver: DriverReceiver | None) -> None:  # Any: a SparkContext
    """Let the reads of all jobs that this thread starts from now on send their figures; None: no more."""
    context.setLocalProperty(_JOB_PROPERTY, None if receiver is None else f"{receiver.port} {receiver.token}")


def receiver_of_job() -> DriverReceiver | None:
    """Return where this task's job wants the figures of its reads; None if it does not."""
    return _receiver(_local_property(_JOB_PROPERTY))


def _receiver(text: str | None) -> DriverReceiver | None:
    port, _, token = (text or "").partition(" ")
    return DriverReceiver(int(port), token) if port.isdecimal() and token else None


def camel_case(figures: TaskFigures | ClientTotals) -> dict[str, int | float]:
    """Return figures under the names that a query's progress has for them, times in milliseconds: ``waitMs``,
    ``bytesConsumed``."""
    named: dict[str, int | float] = {}
    for name, value in asdict(figures).items():
        first, *others = name.split("_")
        if others and others[-1] == "s":
            others[-1], value = "ms", round(value * 1000, 3)
        named[first + "".join(word.capitalize() for word in others)] = value
    return named


def _local_property(name: str) -> str | None:
    """Return a local property of this Spark task, None outside of one."""
    pyspark = sys.modules.get("pyspark")
    if pyspark is None:  # a program without Spark
        return None
    context = pyspark.TaskContext.get()
    return None if context is None else context.getLocalProperty(name)


def _send(datagram: bytes, host: str, port: int) -> None:
    target = _address(host, port)
    if target is None:
        return
    family, address = target
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            sock.sendto(datagram, address)
    except OSError as error:
        _log.debug("This task's figures could not be sent to %s:%d: %s", host, port, error)


@functools.lru_cache(maxsize=16)  # a name service that does not respond must cost a process once, not each task
def _address(host: str, port: int) -> tuple[int, Any] | None:  # Any: an address is what its family has
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    except (OSError, UnicodeError) as error:  # the latter for what cannot be a host's name
        _log.debug("taskMetrics: %s cannot be resolved (%s): the tasks of this process report nothing.", host, error)
        return None
    return int(family), address


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
        """Return the sum of all tasks so far."""
        with self._lock:
            return self._total

    def close(self) -> None:
        """Stop receiving."""
        self._closed.set()
        loopback = "::1" if self._socket.family == socket.AF_INET6 else "127.0.0.1"
        # To close the socket would not end the thread's wait; a datagram does.
        with contextlib.suppress(OSError), socket.socket(self._socket.family, socket.SOCK_DGRAM) as probe:
            probe.sendto(b"", (loopback, self.address.port))
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
    """Return a UDP socket on a free port of all addresses, of both families where the machine has both."""
    with contextlib.suppress(OSError), contextlib.ExitStack() as failed:
        sock = failed.enter_context(socket.socket(socket.AF_INET6, socket.SOCK_DGRAM))
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind(("::", 0))
        failed.pop_all()
        return sock
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("", 0))
    return sock
