"""Whether a query that has no marker has committed before: then its marker is lost, and it is unknown what is in Kafka.

The transaction coordinators know. A claim (InitProducerId) resets the state of the query's own id; the ids of its tasks keep theirs
until a later micro-batch uses them again, so those of a committed micro-batch 0 keep it while that one can be replayed.
"""

from __future__ import annotations

from typing import Final

from pykafka_wire.sink.exactly_once.task_ids import is_task_id, task_prefix
from pykafka_wire.wire.cluster.cluster import Cluster
from pykafka_wire.wire.errors import UnsupportedVersionError
from pykafka_wire.wire.transactions.bulk import list_in_states
from pykafka_wire.wire.transactions.transaction import last_known_state

#: States of a transaction that is committed, or is going to be: the coordinator has decided.
_COMMITTED: Final = ("PrepareCommit", "CompleteCommit")


def own_id_has_committed(cluster: Cluster, transactional_id: str) -> bool:
    """Whether the last transaction of a query's own id was committed, as far as is known. A claim since then hides it."""
    state = last_known_state(cluster, transactional_id)
    return state is not None and state.state in _COMMITTED


def tasks_have_committed(cluster: Cluster, transactional_id: str) -> bool:
    """Whether a transaction of a query's tasks was committed, as far as is known: brokers before Kafka 3.0 do not list them.

    Raises:
        WireError: a broker does not answer.
    """
    try:
        found = list_in_states(cluster, task_prefix(transactional_id), _COMMITTED)
    except UnsupportedVersionError:
        return False
    return any(is_task_id(transactional_id, each.transactional_id) for each in found)
