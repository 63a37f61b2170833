"""Producer ids and epochs, for idempotent and transactional producers (KIP-98, KIP-360 epoch bumps)."""

from __future__ import annotations

from pykafka_wire.wire.protocol.fields import int16, int32, int64, string
from pykafka_wire.wire.protocol.message import Message, Request


class InitProducerIdResponse(Message, versions=(0, 5), flexible=2):
    throttle_time_ms: int = int32(ignorable=True)
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()


class InitProducerIdRequest(Request[InitProducerIdResponse], api_key=22, versions=(0, 5), flexible=2):
    """Kafka 4.3 declares version 6 too (two-phase commit, KIP-939), as unstable: brokers refuse it, it is not here."""

    transactional_id: str | None = string(nullable_since=0)
    transaction_timeout_ms: int = int32()
    producer_id: int = int64(since=3, default=-1)
    producer_epoch: int = int16(since=3, default=-1)
