"""The meaning of each of Kafka's error codes, and how a client reacts to it.

Owns the table of error codes (https://kafka.apache.org/protocol#protocol_error_codes, as of Kafka 4.4.0). It performs no
action itself: what retries, refreshes metadata or finds coordinators looks up an :class:`Action` here, and
:mod:`pykafka_wire.wire.cluster.retries` has the loop.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple


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
_Row = ErrorInfo

_ACL = "Grant the principal the missing ACL."

# fmt: off
_TABLE: Final = (
    _Row(-1, "UNKNOWN_SERVER_ERROR", _NO, _FATAL, "The broker failed unexpectedly.", "See the broker's log."),
    _Row(0, "NONE", _NO, _SUCCESS, "No error."),
    _Row(1, "OFFSET_OUT_OF_RANGE", _NO, _FATAL, "The offset is outside of the partition's log.",
         "Records were deleted by retention or truncation: start from an offset that exists."),
    _Row(2, "CORRUPT_MESSAGE", _YES, _RETRY,
         "A batch failed its CRC, is too large, or lacks a key for a compacted topic.",
         "For a compacted topic give every record a key."),
    _Row(3, "UNKNOWN_TOPIC_OR_PARTITION", _YES, _REFRESH, "The broker does not host this topic-partition.",
         "Check the topic's name, that it exists, and the principal's Describe permission.", UNKNOWN_TOPIC_GRACE_MS),
    _Row(4, "INVALID_FETCH_SIZE", _NO, _FATAL, "The requested fetch size is invalid."),
    _Row(5, "LEADER_NOT_AVAILABLE", _YES, _REFRESH, "The partition has no leader. An election may be in progress."),
    _Row(6, "NOT_LEADER_OR_FOLLOWER", _YES, _REFRESH, "The broker is not the partition's leader, or holds no replica."),
    _Row(7, "REQUEST_TIMED_OUT", _YES, _RETRY, "The request timed out on the broker."),
    _Row(8, "BROKER_NOT_AVAILABLE", _NO, _FATAL, "The broker is not available."),
    _Row(9, "REPLICA_NOT_AVAILABLE", _YES, _REFRESH, "The replica is not available."),
    _Row(10, "MESSAGE_TOO_LARGE", _NO, _FATAL, "A record batch is larger than the broker accepts.",
         "Lower {batch.size}, or raise the topic's max.message.bytes."),
    _Row(11, "STALE_CONTROLLER_EPOCH", _NO, _FATAL, "The controller moved to another node."),
    _Row(12, "OFFSET_METADATA_TOO_LARGE", _NO, _FATAL, "The metadata of an offset commit is too large.",
         "Raise the broker's offset.metadata.max.bytes."),
    _Row(13, "NETWORK_EXCEPTION", _YES, _REFRESH, "The server disconnected before a response was received."),
    _Row(14, "COORDINATOR_LOAD_IN_PROGRESS", _YES, _RETRY, "The coordinator is still loading its state."),
    _Row(15, "COORDINATOR_NOT_AVAILABLE", _YES, _COORDINATOR, "The coordinator is not available."),
    _Row(16, "NOT_COORDINATOR", _YES, _COORDINATOR, "The broker is not the coordinator of this key."),
    _Row(17, "INVALID_TOPIC_EXCEPTION", _NO, _FATAL, "The topic's name is invalid, or the topic is internal.",
         "Topic names have 1 to 249 characters out of a-z, A-Z, 0-9, '.', '_' and '-'."),
    _Row(18, "RECORD_LIST_TOO_LARGE", _NO, _FATAL, "The batches are larger than the topic's segment size.",
         "Lower {batch.size}, or raise the topic's segment.bytes."),
    _Row(19, "NOT_ENOUGH_REPLICAS", _YES, _RETRY, "Fewer replicas are in sync than min.insync.replicas requires."),
    _Row(20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND", _YES, _RETRY, "Written, but to fewer in-sync replicas than required."),
    _Row(21, "INVALID_REQUIRED_ACKS", _NO, _FATAL, "The value of acks is invalid."),
    _Row(22, "ILLEGAL_GENERATION", _NO, _REJOIN, "The group has a newer generation."),
    _Row(23, "INCONSISTENT_GROUP_PROTOCOL", _NO, _FATAL, "The members of the group share no assignor or protocol type.",
         "Another kind of client uses this group id: choose another one."),
    _Row(24, "INVALID_GROUP_ID", _NO, _FATAL, "The group id is invalid."),
    _Row(25, "UNKNOWN_MEMBER_ID", _NO, _REJOIN, "The coordinator does not know this member of the group."),
    _Row(26, "INVALID_SESSION_TIMEOUT", _NO, _FATAL, "The session timeout is outside of the broker's limits.",
         "See the broker's group.min.session.timeout.ms and group.max.session.timeout.ms."),
    _Row(27, "REBALANCE_IN_PROGRESS", _NO, _REJOIN, "The group is rebalancing."),
    _Row(28, "INVALID_COMMIT_OFFSET_SIZE", _NO, _FATAL, "The data of an offset commit is too large."),
    _Row(29, "TOPIC_AUTHORIZATION_FAILED", _NO, _FATAL, "The principal may not do this on the topic.", _ACL),
    _Row(30, "GROUP_AUTHORIZATION_FAILED", _NO, _FATAL, "The principal may not do this with the group.", _ACL),
    _Row(31, "CLUSTER_AUTHORIZATION_FAILED", _NO, _FATAL, "The principal may not do this on the cluster.", _ACL),
    _Row(32, "INVALID_TIMESTAMP", _NO, _FATAL, "A record's timestamp is out of the accepted range.",
         "See the topic's message.timestamp.before.max.ms and message.timestamp.after.max.ms."),
    _Row(33, "UNSUPPORTED_SASL_MECHANISM", _NO, _FATAL, "The listener does not offer this SASL mechanism."),
    _Row(34, "ILLEGAL_SASL_STATE", _NO, _FATAL, "The request does not fit the state of the SASL exchange."),
    _Row(35, "UNSUPPORTED_VERSION", _NO, _FATAL, "The broker does not support this version of the API."),
    _Row(36, "TOPIC_ALREADY_EXISTS", _NO, _FATAL, "A topic of this name exists already."),
    _Row(37, "INVALID_PARTITIONS", _NO, _FATAL, "The number of partitions is invalid."),
    _Row(38, "INVALID_REPLICATION_FACTOR", _NO, _FATAL,
         "The replication factor is below 1 or above the number of brokers."),
    _Row(39, "INVALID_REPLICA_ASSIGNMENT", _NO, _FATAL, "The replica assignment is invalid."),
    _Row(40, "INVALID_CONFIG", _NO, _FATAL, "A configuration entry is invalid."),
    _Row(41, "NOT_CONTROLLER", _YES, _REFRESH, "The broker is not the controller."),
    _Row(42, "INVALID_REQUEST", _NO, _FATAL, "The broker found the request malformed.", "See the broker's log."),
    _Row(43, "UNSUPPORTED_FOR_MESSAGE_FORMAT", _NO, _FATAL, "The topic's old message format does not support this.",
         "Raise the topic's message.format.version, or set {enable.idempotence}=false."),
    _Row(44, "POLICY_VIOLATION", _NO, _FATAL, "The request violates a policy of the cluster."),
    _Row(45, "OUT_OF_ORDER_SEQUENCE_NUMBER", _NO, _FATAL,
         "A batch's sequence number is not the next one of its producer."),
    # The batch is in the log already: the first try of a resent batch had arrived.
    _Row(46, "DUPLICATE_SEQUENCE_NUMBER", _NO, _SUCCESS, "The broker has this batch already."),
    _Row(47, "INVALID_PRODUCER_EPOCH", _NO, _FATAL, "The producer's epoch is outdated.",
         "A newer producer, or a transaction timeout, has fenced this one."),
    _Row(48, "INVALID_TXN_STATE", _NO, _FATAL, "The transaction is not in a state that allows this."),
    _Row(49, "INVALID_PRODUCER_ID_MAPPING", _NO, _FATAL, "The producer id does not belong to this transactional id."),
    _Row(50, "INVALID_TRANSACTION_TIMEOUT", _NO, _FATAL, "The transaction timeout is above the broker's maximum.",
         "See the broker's transaction.max.timeout.ms."),
    _Row(51, "CONCURRENT_TRANSACTIONS", _YES, _RETRY, "The previous transaction of this id is still being completed."),
    _Row(52, "TRANSACTION_COORDINATOR_FENCED", _NO, _FATAL, "The transaction coordinator has been replaced."),
    _Row(53, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", _NO, _FATAL,
         "The principal may not use this transactional id.", _ACL),
    _Row(54, "SECURITY_DISABLED", _NO, _FATAL, "Security features are disabled on the broker."),
    _Row(55, "OPERATION_NOT_ATTEMPTED", _NO, _FATAL, "Not attempted, since another part of the request failed."),
    _Row(56, "KAFKA_STORAGE_ERROR", _YES, _REFRESH, "The broker's disk failed."),
    _Row(57, "LOG_DIR_NOT_FOUND", _NO, _FATAL, "The log directory is not in the broker's configuration."),
    _Row(58, "SASL_AUTHENTICATION_FAILED", _NO, _FATAL, "The credentials were refused."),
    _Row(59, "UNKNOWN_PRODUCER_ID", _NO, _FATAL, "The broker holds no state for this producer id."),
    _Row(60, "REASSIGNMENT_IN_PROGRESS", _NO, _FATAL, "A partition reassignment is in progress."),
    _Row(61, "DELEGATION_TOKEN_AUTH_DISABLED", _NO, _FATAL, "Delegation tokens are not enabled."),
    _Row(62, "DELEGATION_TOKEN_NOT_FOUND", _NO, _FATAL, "The delegation token does not exist."),
    _Row(63, "DELEGATION_TOKEN_OWNER_MISMATCH", _NO, _FATAL, "The principal is no owner or renewer of the token."),
    _Row(64, "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED", _NO, _FATAL,
         "Delegation tokens cannot be asked for on this channel."),
    _Row(65, "DELEGATION_TOKEN_AUTHORIZATION_FAILED", _NO, _FATAL, "The principal may not use this token.", _ACL),
    _Row(66, "DELEGATION_TOKEN_EXPIRED", _NO, _FATAL, "The delegation token has expired."),
    _Row(67, "INVALID_PRINCIPAL_TYPE", _NO, _FATAL, "The type of the principal is not supported."),
    _Row(68, "NON_EMPTY_GROUP", _NO, _FATAL, "The group has members."),
    _Row(69, "GROUP_ID_NOT_FOUND", _NO, _FATAL, "The group does not exist."),
    _Row(70, "FETCH_SESSION_ID_NOT_FOUND", _YES, _RETRY, "The broker has dropped the fetch session."),
    _Row(71, "INVALID_FETCH_SESSION_EPOCH", _YES, _RETRY, "The epoch of the fetch session is not the next one."),
    _Row(72, "LISTENER_NOT_FOUND", _YES, _REFRESH, "The leader has no listener of the name used here.",
         "Give every broker the same listener names."),
    _Row(73, "TOPIC_DELETION_DISABLED", _NO, _FATAL, "Topic deletion is disabled.",
         "See the broker's delete.topic.enable."),
    _Row(74, "FENCED_LEADER_EPOCH", _YES, _REFRESH, "The leader epoch in the request is older than the broker's."),
    _Row(75, "UNKNOWN_LEADER_EPOCH", _YES, _RETRY, "The leader epoch in the request is newer than the broker's."),
    _Row(76, "UNSUPPORTED_COMPRESSION_TYPE", _NO, _FATAL, "The compression type is not supported by this API version."),
    _Row(77, "STALE_BROKER_EPOCH", _NO, _FATAL, "The broker's epoch has changed."),
    _Row(78, "OFFSET_NOT_AVAILABLE", _YES, _RETRY, "A new leader does not know its high watermark yet."),
    _Row(79, "MEMBER_ID_REQUIRED", _NO, _REJOIN, "Join again with the member id that the coordinator has assigned."),
    _Row(80, "PREFERRED_LEADER_NOT_AVAILABLE", _YES, _REFRESH, "The preferred leader is not available."),
    _Row(81, "GROUP_MAX_SIZE_REACHED", _NO, _FATAL, "The group is full.", "See the broker's group.max.size."),
    _Row(82, "FENCED_INSTANCE_ID", _NO, _FATAL, "Another member has registered with the same group.instance.id."),
    _Row(83, "ELIGIBLE_LEADERS_NOT_AVAILABLE", _YES, _REFRESH, "No eligible leader is available."),
    _Row(84, "ELECTION_NOT_NEEDED", _YES, _REFRESH, "The partition needs no election."),
    _Row(85, "NO_REASSIGNMENT_IN_PROGRESS", _NO, _FATAL, "No partition reassignment is in progress."),
    _Row(86, "GROUP_SUBSCRIBED_TO_TOPIC", _NO, _FATAL, "The group is subscribed to the topic whose offsets are to be deleted."),
    _Row(87, "INVALID_RECORD", _NO, _FATAL, "A record failed the broker's validation.",
         "For a compacted topic give every record a key."),
    _Row(88, "UNSTABLE_OFFSET_COMMIT", _YES, _RETRY, "Offsets of an open transaction are pending."),
    _Row(89, "THROTTLING_QUOTA_EXCEEDED", _YES, _RETRY, "A quota is exceeded."),
    _Row(90, "PRODUCER_FENCED", _NO, _FATAL, "A newer producer with the same transactional id has fenced this one."),
    _Row(91, "RESOURCE_NOT_FOUND", _NO, _FATAL, "The resource does not exist."),
    _Row(92, "DUPLICATE_RESOURCE", _NO, _FATAL, "The request names the same resource twice."),
    _Row(93, "UNACCEPTABLE_CREDENTIAL", _NO, _FATAL, "The credential does not meet the criteria."),
    _Row(94, "INCONSISTENT_VOTER_SET", _NO, _FATAL, "Sender or recipient is not one of the expected voters."),
    _Row(95, "INVALID_UPDATE_VERSION", _NO, _FATAL, "The given feature version is invalid."),
    _Row(96, "FEATURE_UPDATE_FAILED", _NO, _FATAL, "The features could not be updated."),
    _Row(97, "PRINCIPAL_DESERIALIZATION_FAILURE", _NO, _FATAL,
         "The principal could not be forwarded inside the cluster."),
    _Row(98, "SNAPSHOT_NOT_FOUND", _NO, _FATAL, "The snapshot does not exist."),
    _Row(99, "POSITION_OUT_OF_RANGE", _NO, _FATAL, "The position is outside of the snapshot."),
    _Row(100, "UNKNOWN_TOPIC_ID", _YES, _REFRESH, "The broker does not host this topic id.",
         "The topic may have been deleted, or deleted and recreated.", UNKNOWN_TOPIC_GRACE_MS),
    _Row(101, "DUPLICATE_BROKER_REGISTRATION", _NO, _FATAL, "The broker id is in use."),
    _Row(102, "BROKER_ID_NOT_REGISTERED", _NO, _FATAL, "The broker id is not registered."),
    _Row(103, "INCONSISTENT_TOPIC_ID", _YES, _REFRESH, "The log's topic id is not the one in the request.",
         "The topic may have been deleted and recreated.", UNKNOWN_TOPIC_GRACE_MS),
    _Row(104, "INCONSISTENT_CLUSTER_ID", _NO, _FATAL, "The cluster id is not the server's."),
    _Row(105, "TRANSACTIONAL_ID_NOT_FOUND", _NO, _FATAL, "The transactional id does not exist."),
    _Row(106, "FETCH_SESSION_TOPIC_ID_ERROR", _YES, _RETRY, "The fetch session mixes topic names and topic ids."),
    _Row(107, "INELIGIBLE_REPLICA", _NO, _FATAL, "The new ISR contains an ineligible replica."),
    _Row(108, "NEW_LEADER_ELECTED", _NO, _FATAL, "The partition was altered, and its leader has changed."),
    _Row(109, "OFFSET_MOVED_TO_TIERED_STORAGE", _NO, _FATAL, "The offset has moved to tiered storage."),
    _Row(110, "FENCED_MEMBER_EPOCH", _NO, _REJOIN, "The coordinator has fenced this member's epoch."),
    _Row(111, "UNRELEASED_INSTANCE_ID", _NO, _FATAL, "Another member still uses this group.instance.id."),
    _Row(112, "UNSUPPORTED_ASSIGNOR", _NO, _FATAL, "The group does not support the assignor or its version."),
    _Row(113, "STALE_MEMBER_EPOCH", _NO, _REJOIN, "The member's epoch is stale. The next heartbeat returns the new one."),
    _Row(114, "MISMATCHED_ENDPOINT_TYPE", _NO, _FATAL, "The request went to the wrong kind of endpoint.",
         "{bootstrap.servers} must name brokers, not controllers."),
    _Row(115, "UNSUPPORTED_ENDPOINT_TYPE", _NO, _FATAL, "The kind of endpoint is not supported."),
    _Row(116, "UNKNOWN_CONTROLLER_ID", _NO, _FATAL, "The controller id is unknown."),
    _Row(117, "UNKNOWN_SUBSCRIPTION_ID", _NO, _FATAL, "The telemetry subscription is invalid or outdated."),
    _Row(118, "TELEMETRY_TOO_LARGE", _NO, _FATAL, "The telemetry is larger than the broker accepts."),
    _Row(119, "INVALID_REGISTRATION", _NO, _FATAL, "The broker's registration is invalid."),
    _Row(120, "TRANSACTION_ABORTABLE", _NO, _FATAL,
         "The transaction has failed. Abort it, then begin a new one."),
    _Row(121, "INVALID_RECORD_STATE", _NO, _FATAL, "The record cannot be acknowledged in its state."),
    _Row(122, "SHARE_SESSION_NOT_FOUND", _YES, _RETRY, "The broker has dropped the share session."),
    _Row(123, "INVALID_SHARE_SESSION_EPOCH", _YES, _RETRY, "The epoch of the share session is not the next one."),
    _Row(124, "FENCED_STATE_EPOCH", _NO, _FATAL, "The share group's state epoch does not match."),
    _Row(125, "INVALID_VOTER_KEY", _NO, _FATAL, "The voter's key is not the receiving replica's."),
    _Row(126, "DUPLICATE_VOTER", _NO, _FATAL, "The voter is in the set already."),
    _Row(127, "VOTER_NOT_FOUND", _NO, _FATAL, "The voter is not in the set."),
    _Row(128, "INVALID_REGULAR_EXPRESSION", _NO, _FATAL, "The regular expression is invalid."),
    # Metadata v13 (KIP-1102), ApiVersions v5 (KIP-1242): the client has to look up the cluster's brokers through bootstrap.servers
    # again.
    _Row(129, "REBOOTSTRAP_REQUIRED", _NO, _REFRESH, "The client's metadata is stale. It must bootstrap again."),
    _Row(130, "STREAMS_INVALID_TOPOLOGY", _NO, _FATAL, "The topology is invalid."),
    _Row(131, "STREAMS_INVALID_TOPOLOGY_EPOCH", _NO, _FATAL, "The topology's epoch is invalid."),
    _Row(132, "STREAMS_TOPOLOGY_FENCED", _NO, _FATAL, "The topology's epoch is outdated."),
    _Row(133, "SHARE_SESSION_LIMIT_REACHED", _YES, _RETRY, "The broker has reached its limit of share sessions."),
    _Row(134, "GROUP_DELETION_FAILED", _NO, _FATAL, "The group could not be deleted; the broker's message says why."),
    _Row(135, "STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED", _NO, _FATAL, "The topology's description could not be processed."),
    _Row(136, "CONTROLLER_ID_NOT_REGISTERED", _NO, _FATAL, "The controller's id is not registered."),
)
# fmt: on

#: Every error code of Kafka 4.4.0.
ERRORS: Final[dict[int, ErrorInfo]] = {info.code: info for info in _TABLE}


#: The ACL operation that an API needs on a resource, by the code of its refusal (https://kafka.apache.org/documentation/,
#: "Operations and Resources on Protocols").
_NEEDED: Final[dict[int, tuple[str, dict[str, tuple[str, ...]]]]] = {
    29: ("the topic", {
        "Describe": ("Metadata", "ListOffsets", "OffsetForLeaderEpoch", "OffsetFetch", "ConsumerGroupHeartbeat"),
        "Read": ("Fetch", "OffsetCommit", "TxnOffsetCommit", "DescribeProducers"),
        "Write": ("Produce", "AddPartitionsToTxn"),
        "Create": ("CreateTopics",),
        "Alter": ("CreatePartitions",),
        "Delete": ("DeleteTopics",),
        "DescribeConfigs": ("DescribeConfigs",),
        "AlterConfigs": ("IncrementalAlterConfigs",),
    }),
    30: ("the group", {
        "Describe": ("FindCoordinator", "OffsetFetch", "DescribeGroups", "ConsumerGroupDescribe"),
        "Read": ("OffsetCommit", "TxnOffsetCommit", "AddOffsetsToTxn", "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup",
                 "ConsumerGroupHeartbeat"),
    }),
    53: ("the transactional id", {
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
