"""The meaning of each of Kafka's error codes, and how a client reacts to it.

Owns the table of error codes (https://kafka.apache.org/protocol#protocol_error_codes, as of Kafka 4.4.0). It performs no
action itself: what retries, refreshes metadata or finds coordinators looks up an :class:`Action` here, and
:mod:`pykafka_wire.wire.cluster.retries` has the loop.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final, NamedTuple


class ErrorCode(IntEnum):
    """An error code by Kafka's own name. Responses have plain numbers, which equal the members."""

    # As from Python 3.11 on: a log line says "error 22" on 3.10 too.
    __str__ = int.__repr__

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133
    GROUP_DELETION_FAILED = 134
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = 135
    CONTROLLER_ID_NOT_REGISTERED = 136


class Action(Enum):
    """How a client reacts to an error code."""

    SUCCESS = "success"
    RETRY = "retry"
    REFRESH_METADATA = "refresh metadata, then retry"
    FIND_COORDINATOR = "find the coordinator again, then retry"
    REJOIN = "join the group again"
    FATAL = "fail"


class ErrorInfo(NamedTuple):
    """One error code: its name, Kafka's own ``retriable`` flag, the client's action, its meaning and the remedy.

    Attributes:
        grace_ms: stop retrying after this time, well before the deadline; None means to retry until the deadline.
    """

    code: int
    name: str
    retriable: bool
    action: Action
    meaning: str
    remedy: str = ""
    grace_ms: int | None = None


#: A topic that was just created is unknown to some brokers for a moment (metadata spreads in well under a second on a
#: healthy cluster). A topic that does not exist must fail within seconds, not at the end of the default 60 s deadline.
UNKNOWN_TOPIC_GRACE_MS: Final = 5_000

_SUCCESS, _RETRY, _REFRESH = Action.SUCCESS, Action.RETRY, Action.REFRESH_METADATA
_COORDINATOR, _REJOIN, _FATAL = Action.FIND_COORDINATOR, Action.REJOIN, Action.FATAL
_YES, _NO = True, False  # retriable
_C = ErrorCode


def _row(
    code: ErrorCode, retriable: bool, action: Action, meaning: str, remedy: str = "", grace_ms: int | None = None
) -> ErrorInfo:
    return ErrorInfo(int(code), code.name, retriable, action, meaning, remedy, grace_ms)


_ACL = "Grant the principal the missing ACL."

