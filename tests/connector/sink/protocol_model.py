"""A model of task transactions: the protocol of docs/exactly-once.md, apart from the code, in every order.

One step is one request to a broker, one line in Spark's commit log, or one fault. :func:`explore` visits every state that drivers,
their tasks, the coordinator and the faults can reach, whatever the order of their steps, and returns the first violation with
the steps that lead to it. Rules can be left out, by name, to show that the exploration notices.

A driver that is paused is one whose steps come last, so zombies need no step of their own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

#: Each rule of the protocol that a model can be explored without.
RULES: Final = (
    "a decision needs the latest fencing token",
    "a commit reads the marker",
    "a transaction is ended after its decision",
    "only what is open in its partition is committed",
    "Spark's log is written after all have ended",
    "what has ended is settled before Spark's log",
    "a replay replaces only equal rows",
    "a replacement is decided before it is ended",
    "a repeated micro-batch uses new ids",
    "each attempt has an id of its own",
    "orphans are aborted after the marker was read",
    "orphans are aborted only by the latest driver",
)

OPEN, COMMITTED, ABORTED = "open", "committed", "aborted"
#: The id was used again since: nobody can say how that transaction ended.
UNKNOWN = "unknown"


class Transaction(NamedTuple):
    """A transactional id as its coordinator knows it: the epoch now, that of its last transaction, and what that one holds.

    ``cut``: an administrator has aborted it in its partition, and the coordinator does not know.
    """

    worker: int
    number: int
    epoch: int
    begun_epoch: int
    state: str
    batch: int
    rows: tuple[int, ...]
    cut: bool = False

    @property
    def key(self) -> tuple[int, int]:
        return self.worker, self.number


class Handle(NamedTuple):
    """What a task returns of its transaction."""

    key: tuple[int, int]
    epoch: int
    rows: tuple[int, ...]


class Marker(NamedTuple):
    """The last decision. ``pending`` is empty once it is settled."""

    batch: int = -1
    pending: tuple[Handle, ...] = ()


class Driver(NamedTuple):
    """A run of the query.

    Attributes:
        step: what it does next.
        token: its fencing token; a later driver's is higher.
        written: what its tasks returned.
        work: what is left to do in this step: transactions to end, or to abort.
        shuffled: its tasks compute the rows of others.
    """

    step: str
    batch: int = 0
    token: int = 0
    written: tuple[Handle, ...] = ()
    work: tuple[Handle, ...] = ()
    lost: tuple[Handle, ...] = ()
    shuffled: bool = False


class State(NamedTuple):
    """Everything there is. ``visible`` counts how often a read_committed reader sees each row of each micro-batch."""

    log: int
    marker: Marker
    token: int
    transactions: tuple[Transaction, ...]
    visible: tuple[int, ...]
    drivers: tuple[Driver, ...]
    crashes: int
    timeouts: int
    duplicates: int
    cuts: int


@dataclass(frozen=True, kw_only=True)
class Model:
    """What is explored.

    Attributes:
        first_version: TV1, where the end of a transaction leaves the epoch as it is.
        n_runs: so many runs of the query are started, at any time, at most two at once.
        one_application: the runs share their Python workers, as queries of one Spark application do.
        shuffles: the second run's tasks hold other rows than the first one's.
        without: rules that are left out.
    """

    first_version: bool
    n_tasks: int = 2
    n_batches: int = 1
    n_runs: int = 2
    crashes: int = 1
    timeouts: int = 1
    duplicates: int = 0
    cuts: int = 0
    one_application: bool = False
    shuffles: bool = False
    without: frozenset[str] = frozenset()

    def keeps(self, rule: str) -> bool:
        assert rule in RULES
        return rule not in self.without

    # --- the coordinator ----------------------------------------------------------------------------------------------

    def begin(self, state: State, worker: int, batch: int, rows: tuple[int, ...], number: int) -> tuple[State, Handle]:
        """InitProducerId, and the write of a task's rows."""
        before = next((t for t in state.transactions if t.key == (worker, number)), None)
        epoch = 0 if before is None else before.epoch + 1
        begun = Transaction(worker, number, epoch, epoch, OPEN, batch, rows)
        others = [t for t in state.transactions if t.key != begun.key]
        changed = state._replace(transactions=tuple(sorted([*others, begun])))
        return changed, Handle(begun.key, epoch, rows)

    def end(self, state: State, handle: Handle, *, commit: bool) -> tuple[State, str]:
        """EndTxn, and DescribeTransactions where it is refused: the new state, and the outcome.

        A commit looks into the partition first. What happens between the look and the end is not explored: nothing could tell.
        """
        t = next(t for t in state.transactions if t.key == handle.key)
        if t.cut and self.keeps("only what is open in its partition is committed"):
            commit = False
        if t.state == OPEN and t.epoch == handle.epoch:
            ended = t._replace(state=COMMITTED if commit else ABORTED, epoch=t.epoch + (0 if self.first_version else 1))
            return self._with(state, ended), ended.state
        if t.state != OPEN and t.epoch in (handle.epoch, handle.epoch + 1):
            return state, t.state
        return state, UNKNOWN

    def _with(self, state: State, changed: Transaction) -> State:
        visible = list(state.visible)
        if changed.state == COMMITTED and not changed.cut:
            for row in changed.rows:
                visible[changed.batch * self.n_tasks + row] += 1
        transactions = tuple(changed if t.key == changed.key else t for t in state.transactions)
        return state._replace(transactions=transactions, visible=tuple(visible))

    # --- faults -------------------------------------------------------------------------------------------------------

    def faults(self, state: State) -> Iterator[tuple[str, State]]:
        if state.timeouts:
            for t in state.transactions:
                if t.state == OPEN:
                    aborted = t._replace(state=ABORTED, epoch=t.epoch + 1)
                    yield f"{t.key} times out", self._with(state, aborted)._replace(timeouts=state.timeouts - 1)
        if state.cuts:
            for t in state.transactions:
                if t.state == OPEN and not t.cut:
                    yield f"{t.key} is cut", self._with(state, t._replace(cut=True))._replace(cuts=state.cuts - 1)
        for i, driver in enumerate(state.drivers):
            if state.crashes and driver.step not in ("new", "dead", "done"):
                yield f"driver {i} crashes", self._moved(state, i, _DEAD)._replace(crashes=state.crashes - 1)

    # --- a driver -----------------------------------------------------------------------------------------------------

    def _moved(self, state: State, i: int, driver: Driver) -> State:
        return state._replace(drivers=(*state.drivers[:i], driver, *state.drivers[i + 1 :]))

    def steps(self, state: State, i: int) -> Iterator[tuple[str, State]]:
        """The next step of driver `i`; tasks of one micro-batch come one after the other, for their order does not matter."""
        driver = state.drivers[i]
        match driver.step:
            case "new":
                running = [d for d in state.drivers[:i] if d.step not in ("dead", "done")]
                if len(running) < 2 and all(d.step != "new" for d in state.drivers[:i]):
                    yield f"driver {i} starts", self._moved(state, i, self._next_batch(state, driver))
            case "fence":
                fenced = state._replace(token=state.token + 1)
                moved = driver._replace(step="look for orphans", token=fenced.token)
                yield f"driver {i} fences", self._moved(fenced, i, moved)
            case "look for orphans":
                decided = {(h.key, h.epoch) for h in state.marker.pending}
                if not self.keeps("orphans are aborted after the marker was read"):
                    decided = set()
                found = tuple(
                    Handle(t.key, t.epoch, t.rows)
                    for t in state.transactions
                    if t.state == OPEN and (t.key, t.epoch) not in decided
                )
                moved = driver._replace(step="check token" if found else "write", work=found)
                yield f"driver {i} looks for orphans", self._moved(state, i, moved)
            case "check token":
                holds = driver.token == state.token or not self.keeps("orphans are aborted only by the latest driver")
                yield (
                    f"driver {i} checks its token",
                    self._moved(state, i, driver._replace(step="abort orphans") if holds else _DEAD),
                )
            case "abort orphans":
                changed, _ = self.end(state, driver.work[0], commit=False)
                rest = driver.work[1:]
                moved = driver._replace(step="abort orphans" if rest else "write", work=rest)
                yield f"driver {i} aborts {driver.work[0].key}", self._moved(changed, i, moved)
            case "write":
                yield from self._write(state, i, driver)
            case "commit":
                yield from self._commit(state, i, driver)
            case "decide":
                yield from self._decide(state, i, driver, driver.written, "end")
            case "end decided before":
                changed, outcome = self.end(state, driver.work[0], commit=True)
                if outcome == UNKNOWN:
                    # Only a run that was fenced may meet this: it has read an old marker.
                    failed = Driver(UNKNOWN) if driver.token == state.token else _DEAD
                    yield f"driver {i} finds {driver.work[0].key} unknown", self._moved(changed, i, failed)
                    return
                lost = (*driver.lost, driver.work[0]) if outcome == ABORTED else driver.lost
                rest = driver.work[1:]
                moved = driver._replace(step="end decided before" if rest else "replace", work=rest, lost=lost)
                yield f"driver {i} finds {driver.work[0].key} {outcome}", self._moved(changed, i, moved)
            case "replace":
                yield from self._replace(state, i, driver)
            case "end":
                changed, outcome = self.end(state, driver.work[0], commit=True)
                rest = driver.work[1:]
                then = "end" if rest else "settle"
                if outcome != COMMITTED and self.keeps("Spark's log is written after all have ended"):
                    yield f"driver {i} cannot end {driver.work[0].key}: {outcome}", self._moved(changed, i, _DEAD)
                    return
                if not rest and not self.keeps("what has ended is settled before Spark's log"):
                    then = "log"
                if not rest and not self.keeps("a transaction is ended after its decision"):
                    then = "decide after the end"
                yield (
                    f"driver {i} ends {driver.work[0].key}",
                    self._moved(changed, i, driver._replace(step=then, work=rest)),
                )
            case "decide after the end":
                yield from self._decide(state, i, driver, driver.written, "settle")
            case "settle":
                if driver.token == state.token or not self.keeps("a decision needs the latest fencing token"):
                    settled = state._replace(marker=Marker(driver.batch))
                    yield f"driver {i} settles", self._moved(settled, i, driver._replace(step="log"))
                else:
                    yield f"driver {i} is fenced", self._moved(state, i, _DEAD)
            case "log":
                if state.log == driver.batch:
                    logged = state._replace(log=state.log + 1)
                    cleared = Driver("fence", driver.batch, shuffled=driver.shuffled)
                    yield f"driver {i} logs", self._moved(logged, i, self._next_batch(logged, cleared))
                else:
                    yield f"driver {i} finds another one's log", self._moved(state, i, _DEAD)

    def _next_batch(self, state: State, driver: Driver) -> Driver:
        if state.log == self.n_batches:
            return Driver("done")
        return Driver("fence", state.log, shuffled=driver.shuffled)

    def _write(self, state: State, i: int, driver: Driver) -> Iterator[tuple[str, State]]:
        task = len(driver.written)
        worker = 0 if self.one_application else i
        rows = ((task + 1) % self.n_tasks,) if driver.shuffled else (task,)
        usable = self._usable(state, worker, driver, rows)
        changed, handle = self.begin(state, worker, driver.batch, rows, usable)
        written = (*driver.written, handle)
        moved = driver._replace(step="commit" if len(written) == self.n_tasks else "write", written=written)
        yield f"driver {i} writes task {task} as {handle.key}", self._moved(changed, i, moved)
        if state.duplicates:
            # An attempt that loses: it writes the same, and the driver hears of the other one alone.
            number = usable if not self.keeps("each attempt has an id of its own") else None
            number = self._usable(changed, worker, driver, rows) if number is None else number
            doubled, _ = self.begin(changed, worker, driver.batch, rows, number)
            doubled = doubled._replace(duplicates=state.duplicates - 1)
            yield f"driver {i} writes task {task} twice", self._moved(doubled, i, moved)

    def _usable(self, state: State, worker: int, driver: Driver, rows: tuple[int, ...]) -> int:
        """The first number of a worker's ids that no attempt at this micro-batch, or at a later one, has used."""
        taken = {h.key for h in driver.written}
        fresh = self.keeps("a repeated micro-batch uses new ids")
        used = {t.number: t.batch for t in state.transactions if t.worker == worker}
        number = 0
        while (worker, number) in taken or (number in used and used[number] >= driver.batch and fresh):
            number += 1
        return number

    def _commit(self, state: State, i: int, driver: Driver) -> Iterator[tuple[str, State]]:
        marker = state.marker if self.keeps("a commit reads the marker") else Marker(driver.batch - 1)
        if marker.batch == driver.batch and marker.pending:
            moved = driver._replace(step="end decided before", work=marker.pending)
        elif marker.batch == driver.batch:
            moved = driver._replace(step="log")
        elif marker.batch == driver.batch - 1 and self.keeps("a transaction is ended after its decision"):
            moved = driver._replace(step="decide")
        elif marker.batch == driver.batch - 1:
            moved = driver._replace(step="end", work=driver.written)
        else:
            moved = _DEAD
        yield f"driver {i} reads the marker", self._moved(state, i, moved)

    def _decide(
        self,
        state: State,
        i: int,
        driver: Driver,
        pending: tuple[Handle, ...],
        then: str,
        kept: tuple[Handle, ...] = (),
    ) -> Iterator[tuple[str, State]]:
        if driver.token == state.token or not self.keeps("a decision needs the latest fencing token"):
            decided = state._replace(marker=Marker(driver.batch, pending + kept))
            yield f"driver {i} decides", self._moved(decided, i, driver._replace(step=then, work=pending))
        else:
            yield f"driver {i} is fenced", self._moved(state, i, _DEAD)

    def _replace(self, state: State, i: int, driver: Driver) -> Iterator[tuple[str, State]]:
        """Transactions that were decided and have been aborted: decide this run's own ones with the same rows instead."""
        if not driver.lost:
            yield f"driver {i} finds all ended", self._moved(state, i, driver._replace(step="settle"))
            return
        own = {h.rows: h for h in driver.written}
        if not self.keeps("a replay replaces only equal rows"):
            own = {(task,): h for task, h in enumerate(driver.written)}
        replacements = tuple(own[h.rows] for h in driver.lost if h.rows in own)
        if len(replacements) < len(driver.lost):
            yield f"driver {i} reports what is missing", self._moved(state, i, _DEAD)
        elif self.keeps("a replacement is decided before it is ended"):
            kept = tuple(h for h in state.marker.pending if h not in driver.lost)
            yield from self._decide(state, i, driver, replacements, "end", kept)
        else:
            yield f"driver {i} replaces", self._moved(state, i, driver._replace(step="end", work=replacements))

    # --- what must hold -----------------------------------------------------------------------------------------------

    def violation(self, state: State) -> str | None:
        if any(n > 1 for n in state.visible):
            return "a row is doubled"
        if any(n != 1 for n in state.visible[: state.log * self.n_tasks]):
            return "a row of a micro-batch in Spark's log is lost"
        if any(driver.step == UNKNOWN for driver in state.drivers):
            return "how a decided transaction ended is unknown"
        if (state.timeouts, state.cuts) == (self.timeouts, self.cuts):
            by_key = {t.key: t for t in state.transactions}
            for handle in state.marker.pending:
                t = by_key[handle.key]
                if t.begun_epoch != handle.epoch or t.state == ABORTED:
                    return "a decided transaction was aborted, and neither by its time-out nor for a cut"
        return None

    def initial(self) -> State:
        runs = tuple(Driver("new", shuffled=self.shuffles and i == 1) for i in range(self.n_runs))
        visible = (0,) * (self.n_batches * self.n_tasks)
        return State(0, Marker(), 0, (), visible, runs, self.crashes, self.timeouts, self.duplicates, self.cuts)


