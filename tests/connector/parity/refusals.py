"""What each connector refuses: options alone, no topic is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.connector.parity.rig import Both, Scenario

SUBSCRIBED = {"subscribe": "refusals"}
OURS_SAYS_MORE = (
    "pykafka-wire rejects a name similar to one of its options, and names that option; the JVM connector ignores it"
)


def _both_modes(*options: Mapping[str, str]) -> Callable[[Both], None]:
    def run(both: Both) -> None:
        for number, asked in enumerate(options):
            both.batch(f"batch {number}", **asked)
            both.stream(f"stream {number}", query=f"query {number}", **asked)

    return run


def _streams(*options: Mapping[str, str]) -> Callable[[Both], None]:
    def run(both: Both) -> None:
        both.make("refusals")
        for number, asked in enumerate(options):
            both.stream(f"stream {number}", query=f"query {number}", **(SUBSCRIBED | asked))

    return run


def _batches(*options: Mapping[str, str]) -> Callable[[Both], None]:
    def run(both: Both) -> None:
        both.make("refusals")
        for number, asked in enumerate(options):
            both.batch(f"batch {number}", **(SUBSCRIBED | asked))

    return run


REFUSALS = (
    Scenario(
        name="rejected: no subscription, an empty one, two of them, a malformed one",
        long=True,
        run=_both_modes(
            {},
            {"subscribe": ""},
            {"subscribePattern": ""},
            {"assign": ""},
            {"subscribe": "t", "subscribePattern": "t.*"},
            {"subscribe": "t", "assign": '{"a":[0]}'},
            {"assign": "t:0"},
        ),
    ),
    Scenario(
        name="rejected: client settings that would break guarantees",
        long=True,
        run=_both_modes(
            *(
                SUBSCRIBED | {f"kafka.{name}": value}
                for name, value in {
                    "auto.offset.reset": "earliest",
                    "key.deserializer": "x",
                    "value.deserializer": "x",
                    "enable.auto.commit": "true",
                    "interceptor.classes": "x",
                }.items()
            )
        ),
    ),
    Scenario(
        name="rejected: invalid numbers, or numbers not above zero",
        run=_batches(
            {"minPartitions": "a"}, {"minPartitions": "1.0"}, {"minPartitions": "0"}, {"minPartitions": "-1"},
            {"maxRecordsPerPartition": "a"}, {"maxRecordsPerPartition": "0"},
        ),
    ),
    Scenario(
        name="rejected: a batch read from latest, or to earliest",
        run=_batches(
            {"startingOffsets": "latest"},
            {"startingOffsets": '{"refusals":{"0":-1}}'},
            {"endingOffsets": "earliest"},
            {"endingOffsets": '{"refusals":{"0":-2}}'},
        ),
    ),
    Scenario(
        name="rejected: malformed offsets, timestamps and strategies",
        run=_batches(
            {"startingOffsets": "{"}, {"startingOffsets": "lately"}, {"startingTimestamp": "soon"},
            {"startingOffsetsByTimestamp": "{"}, {"startingOffsetsByTimestampStrategy": "maybe"},
        ),
    ),
    Scenario(
        name="rejected: offsets that do not name every partition, or another one",
        run=_batches(
            {"startingOffsets": '{"refusals":{"5":0}}'},
            {"startingOffsets": '{"refusals":{"0":0,"5":0}}'},
            {"startingOffsetsByTimestamp": '{"refusals":{"0":0,"5":0}}'},
        ),
    ),
    Scenario(
        name="rejected: an end of a stream",
        run=_streams({"endingOffsets": "latest"}, {"endingOffsetsByTimestamp": '{"refusals":{"0":1000}}'}),
    ),
    Scenario(
        name="rejected: endingTimestamp of a stream",
        run=_streams({"endingTimestamp": "1000"}),
        differs={"refused": "the JVM connector ignores it, and reads without an end"},
    ),
    Scenario(
        name="rejected: a minimum above the maximum, malformed limits",
        run=_streams(
            {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"},
            {"maxOffsetsPerTrigger": "x"},
            {"minOffsetsPerTrigger": "10", "maxTriggerDelay": "soon"},
        ),
    ),
    Scenario(name="rejected: booleans other than true and false", run=_batches({"failOnDataLoss": "yes"})),
    Scenario(
        name="rejected: a mistyped option",
        run=_batches({"startingOffset": "earliest"}),
        differs={"refused": OURS_SAYS_MORE},
    ),
    Scenario(name="rejected: a topic that does not exist", run=_both_modes({"subscribe": "no-such-topic-here"}), long=True),
)  # fmt: skip
