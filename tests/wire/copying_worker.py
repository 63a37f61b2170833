"""A program that copies a topic in transactions until it is ended: ``python copying_worker.py SERVERS SOURCE TARGET GROUP NAME``.

With ``+`` before its name it is a static member of the group, so that a restart takes its place at once.
"""

from __future__ import annotations

import signal
import sys

from pykafka_wire.wire import Consumer, TransactionalProducer


def main(servers: str, source: str, target: str, group: str, name: str) -> None:
    static = {"group.instance.id": name} if name.startswith("+") else {}
    reading = {
        "bootstrap.servers": servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": "false",
        "isolation.level": "read_committed",
        "heartbeat.interval.ms": "100",
        "max.partition.fetch.bytes": "1",  # a batch at a time: many transactions
        **static,
    }
    writing = {"bootstrap.servers": servers, "transactional.id": f"{group}{name}"}
    with Consumer(reading) as consumer, TransactionalProducer(writing) as producer:
        consumer.subscribe([source])
        while True:
            if polled := consumer.poll(100):
                with producer.transaction(consumer) as transaction:
                    for record in polled:
                        transaction.send(target, record.value, partition=record.partition)
                print("committed" if transaction.committed else "aborted", len(polled), flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        pass
