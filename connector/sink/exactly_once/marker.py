"""The marker of an exactly-once query: which micro-batch is in Kafka already, told by an offset of a consumer group.

Owns the marker's form and the rule that says whether a micro-batch is to be written. It does no I/O. The marker of
micro-batch b is the offset b + 1 on partition 0 of the marker topic, in a group of the query's own, with metadata that say
whose it is; it is committed in the same transaction as the records.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from pykafka_wire.errors import ExactlyOnceError
from pykafka_wire.wire.groups.offsets import CommittedOffset


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """A micro-batch that was written, or is to be.

    Attributes:
        n_records, digest: what is in it; the digest does not depend on the order of rows or their split into tasks.
    """

    query_id: str
    batch_id: int
    n_records: int
    digest: str

    def to_committed(self) -> CommittedOffset:
        """As it is committed. The metadata take some 130 bytes; brokers allow 4096 (``offset.metadata.max.bytes``)."""
        fields = {"query": self.query_id, "batch": self.batch_id, "count": self.n_records, "digest": self.digest}
        return CommittedOffset(self.batch_id + 1, metadata=json.dumps(fields))

    @classmethod
    def from_committed(cls, committed: CommittedOffset | None) -> Marker | None:
        """The marker in a committed offset; None where there is none, or it is nothing that a query wrote."""
        if committed is None:
            return None
        try:
            fields = json.loads(committed.metadata)
            marker = cls(
                query_id=str(fields["query"]),
                batch_id=int(fields["batch"]),
                n_records=int(fields["count"]),
                digest=str(fields["digest"]),
            )
        except (ValueError, KeyError, TypeError):
            return None
        return marker if marker.batch_id + 1 == committed.offset else None

    def is_written(self, found: Marker | None, *, fail_on_missing: bool = True) -> bool:
        """Whether this micro-batch is in Kafka already, by the marker that was found; False if it is to be written.

        Raises:
            ExactlyOnceError: it must not be written, for the marker does not fit the query's checkpoint.
        """
        if found is not None and found.query_id == self.query_id:
            if found.batch_id == self.batch_id:
                if (found.n_records, found.digest) == (self.n_records, self.digest):
                    return True
                raise ExactlyOnceError(
                    f"micro-batch {self.batch_id} is in Kafka already, with {found.n_records} records (digest "
                    f"{found.digest}), and was now computed with {self.n_records} (digest {self.digest}): the query gives "
                    "other rows when a micro-batch is run again. Make it deterministic, or start it with a new checkpoint."
                )
            if found.batch_id > self.batch_id:
                raise ExactlyOnceError(
                    f"micro-batch {found.batch_id} is in Kafka already, and the query is at {self.batch_id}: its "
                    "checkpoint was set back, or a second run of it is on. Use the checkpoint that the marker fits, or a "
                    "new one."
                )
            if found.batch_id == self.batch_id - 1:
                return False
        if self.batch_id == 0 or not fail_on_missing:
            return False
        if found is None:
            seen = "there is no marker (did it age out, offsets.retention.minutes? was the query run without exactly-once?)"
        elif found.query_id != self.query_id:
            seen = f"the marker is of query {found.query_id}, micro-batch {found.batch_id}"
        else:
            seen = f"the marker is of micro-batch {found.batch_id}"
        raise ExactlyOnceError(
            f"query {self.query_id} is at micro-batch {self.batch_id}, and {seen}: whether micro-batch "
            f"{self.batch_id} was written before cannot be told. Compare the topic with the source, then set "
            "failOnMissingMarker=false for one start, or use a kafka.transactional.id of this query's own."
        )
