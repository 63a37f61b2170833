"""A member of a group in a process of its own, with the arguments and the output of tests/conformance/Member.java."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable

from pykafka_wire.wire import Consumer, TopicPartition


def say(what: str, numbers: Iterable[int]) -> None:
    print(what, time.monotonic_ns(), *numbers, flush=True)


def say_partitions(what: str) -> Callable[[tuple[TopicPartition, ...]], None]:
    return lambda partitions: say(what, (tp.partition for tp in partitions))


def main(topic: str, *settings: str) -> None:
    stopped = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), stopped.set()), daemon=True).start()
    with Consumer(dict(setting.split("=", 1) for setting in settings)) as consumer:
        consumer.subscribe([topic], on_assigned=say_partitions("assigned"), on_revoked=say_partitions("revoked"))
        while not stopped.is_set():
            for record in consumer.poll(100):
                say("record", (record.partition, record.offset))
        say_partitions("revoked")(consumer.assignment)


if __name__ == "__main__":
    main(*sys.argv[1:])
