"""What a test may need of its brokers, and the release of Kafka that brought it.

A test says ``@pytest.mark.needs("topic ids")`` and never a version. On brokers that lack it the test is left out, and
the report says why (conftest.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

from pykafka_wire.local.jars import KAFKA_VERSION, release

#: The release of Kafka that the tests' own brokers are of, or the name of another kind of broker (tests/brokers/lacks.py).
BROKERS: Final = os.environ.get("PYKAFKA_WIRE_TEST_KAFKA", KAFKA_VERSION)

#: Feature -> the first release that has it.
SINCE: Final[dict[str, tuple[int, ...]]] = {
    "topic ids": (2, 8),  # KIP-516
    "a highest timestamp": (3, 0),  # KIP-734
    "transactions that are described": (3, 0),  # KIP-664
    "several groups in one OffsetFetch": (3, 0),  # KIP-709
    "topic ids in Fetch": (3, 1),  # KIP-516
    "quotas set through brokers": (2, 6),  # KIP-546
    "finalized features": (3, 3),  # KIP-584 and KRaft
    "SCRAM users before the first start": (3, 5),  # KIP-900; PEM stores are older
    "bounds of timestamps on either side": (3, 6),  # KIP-937
    "consumer protocol of KIP-848": (4, 0),
    "misrouted connections are found": (4, 4),  # KIP-1242
    "topic ids in TxnOffsetCommit": (4, 4),  # KIP-1319
    "second transaction protocol": (4, 0),  # KIP-890; switched by transaction.version
}


def lacking(needed: Iterable[str], version: str = BROKERS) -> list[str]:
    """A sentence for each of the features that brokers of this version lack; none for brokers that are not Apache Kafka, of which
    tests/brokers/lacks.py lists the tests. KeyError for a feature that is not listed."""
    return [
        f"{feature}: Kafka {'.'.join(map(str, SINCE[feature]))} and newer"
        for feature in needed
        if release(version) < SINCE[feature] and version[0].isdigit()
    ]