# fmt: off
_TABLE: Final = (
    _row(_C.UNKNOWN_SERVER_ERROR, _NO, _FATAL, "The broker failed unexpectedly.", "See the broker's log."),
    _row(_C.NONE, _NO, _SUCCESS, "No error."),
    _row(_C.OFFSET_OUT_OF_RANGE, _NO, _FATAL, "The offset is outside of the partition's log.",
         "Records were deleted by retention or truncation: start from an offset that exists."),
    _row(_C.CORRUPT_MESSAGE, _YES, _RETRY,
         "A batch failed its CRC, is too large, or lacks a key for a compacted topic.",
         "For a compacted topic give every record a key."),
    _row(_C.UNKNOWN_TOPIC_OR_PARTITION, _YES, _REFRESH, "The broker does not host this topic-partition.",
         "Check the topic's name, that it exists, and the principal's Describe permission.", UNKNOWN_TOPIC_GRACE_MS),
    _row(_C.INVALID_FETCH_SIZE, _NO, _FATAL, "The requested fetch size is invalid."),
    _row(_C.LEADER_NOT_AVAILABLE, _YES, _REFRESH, "The partition has no leader. An election may be in progress."),
    _row(_C.NOT_LEADER_OR_FOLLOWER, _YES, _REFRESH, "The broker is not the partition's leader, or holds no replica."),
    _row(_C.REQUEST_TIMED_OUT, _YES, _RETRY, "The request timed out on the broker."),
    _row(_C.BROKER_NOT_AVAILABLE, _NO, _FATAL, "The broker is not available."),
    _row(_C.REPLICA_NOT_AVAILABLE, _YES, _REFRESH, "The replica is not available."),
    _row(_C.MESSAGE_TOO_LARGE, _NO, _FATAL, "A record batch is larger than the broker accepts.",
         "Lower {batch.size}, or raise the topic's max.message.bytes."),
    _row(_C.STALE_CONTROLLER_EPOCH, _NO, _FATAL, "The controller moved to another node."),
    _row(_C.OFFSET_METADATA_TOO_LARGE, _NO, _FATAL, "The metadata of an offset commit is too large.",
         "Raise the broker's offset.metadata.max.bytes."),
    _row(_C.NETWORK_EXCEPTION, _YES, _REFRESH, "The server disconnected before a response was received."),
    _row(_C.COORDINATOR_LOAD_IN_PROGRESS, _YES, _RETRY, "The coordinator is still loading its state."),
    _row(_C.COORDINATOR_NOT_AVAILABLE, _YES, _COORDINATOR, "The coordinator is not available."),
    _row(_C.NOT_COORDINATOR, _YES, _COORDINATOR, "The broker is not the coordinator of this key."),
    _row(_C.INVALID_TOPIC_EXCEPTION, _NO, _FATAL, "The topic's name is invalid, or the topic is internal.",
         "Topic names have 1 to 249 characters out of a-z, A-Z, 0-9, '.', '_' and '-'."),
    _row(_C.RECORD_LIST_TOO_LARGE, _NO, _FATAL, "The batches are larger than the topic's segment size.",
         "Lower {batch.size}, or raise the topic's segment.bytes."),
    _row(_C.NOT_ENOUGH_REPLICAS, _YES, _RETRY, "Fewer replicas are in sync than min.insync.replicas requires."),
    _row(_C.NOT_ENOUGH_REPLICAS_AFTER_APPEND, _YES, _RETRY, "Written, but to fewer in-sync replicas than required."),
    _row(_C.INVALID_REQUIRED_ACKS, _NO, _FATAL, "The value of acks is invalid."),
    _row(_C.ILLEGAL_GENERATION, _NO, _REJOIN, "The group has a newer generation."),
    _row(_C.INCONSISTENT_GROUP_PROTOCOL, _NO, _FATAL, "The members of the group share no assignor or protocol type.",
         "Another kind of client uses this group id: choose another one."),
    _row(_C.INVALID_GROUP_ID, _NO, _FATAL, "The group id is invalid."),
    _row(_C.UNKNOWN_MEMBER_ID, _NO, _REJOIN, "The coordinator does not know this member of the group."),
    _row(_C.INVALID_SESSION_TIMEOUT, _NO, _FATAL, "The session timeout is outside of the broker's limits.",
         "See the broker's group.min.session.timeout.ms and group.max.session.timeout.ms."),
    _row(_C.REBALANCE_IN_PROGRESS, _NO, _REJOIN, "The group is rebalancing."),
    _row(_C.INVALID_COMMIT_OFFSET_SIZE, _NO, _FATAL, "The data of an offset commit is too large."),
    _row(_C.TOPIC_AUTHORIZATION_FAILED, _NO, _FATAL, "The principal may not do this on the topic.", _ACL),
    _row(_C.GROUP_AUTHORIZATION_FAILED, _NO, _FATAL, "The principal may not do this with the group.", _ACL),
    _row(_C.CLUSTER_AUTHORIZATION_FAILED, _NO, _FATAL, "The principal may not do this on the cluster.", _ACL),
    _row(_C.INVALID_TIMESTAMP, _NO, _FATAL, "A record's timestamp is out of the accepted range.",
         "See the topic's message.timestamp.before.max.ms and message.timestamp.after.max.ms."),
    _row(_C.UNSUPPORTED_SASL_MECHANISM, _NO, _FATAL, "The listener does not offer this SASL mechanism."),
    _row(_C.ILLEGAL_SASL_STATE, _NO, _FATAL, "The request does not fit the state of the SASL exchange."),
    _row(_C.UNSUPPORTED_VERSION, _NO, _FATAL, "The broker does not support this version of the API."),
    _row(_C.TOPIC_ALREADY_EXISTS, _NO, _FATAL, "A topic of this name exists already."),
    _row(_C.INVALID_PARTITIONS, _NO, _FATAL, "The number of partitions is invalid."),
    _row(_C.INVALID_REPLICATION_FACTOR, _NO, _FATAL,
         "The replication factor is below 1 or above the number of brokers."),
    _row(_C.INVALID_REPLICA_ASSIGNMENT, _NO, _FATAL, "The replica assignment is invalid."),
    _row(_C.INVALID_CONFIG, _NO, _FATAL, "A configuration entry is invalid."),
    _row(_C.NOT_CONTROLLER, _YES, _REFRESH, "The broker is not the controller."),
    _row(_C.INVALID_REQUEST, _NO, _FATAL, "The broker found the request malformed.", "See the broker's log."),
    _row(_C.UNSUPPORTED_FOR_MESSAGE_FORMAT, _NO, _FATAL, "The topic's old message format does not support this.",
         "Raise the topic's message.format.version, or set {enable.idempotence}=false."),
    _row(_C.POLICY_VIOLATION, _NO, _FATAL, "The request violates a policy of the cluster."),
    _row(_C.OUT_OF_ORDER_SEQUENCE_NUMBER, _NO, _FATAL,
         "A batch's sequence number is not the next one of its producer."),
    # The batch is in the log already: the first try of a resent batch had arrived.
    _row(_C.DUPLICATE_SEQUENCE_NUMBER, _NO, _SUCCESS, "The broker has this batch already."),
    _row(_C.INVALID_PRODUCER_EPOCH, _NO, _FATAL, "The producer's epoch is outdated.",
         "A newer producer, or a transaction timeout, has fenced this one."),
    _row(_C.INVALID_TXN_STATE, _NO, _FATAL, "The transaction is not in a state that allows this."),
    _row(_C.INVALID_PRODUCER_ID_MAPPING, _NO, _FATAL, "The producer id does not belong to this transactional id."),
    _row(_C.INVALID_TRANSACTION_TIMEOUT, _NO, _FATAL, "The transaction timeout is above the broker's maximum.",
         "See the broker's transaction.max.timeout.ms."),
    _row(_C.CONCURRENT_TRANSACTIONS, _YES, _RETRY, "The previous transaction of this id is still being completed."),
    _row(_C.TRANSACTION_COORDINATOR_FENCED, _NO, _FATAL, "The transaction coordinator has been replaced."),
    _row(_C.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, _NO, _FATAL,
         "The principal may not use this transactional id.", _ACL),
    _row(_C.SECURITY_DISABLED, _NO, _FATAL, "Security features are disabled on the broker."),
    _row(_C.OPERATION_NOT_ATTEMPTED, _NO, _FATAL, "Not attempted, since another part of the request failed."),
    _row(_C.KAFKA_STORAGE_ERROR, _YES, _REFRESH, "The broker's disk failed."),
    _row(_C.LOG_DIR_NOT_FOUND, _NO, _FATAL, "The log directory is not in the broker's configuration."),
    _row(_C.SASL_AUTHENTICATION_FAILED, _NO, _FATAL, "The credentials were refused."),
    _row(_C.UNKNOWN_PRODUCER_ID, _NO, _FATAL, "The broker holds no state for this producer id."),
    _row(_C.REASSIGNMENT_IN_PROGRESS, _NO, _FATAL, "A partition reassignment is in progress."),
    _row(_C.DELEGATION_TOKEN_AUTH_DISABLED, _NO, _FATAL, "Delegation tokens are not enabled."),
    _row(_C.DELEGATION_TOKEN_NOT_FOUND, _NO, _FATAL, "The delegation token does not exist."),
    _row(_C.DELEGATION_TOKEN_OWNER_MISMATCH, _NO, _FATAL, "The principal is no owner or renewer of the token."),
    _row(_C.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, _NO, _FATAL,
         "Delegation tokens cannot be asked for on this channel."),
    _row(_C.DELEGATION_TOKEN_AUTHORIZATION_FAILED, _NO, _FATAL, "The principal may not use this token.", _ACL),
    _row(_C.DELEGATION_TOKEN_EXPIRED, _NO, _FATAL, "The delegation token has expired."),
    _row(_C.INVALID_PRINCIPAL_TYPE, _NO, _FATAL, "The type of the principal is not supported."),
    _row(_C.NON_EMPTY_GROUP, _NO, _FATAL, "The group has members."),
    _row(_C.GROUP_ID_NOT_FOUND, _NO, _FATAL, "The group does not exist."),
    _row(_C.FETCH_SESSION_ID_NOT_FOUND, _YES, _RETRY, "The broker has dropped the fetch session."),
    _row(_C.INVALID_FETCH_SESSION_EPOCH, _YES, _RETRY, "The epoch of the fetch session is not the next one."),
    _row(_C.LISTENER_NOT_FOUND, _YES, _REFRESH, "The leader has no listener of the name used here.",
         "Give every broker the same listener names."),
    _row(_C.TOPIC_DELETION_DISABLED, _NO, _FATAL, "Topic deletion is disabled.",
         "See the broker's delete.topic.enable."),
    _row(_C.FENCED_LEADER_EPOCH, _YES, _REFRESH, "The leader epoch in the request is older than the broker's."),
    _row(_C.UNKNOWN_LEADER_EPOCH, _YES, _RETRY, "The leader epoch in the request is newer than the broker's."),
    _row(_C.UNSUPPORTED_COMPRESSION_TYPE, _NO, _FATAL, "The compression type is not supported by this API version."),
    _row(_C.STALE_BROKER_EPOCH, _NO, _FATAL, "The broker's epoch has changed."),
    _row(_C.OFFSET_NOT_AVAILABLE, _YES, _RETRY, "A new leader does not know its high watermark yet."),
    _row(_C.MEMBER_ID_REQUIRED, _NO, _REJOIN, "Join again with the member id that the coordinator has assigned."),
    _row(_C.PREFERRED_LEADER_NOT_AVAILABLE, _YES, _REFRESH, "The preferred leader is not available."),
    _row(_C.GROUP_MAX_SIZE_REACHED, _NO, _FATAL, "The group is full.", "See the broker's group.max.size."),
    _row(_C.FENCED_INSTANCE_ID, _NO, _FATAL, "Another member has registered with the same group.instance.id."),
    _row(_C.ELIGIBLE_LEADERS_NOT_AVAILABLE, _YES, _REFRESH, "No eligible leader is available."),
    _row(_C.ELECTION_NOT_NEEDED, _YES, _REFRESH, "The partition needs no election."),
    _row(_C.NO_REASSIGNMENT_IN_PROGRESS, _NO, _FATAL, "No partition reassignment is in progress."),
    _row(_C.GROUP_SUBSCRIBED_TO_TOPIC, _NO, _FATAL, "The group is subscribed to the topic whose offsets are to be deleted."),
    _row(_C.INVALID_RECORD, _NO, _FATAL, "A record failed the broker's validation.",
         "For a compacted topic give every record a key."),
    _row(_C.UNSTABLE_OFFSET_COMMIT, _YES, _RETRY, "Offsets of an open transaction are pending."),
    _row(_C.THROTTLING_QUOTA_EXCEEDED, _YES, _RETRY, "A quota is exceeded."),
    _row(_C.PRODUCER_FENCED, _NO, _FATAL, "A newer producer with the same transactional id has fenced this one."),
    _row(_C.RESOURCE_NOT_FOUND, _NO, _FATAL, "The resource does not exist."),
    _row(_C.DUPLICATE_RESOURCE, _NO, _FATAL, "The request names the same resource twice."),
    _row(_C.UNACCEPTABLE_CREDENTIAL, _NO, _FATAL, "The credential does not meet the criteria."),
    _row(_C.INCONSISTENT_VOTER_SET, _NO, _FATAL, "Sender or recipient is not one of the expected voters."),
    _row(_C.INVALID_UPDATE_VERSION, _NO, _FATAL, "The given feature version is invalid."),
    _row(_C.FEATURE_UPDATE_FAILED, _NO, _FATAL, "The features could not be updated."),
    _row(_C.PRINCIPAL_DESERIALIZATION_FAILURE, _NO, _FATAL,
         "The principal could not be forwarded inside the cluster."),
    _row(_C.SNAPSHOT_NOT_FOUND, _NO, _FATAL, "The snapshot does not exist."),
    _row(_C.POSITION_OUT_OF_RANGE, _NO, _FATAL, "The position is outside of the snapshot."),
    _row(_C.UNKNOWN_TOPIC_ID, _YES, _REFRESH, "The broker does not host this topic id.",
         "The topic may have been deleted, or deleted and recreated.", UNKNOWN_TOPIC_GRACE_MS),
    _row(_C.DUPLICATE_BROKER_REGISTRATION, _NO, _FATAL, "The broker id is in use."),
    _row(_C.BROKER_ID_NOT_REGISTERED, _NO, _FATAL, "The broker id is not registered."),
    _row(_C.INCONSISTENT_TOPIC_ID, _YES, _REFRESH, "The log's topic id is not the one in the request.",
         "The topic may have been deleted and recreated.", UNKNOWN_TOPIC_GRACE_MS),
    _row(_C.INCONSISTENT_CLUSTER_ID, _NO, _FATAL, "The cluster id is not the server's."),
    _row(_C.TRANSACTIONAL_ID_NOT_FOUND, _NO, _FATAL, "The transactional id does not exist."),
    _row(_C.FETCH_SESSION_TOPIC_ID_ERROR, _YES, _RETRY, "The fetch session mixes topic names and topic ids."),
    _row(_C.INELIGIBLE_REPLICA, _NO, _FATAL, "The new ISR contains an ineligible replica."),
    _row(_C.NEW_LEADER_ELECTED, _NO, _FATAL, "The partition was altered, and its leader has changed."),
    _row(_C.OFFSET_MOVED_TO_TIERED_STORAGE, _NO, _FATAL, "The offset has moved to tiered storage."),
    _row(_C.FENCED_MEMBER_EPOCH, _NO, _REJOIN, "The coordinator has fenced this member's epoch."),
    _row(_C.UNRELEASED_INSTANCE_ID, _NO, _FATAL, "Another member still uses this group.instance.id."),
    _row(_C.UNSUPPORTED_ASSIGNOR, _NO, _FATAL, "The group does not support the assignor or its version."),
    _row(_C.STALE_MEMBER_EPOCH, _NO, _REJOIN, "The member's epoch is stale. The next heartbeat returns the new one."),
    _row(_C.MISMATCHED_ENDPOINT_TYPE, _NO, _FATAL, "The request went to the wrong kind of endpoint.",
         "{bootstrap.servers} must name brokers, not controllers."),
    _row(_C.UNSUPPORTED_ENDPOINT_TYPE, _NO, _FATAL, "The kind of endpoint is not supported."),
    _row(_C.UNKNOWN_CONTROLLER_ID, _NO, _FATAL, "The controller id is unknown."),
    _row(_C.UNKNOWN_SUBSCRIPTION_ID, _NO, _FATAL, "The telemetry subscription is invalid or outdated."),
    _row(_C.TELEMETRY_TOO_LARGE, _NO, _FATAL, "The telemetry is larger than the broker accepts."),
    _row(_C.INVALID_REGISTRATION, _NO, _FATAL, "The broker's registration is invalid."),
    _row(_C.TRANSACTION_ABORTABLE, _NO, _FATAL,
         "The transaction has failed. Abort it, then begin a new one."),
    _row(_C.INVALID_RECORD_STATE, _NO, _FATAL, "The record cannot be acknowledged in its state."),
    _row(_C.SHARE_SESSION_NOT_FOUND, _YES, _RETRY, "The broker has dropped the share session."),
    _row(_C.INVALID_SHARE_SESSION_EPOCH, _YES, _RETRY, "The epoch of the share session is not the next one."),
    _row(_C.FENCED_STATE_EPOCH, _NO, _FATAL, "The share group's state epoch does not match."),
    _row(_C.INVALID_VOTER_KEY, _NO, _FATAL, "The voter's key is not the receiving replica's."),
    _row(_C.DUPLICATE_VOTER, _NO, _FATAL, "The voter is in the set already."),
    _row(_C.VOTER_NOT_FOUND, _NO, _FATAL, "The voter is not in the set."),
    _row(_C.INVALID_REGULAR_EXPRESSION, _NO, _FATAL, "The regular expression is invalid."),
    # Metadata v13 (KIP-1102), ApiVersions v5 (KIP-1242): the client has to look up the cluster's brokers through bootstrap.servers
    # again.
    _row(_C.REBOOTSTRAP_REQUIRED, _NO, _REFRESH, "The client's metadata is stale. It must bootstrap again."),
    _row(_C.STREAMS_INVALID_TOPOLOGY, _NO, _FATAL, "The topology is invalid."),
    _row(_C.STREAMS_INVALID_TOPOLOGY_EPOCH, _NO, _FATAL, "The topology's epoch is invalid."),
    _row(_C.STREAMS_TOPOLOGY_FENCED, _NO, _FATAL, "The topology's epoch is outdated."),
    _row(_C.SHARE_SESSION_LIMIT_REACHED, _YES, _RETRY, "The broker has reached its limit of share sessions."),
    _row(_C.GROUP_DELETION_FAILED, _NO, _FATAL, "The group could not be deleted; the broker's message says why."),
    _row(_C.STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED, _NO, _FATAL, "The topology's description could not be processed."),
    _row(_C.CONTROLLER_ID_NOT_REGISTERED, _NO, _FATAL, "The controller's id is not registered."),
)
# fmt: on

