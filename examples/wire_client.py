"""The Kafka client without Spark: write records, read them back as a member of a group, commit.

    python examples/wire_client.py --bootstrap localhost:9092 --topic orders --group readers

writes ten records to the topic, which must exist, then reads what the group has not read yet up to the end of every partition.
Start it twice at the same time, and the two share the partitions.
"""

from __future__ import annotations

import argparse

from pykafka_wire.wire import Consumer, RecordProducer, TopicPartition


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", required=True, help="host:port of one broker or more, with commas")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", required=True)
    arguments = parser.parse_args()

    with RecordProducer({"bootstrap.servers": arguments.bootstrap, "compression.type": "lz4"}) as producer:
        for number in range(10):
            producer.send(arguments.topic, b"order %d" % number, key=b"customer-%d" % (number % 3))
        for tp, delivered in sorted(producer.flush().items()):
            print(f"{tp}: {delivered.n_records} records from offset {delivered.first_offset}")

    settings = {
        "bootstrap.servers": arguments.bootstrap,
        "group.id": arguments.group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": "false",
    }
    n_records = 0
    ended: set[TopicPartition] = set()
    with Consumer(settings) as consumer:
        consumer.subscribe([arguments.topic])
        while not consumer.assignment or ended != set(consumer.assignment):
            polled = consumer.poll(timeout_ms=1_000)
            for record in polled:
                print(f"{record.topic}-{record.partition} {record.offset} {record.key!r} {record.value!r}")
            n_records += len(polled)
            consumer.commit()
            ended |= set(polled.ended)
        print(f"{n_records} records read by group {arguments.group}")


if __name__ == "__main__":
    main()