_DEAD: Final = Driver("dead")


@dataclass(frozen=True, kw_only=True)
class Explored:
    """What an exploration found.

    Attributes:
        violation: the first one, with the steps that lead to it; None where every state is right.
        completed: crashes and time-outs that were left where all micro-batches are in Spark's log.
    """

    n_states: int
    violation: str | None = None
    trace: tuple[str, ...] = ()
    completed: frozenset[tuple[int, int]] = frozenset()


def explore(model: Model) -> Explored:
    """Every state that can be reached, breadth first."""
    start = model.initial()
    came_from: dict[State, tuple[State, str] | None] = {start: None}
    waiting = deque([start])
    completed = set()
    while waiting:
        state = waiting.popleft()
        if state.log == model.n_batches:
            completed.add((state.crashes, state.timeouts))
        if (violation := model.violation(state)) is not None:
            return Explored(n_states=len(came_from), violation=violation, trace=_trace(came_from, state))
        following = [step for i in range(len(state.drivers)) for step in model.steps(state, i)]
        following += model.faults(state)
        for label, after in following:
            if after not in came_from:
                came_from[after] = (state, label)
                waiting.append(after)
    return Explored(n_states=len(came_from), completed=frozenset(completed))


def without(model: Model, rule: str) -> Model:
    """The same model with a rule left out."""
    return replace(model, without=frozenset({rule}))


def _trace(came_from: dict[State, tuple[State, str] | None], state: State) -> tuple[str, ...]:
    steps = []
    at: State | None = state
    while at is not None and (before := came_from[at]) is not None:
        at, label = before
        steps.append(label)
    return tuple(reversed(steps))