#: Every error code of Kafka 4.4.0 with what it means.
ERRORS: Final[dict[int, ErrorInfo]] = {info.code: info for info in _TABLE}

#: The principal lacks an ACL.
AUTHORIZATION_FAILURES: Final = frozenset(code for code in ErrorCode if code.name.endswith("AUTHORIZATION_FAILED"))

#: The ACL operation that an API needs on a resource, by the code of its refusal (https://kafka.apache.org/documentation/,
#: "Operations and Resources on Protocols").
_NEEDED: Final[dict[int, tuple[str, dict[str, tuple[str, ...]]]]] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: ("the topic", {
        "Describe": ("Metadata", "ListOffsets", "OffsetForLeaderEpoch", "OffsetFetch", "ConsumerGroupHeartbeat"),
        "Read": ("Fetch", "OffsetCommit", "TxnOffsetCommit", "DescribeProducers"),
        "Write": ("Produce", "AddPartitionsToTxn"),
        "Create": ("CreateTopics",),
        "Alter": ("CreatePartitions",),
        "Delete": ("DeleteTopics",),
        "DescribeConfigs": ("DescribeConfigs",),
        "AlterConfigs": ("IncrementalAlterConfigs",),
    }),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: ("the group", {
        "Describe": ("FindCoordinator", "OffsetFetch", "DescribeGroups", "ConsumerGroupDescribe"),
        "Read": ("OffsetCommit", "TxnOffsetCommit", "AddOffsetsToTxn", "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup",
                 "ConsumerGroupHeartbeat"),
    }),
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ("the transactional id", {
        "Describe": ("FindCoordinator", "DescribeTransactions"),
        "Write": ("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "Produce", "EndTxn"),
    }),
}  # fmt: skip


def remedy_of(code: int, api: str | None) -> str:
    """Return what to do about a code in a response of this API; names the missing ACL where it is known."""
    resource, operations = _NEEDED.get(code, ("", {}))
    for operation, apis in operations.items():
        if api in apis:
            included = " (Read or Write includes it)" if operation == "Describe" else ""
            return f"Grant the principal the missing ACL: {operation} on {resource}{included}."
    return error_info(code).remedy


def error_info(code: int) -> ErrorInfo:
    """Return the entry for `code`; an unknown code counts as fatal."""
    info = ERRORS.get(code)
    if info is None:
        return ErrorInfo(
            code, f"UNKNOWN_{code}", _NO, _FATAL, "This client does not know the error code.", "Upgrade pykafka-wire."
        )
    return info
