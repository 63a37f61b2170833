"""``ingest``: lands topics in tables; also run as ``python -m pykafka_wire.ingest``."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from pykafka_wire.cli.connection import (
    connected,
    connection_options,
    given_options,
    kafka_options,
    output,
    source_options,
    split_settings,
)
from pykafka_wire.cli.ingest_file import SETTINGS_FILE, keep_settings
from pykafka_wire.cli.ingest_screen import IngestScreen
from pykafka_wire.cli.lag_samples import duration
from pykafka_wire.cli.output import FAILED, INTERRUPTED, UsageMistake, absolute, counted
from pykafka_wire.cli.session import SessionStart
from pykafka_wire.cli.working import Steps, Working, working
from pykafka_wire.errors import IngestError, MissingLibraryError, OptionError
from pykafka_wire.ingest.settings.model import MODES, Settings
from pykafka_wire.ingest.settings.settings_file import make_settings, read_settings
from pykafka_wire.ingest.startup.lease import CheckpointLease, check_free
from pykafka_wire.ingest.startup.library_checks import check_libraries
from pykafka_wire.ingest_status import IngestStatus, TableState
from pykafka_wire.page.address import PageSettings, open_server

if TYPE_CHECKING:  # these load Spark, which no other command needs
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from pykafka_wire.ingest.ingest import Ingest
    from pykafka_wire.ingest.proof.proof import Proof
    from pykafka_wire.ingest.proof.replay import Replay
    from pykafka_wire.ingest.spark.progress import TaskRecords

_SHOW_CURSOR: Final = b"\x1b[?25h"
#: Names the signal, for users with several ways to end an ingest.
_ENDING: Final = "{}: ending after the running micro-batch"
#: Options of the command with the name of a setting, and options that are settings of every table.
_SETTINGS: Final = (
    "topics", "registry", "into", "checkpoint", "starting_offsets", "every", "ui", "ui_token", "ui_values", "metrics_port",
)  # fmt: skip
_DEFAULTS: Final = ("mode", "format")


@click.command()
@connection_options
@click.argument("file", required=False, type=SETTINGS_FILE)
@click.option("--topics", metavar="REGEX", help="Topics to land: a regular expression that matches the whole name.")
@click.option("--registry", metavar="URL", help="The schema registry, which knows the formats of the topics.")
@click.option("--format", metavar="NAME", help="The format of topics without a registry: json, string or binary.")
@click.option("--mode", type=click.Choice(MODES), help="How records become rows [default: append].")
@click.option("--into", metavar="PLACE", help="Where the tables are: a folder, or SCHEMA or CATALOG.SCHEMA.")
@click.option(
    "--checkpoint", metavar="FOLDER", help="Spark's checkpoint [default: _checkpoint in the folder of --into]."
)
@click.option(
    "--from",
    "starting_offsets",
    type=click.Choice(("earliest", "latest")),
    help="Where the first start begins [default: earliest].",
)
@click.option("--once", is_flag=True, help="Land all records that exist now, then exit.")
@click.option(
    "--every",
    metavar="DURATION",
    help="The time between two micro-batches: a number with ms, s, m, h or d [default: 10s].",
)
@click.option(
    "--metrics-port", metavar="[HOST:]PORT", help="Serve metrics to Prometheus at this port [default host: 127.0.0.1]."
)
@click.option("--ui", metavar="[HOST:]PORT", help="Serve a page that shows the tables [default host: 127.0.0.1].")
@click.option(
    "--ui-token",
    metavar="REFERENCE",
    help="The token of the page: env:NAME or file:/path [default: a new token at each start; none at 127.0.0.1].",
)
@click.option("--ui-values", is_flag=True, help="Let the page show values of rejected records.")
@click.option(
    "--log-file",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Append Spark's output and warnings to this file [default: standard error; on a terminal a new file in "
    "~/.local/state/pykafka-wire].",
)
@click.option("--plan", "is_plan", is_flag=True, help="Show what the ingest would do with each topic, and exit.")
@click.option("--verify", "is_verify", is_flag=True, help="Compare each table with its topic, and exit.")
@click.option(
    "--init",
    "new_file",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a commented settings file for the topics that exist, and exit.",
)
@click.option(
    "--replay-rejects", "is_replay", is_flag=True, help="Read the rejects again while no ingest runs, and exit."
)
def ingest(
    file: Path | None,
    once: bool,
    log_file: Path | None,
    is_plan: bool,
    is_verify: bool,
    is_replay: bool,
    new_file: Path | None,
    **given: Any,
) -> None:
    """Land topics in tables: one Spark query, and one typed Delta table for each topic, which stays correct while schemas change.

    FILE is a TOML file with all settings; options override it. Without FILE, the ingest saves its options as ingest.toml in the
    folder of its tables: later you can name that folder in place of FILE. Ctrl-C ends the ingest after the running micro-batch.
    """
    if sum((is_plan, is_verify, is_replay, new_file is not None)) > 1:
        raise click.UsageError("give one of --init, --plan, --verify and --replay-rejects.")
    is_run = not (is_plan or is_verify or is_replay or new_file is not None)
    if log_file is not None and not is_run:
        raise click.UsageError("--log-file needs a running ingest: leave it out.")
    if once and given["every"] is not None:
        raise click.UsageError("--once does not repeat micro-batches: leave out --every.")
    if new_file is not None:
        if file is not None or given["mode"] or given["format"]:
            raise click.UsageError(
                "--init detects formats and modes itself, and reads no file: leave out FILE, --mode and --format."
            )
        _init(new_file, given)
        return
    if file is None and not (given["topics"] and given["into"]):
        raise click.UsageError(
            "name a settings FILE, or the folder of an ingest's tables; or give --topics and --into."
        )
    try:
        options = _given_settings(file, given)
        settings = make_settings(options) if file is None else read_settings(file, options)
        page, metrics = (settings.page(), settings.metrics_address) if is_run else (None, None)
        check_libraries(settings, is_plan=is_plan, with_page=page is not None, with_metrics=metrics is not None)
        _check_ports(page, metrics)
    except (IngestError, OptionError) as error:
        raise UsageMistake(str(error)) from error
    if is_plan:
        sys.exit(_plan(settings))
    if is_verify:
        sys.exit(_verify(settings))
    if is_replay:
        sys.exit(_replay(settings))
    try:
        screen = IngestScreen(settings.title, is_quiet=output().json, log=log_file)
    except OSError as error:
        raise click.UsageError(f"--log-file {log_file}: {error.strerror}.") from error
    sys.exit(_run(settings, screen, options if file is None else None, once=once))


def _ingest_of(settings: Settings) -> Ingest:
    from pykafka_wire.ingest.ingest import Ingest  # loads Spark, which takes a second

    return Ingest.of(settings)


def _check_ports(page: PageSettings | None, metrics: tuple[str, int] | None) -> None:
    """Check, before Spark starts, that the ports of the page and the metrics can be opened. Raises OptionError."""
    with contextlib.ExitStack() as sockets:  # both at the same time: the settings may give them the same port
        if page is not None:
            sockets.enter_context(page.listen())
        if metrics is not None:
            sockets.enter_context(open_server(*metrics, "the metrics server"))


def _init(path: Path, given: dict[str, Any]) -> None:
    from pykafka_wire.cli.ingest_init import write_settings
    from pykafka_wire.values.registry.settings import registry_of

    into = absolute(given["into"] or "./lake")
    top = {name: given[name] for name in _SETTINGS if given[name]}
    top |= {"topics": given["topics"] or ".*", "into": into, "registry": given["registry"]}
    top["checkpoint"] = absolute(given["checkpoint"] or f"{into.rstrip('/')}/_checkpoint")
    top["kafka"] = {name.removeprefix("kafka."): value for name, value in kafka_options().items()}
    _, of_registry = split_settings(given_options())
    top["registry_options"] = {name: value for name, value in of_registry.items() if name != "schema.registry.url"}
    registry = registry_of(source_options(given["registry"])) if given["registry"] else None
    with connected() as cluster:
        write_settings(cluster, path, top, registry)


def _given_settings(file: Path | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings on the command line: all settings of an ingest, or those that override a file."""
    top = {name: given[name] for name in _SETTINGS if given[name]}
    for name in ("into", "checkpoint"):
        # Resolve relative paths here: Spark's processes may have another working directory.
        if name in top and ("/" in top[name] or name == "checkpoint"):
            top[name] = absolute(top[name])
    brokers, of_registry = split_settings(given_options())
    if url := of_registry.pop("schema.registry.url", None):
        top.setdefault("registry", url)
    if of_registry:
        top["registry_options"] = of_registry
    if of_tables := {name: given[name] for name in _DEFAULTS if given[name]}:
        top["defaults"] = of_tables
    if file is not None:
        return top | ({"kafka": brokers} if brokers else {})
    into = top.get("into", "")
    if "checkpoint" not in top and ("/" in into or ":" in into):
        top["checkpoint"] = f"{into.rstrip('/')}/_checkpoint"
    elif "checkpoint" not in top and into:
        raise IngestError(
            f"--into {into} is a schema, which cannot hold a checkpoint: give --checkpoint FOLDER. If you mean a folder, write "
            f"./{into}."
        )
    return top | {"kafka": {name.removeprefix("kafka."): value for name, value in kafka_options().items()}}


def _begin_session() -> SessionStart:
    if "SPARK_REMOTE" in os.environ:
        raise click.UsageError(
            "SPARK_REMOTE names a Spark Connect server, but this command needs a classic session: unset it, or start the ingest "
            "from a program with Ingest(…).start(spark)."
        )
    return SessionStart("ingest")


def _spark(settings: Settings, start: SessionStart) -> SparkSession:
    spark = start.session()
    if not settings.is_folder and "." not in settings.into and _forgets_tables(spark):
        raise click.UsageError(
            f"into is the schema {settings.into}, but this Spark has no metastore and would lose its tables: for a "
            f"folder of tables write ./{settings.into}."
        )
    return spark


def _forgets_tables(spark: SparkSession) -> bool:
    return spark.conf.get("spark.sql.catalogImplementation", "in-memory") == "in-memory"


def _plan(settings: Settings) -> int:
    run = _ingest_of(settings)
    planned = run.plan()
    checked = ["where, select and expect"] * run.planner.has_sql(planned) + [
        "MERGE"
    ] * run.planner.merges_by_catalog_of_session
    spark = None
    if checked:
        with working(f"starting Spark to check {' and '.join(checked)}", with_spark=True):
            spark = _spark(settings, _begin_session())
            try:
                planned = run.planner.with_sql(spark, planned)
            except IngestError as error:  # an expression is not valid SQL
                raise click.ClickException(str(error)) from error
    planned = run.planner.with_stored_columns(planned)
    if output().json:
        rows = [
            {**asdict(table), "table": settings.place(table.table), "lost_readers": run.planner.lost_readers(table)}
            for table in planned
        ]
        for row in rows:
            del row["failure"]
        output().document({"starts": settings.starting_offsets, "tables": rows})
    for plan in () if output().json else planned:
        table = settings.destination(plan.key).table
        schema = "" if plan.schema_id is None else f", schema {plan.schema_id}"
        way = "files by tasks" if plan.by_spark is None else f"files by Spark: {plan.by_spark}"
        click.echo(f"{plan.topic} -> {settings.place(plan.table)}  {plan.mode}, {plan.format}{schema}, {way}")
        lines = [] if table.subset_text is None else [table.subset_text]
        lines += [f"select {', '.join(table.select)}"] if table.select else []
        lines += [plan.columns, *(f"expect {name}: {text}" for name, text in plan.expect.items())]
        shown = lines if plan.mistake is None else [*lines[:1], click.style(plan.mistake, fg="red")]
        for line in filter(None, shown):
            click.echo(f"    {line}")
        for line in run.planner.lost_readers(plan):
            click.echo(f"    {click.style(line, fg='yellow')}")
    topics = len({table.topic for table in planned})
    starts = (
        "the next start continues where the tables end"
        if run.planner.has_started
        else f"the first start begins at {settings.starting_offsets}"
    )
    output().message(f"{counted(topics, 'topic')} for {settings.topics}; {starts}.")
    try:
        check_libraries(settings)
    except MissingLibraryError as error:  # the ingest may run on another machine
        output().message(f"Before it can run here: {error.message}")
    mistakes = [*run.planner.folder_mistakes(planned), *run.planner.catalog_mistakes(spark)]
    for mistake in mistakes:
        output().message(f"Before it can run here: {mistake}.")
    return FAILED if mistakes or not planned or any(table.mistake for table in planned) else 0


def _verify(settings: Settings) -> int:
    with working("comparing small tables"):
        topics = _ingest_of(settings).topics()
        from pykafka_wire.ingest.proof.small_tables import proofs_of_small_tables

        destinations = [destination for topic in topics for destination in settings.destinations(topic)]
        needs_spark = any(destination.table.merges or destination.table.is_subset for destination in destinations)
        known = {} if needs_spark else proofs_of_small_tables(settings, topics)
    if destinations and all(destination.key in known for destination in destinations):
        for proof in known.values():
            print_outcome(proof)
        return 0
    with working("starting Spark", with_spark=True) as progress:
        spark = _spark(settings, _begin_session())
        from pykafka_wire.ingest.proof.verification import verify

        shown = [destination.topic for destination in destinations]
        return show_proofs(spark, verify(spark, settings, topics, known), progress, shown)


def show_proofs(spark: SparkSession, proofs: Iterable[Proof], progress: Working, topics: Sequence[str] = ()) -> int:
    """Print each proof as soon as it is made; return the exit code.

    Args:
        topics: the topics that are compared one after the other, if known.

    Raises:
        click.ClickException: nothing was compared.
    """
    well = _print_outcomes(
        spark, proofs, progress, [f"comparing {topic} ({n} of {len(topics)})" for n, topic in enumerate(topics, 1)]
    )
    if not well:
        raise click.ClickException("nothing was compared: no topic matches.")
    return 0 if well and all(well) else FAILED


def _replay(settings: Settings) -> int:
    from pykafka_wire.ingest.tables.stored_rejects import are_none_without_spark

    check_free(settings.checkpoint)
    well: list[bool] = []
    if not are_none_without_spark(settings):
        with working("starting Spark", with_spark=True) as progress:
            spark = _spark(settings, _begin_session())
            from pykafka_wire.ingest.proof.replay import replay_rejects

            # Two replays would land the same records.
            with _holding_lease(spark, settings):
                well = _print_outcomes(spark, replay_rejects(spark, settings), progress, ["reading rejects again"])
    if not well:
        output().message(f"There are no rejects in {settings.place(settings.rejects)}.")
    return 0 if all(well) else FAILED


@contextlib.contextmanager
def _holding_lease(spark: SparkSession, settings: Settings) -> Iterator[None]:
    """Hold the lease of the ingest's checkpoint. Raises IngestError if another process holds it."""
    from pykafka_wire.checkpoints.spark_files import default_file_system

    lease = CheckpointLease.take(settings.in_file_system(default_file_system(spark)).checkpoint, lambda: True)
    try:
        yield
    finally:
        if lease is not None:
            lease.release()


def _print_outcomes(
    spark: SparkSession, outcomes: Iterable[Proof | Replay], progress: Working, steps: Sequence[str]
) -> list[bool]:
    """Print each outcome as soon as it is known; return whether each is right."""
    from pykafka_wire.ingest.spark.progress import TaskRecords, describe_jobs

    tasks = TaskRecords(spark)
    texts = chain(steps, repeat(steps[-1] if steps else "comparing the table with its topics"))
    well: list[bool] = []
    results = iter(outcomes)
    while True:
        text = next(texts)
        describe_jobs(spark, text)
        progress.show(text, steps=partial(_progress_of, tasks, text))
        result = next(results, None)
        if result is None:
            return well
        well.append(result.is_right)
        print_outcome(result)


def print_outcome(outcome: Proof | Replay) -> None:
    """Print a result as one line."""
    click.echo(json.dumps(asdict(outcome), default=str) if output().json else str(outcome))


def _progress_of(tasks: TaskRecords, text: str) -> Steps:
    n_records, n_done, n_tasks = tasks.look().get(text, (0, 0, 0))
    return Steps(n_records=n_records, n_done=n_done, n_all=n_tasks)


def _run(settings: Settings, screen: IngestScreen, options: Mapping[str, Any] | None, *, once: bool) -> int:
    """Run until the query ends, or until Ctrl-C. Return the exit code, which shows whether any table is retrying or stopped.

    Args:
        options: the settings, if the command line has given all of them.
    """
    with screen:
        start = _begin_session()
        ended = _land(_ingest_of(settings), start, screen, options, once=once)
        if ended.error is not None:
            raise ended.error
    _summarise(settings, screen, ended)
    if any(table.trouble is not None for table in ended.seen.tables):
        return FAILED
    return INTERRUPTED if once and ended.is_cut else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ended:
    """How a run ended: ``is_cut``, whether a signal ended it; ``signal``, the name of the first signal, empty without one."""

    seen: IngestStatus
    is_cut: bool
    signal: str
    seconds: float
    error: IngestError | None


def _land(
    run: Ingest, start: SessionStart, screen: IngestScreen, options: Mapping[str, Any] | None, *, once: bool
) -> _Ended:
    screen.phase(f"looking up topics for {run.settings.topics}")
    planned = run.checked_plan(on_this_machine=True)
    screen.phase(f"starting Spark for {counted(len(planned), 'topic')}")
    from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]

    from pykafka_wire.ingest.spark.errors import sentence_of

    started = time.monotonic()
    try:
        spark = _spark(run.settings, start)  # may set its own handler for Ctrl-C
        with _interrupts(screen) as interruption:
            screen.watch(run.status)
            screen.phase("opening the tables, and starting the query")
            query = run.start(spark, once=once, planned=planned)
            screen.running()
            # Written only after the start: a refused start must not overwrite the file of the ingest that owns the tables.
            if options is not None and (kept := keep_settings(options)):
                screen.line(kept)
            if run.page is not None:
                screen.line(f"page: {run.page.url}")
            said, tell_at = _Said(), 0.0
            while query.isActive and not interruption.wait(1.0):
                if (begun := time.monotonic()) >= tell_at:
                    said.tell(query, screen)
                    # The status of a thousand tables takes a while: the landing needs the time more.
                    tell_at = begun + min(30.0, 20 * (time.monotonic() - begun))
            is_cut = _end(query, lambda: said.tell(query, screen))
            said.tell(query, screen)
            seen = screen.look()
            run.close()
        assert seen is not None
        error = query.exception()
    except (Py4JNetworkError, ConnectionRefusedError, ConnectionResetError) as lost:
        screen.keep_output()
        raise IngestError(
            f"Spark's Java process has ended ({lost}): by the same signal, or because it ran out of memory. No data is lost: "
            "start the ingest again."
        ) from lost
    return _Ended(
        seen=seen,
        is_cut=is_cut,
        signal=interruption.signal,
        seconds=time.monotonic() - started,
        error=None if error is None else IngestError(sentence_of(error)),
    )


class _Said:
    """Prints a line for each micro-batch with records, and for each failure of a table, if there is no screen."""

    def __init__(self) -> None:
        self._batch: int | None = None
        self._rows = self._rejects = 0

    def tell(self, query: StreamingQuery, screen: IngestScreen) -> None:
        if screen.is_live:
            return
        screen.tell_troubles()
        progress = query.lastProgress
        if progress is None or progress["batchId"] == self._batch:
            return
        seen = screen.look()
        assert seen is not None
        self._batch = progress["batchId"]
        rows, rejects = seen.rows, sum(table.rejects for table in seen.tables)
        n_rows, n_rejects = rows - self._rows, rejects - self._rejects
        self._rows, self._rejects = rows, rejects
        if n_rows or n_rejects:
            seconds = progress["durationMs"].get("triggerExecution", 0) / 1000
            screen.line(
                f"micro-batch {self._batch}: {counted(n_rows, 'row')} in {seconds:.1f} s, {counted(n_rejects, 'reject')}; "
                f"{seen.lag or 0} behind"
            )


def _summarise(settings: Settings, screen: IngestScreen, ended: _Ended) -> None:
    """Print the result of a run: a table and a sentence; with --json one line for each table."""
    seen = ended.seen
    if output().json:
        for table in sorted(seen.tables, key=lambda table: table.key):
            click.echo(json.dumps(table.document()))
        return
    screen.summary()
    n_stopped, n_retrying = seen.states[TableState.STOPPED], seen.states[TableState.RETRYING]
    n_rejects = seen.held_rejects
    parts = [
        f"{seen.rows:,} rows landed in {duration(ended.seconds)}",
        f"{counted(n_rejects, 'reject')} in {settings.place(settings.rejects)}" if n_rejects else "no rejects",
    ]
    if n_stopped:
        parts.append(f"{counted(n_stopped, 'table')} stopped")
    if n_retrying:
        parts.append(f"{counted(n_retrying, 'table')} retrying")
    end = (
        f"Ended after the running micro-batch, by {ended.signal}" if ended.is_cut else "Finished: nothing left to land"
    )
    if n_stopped + n_retrying and not ended.is_cut:
        end = f"Finished: {counted(n_stopped + n_retrying, 'table')} could not be landed"
    screen.end(f"{end}: {'; '.join(parts)}.")


def _end(query: StreamingQuery, tell: Callable[[], None]) -> bool:
    """Stop the query after the running micro-batch. In a backlog the next micro-batch would begin at once.

    Args:
        tell: called while waiting for the micro-batch.

    Returns whether the query was still running.
    """

    def newest() -> str | None:
        progress = query.lastProgress
        return None if progress is None else progress["timestamp"]

    before = newest()
    while query.isActive and query.status["isTriggerActive"] and newest() == before:
        tell()
        time.sleep(0.1)
    is_cut = query.isActive
    query.stop()
    return is_cut


class _Interruption:
    """Receives Ctrl-C and SIGTERM.

    Attributes:
        signal: the name of the first signal.
    """

    def __init__(self) -> None:
        self.signal = ""
        self._came = threading.Event()

    def come(self, number: int) -> bool:
        """Record a signal; return whether it is the first one."""
        is_first = not self._came.is_set()
        self.signal = self.signal or signal.Signals(number).name
        self._came.set()
        return is_first

    def wait(self, seconds: float) -> bool:
        """Wait for a signal, at most this long; return whether one came."""
        return self._came.wait(seconds)


@contextlib.contextmanager
def _interrupts(screen: IngestScreen) -> Iterator[_Interruption]:
    """Yield an object that Ctrl-C and SIGTERM set. A second signal ends the process.

    Spark's own handler of Ctrl-C would cancel all jobs, so that the running micro-batch would fail.
    """
    interruption = _Interruption()

    def ask(number: int, _: Any) -> None:  # Any: the interrupted code's frame
        if not interruption.come(number):
            if os.isatty(1):
                os.write(1, _SHOW_CURSOR)
            os._exit(INTERRUPTED)
        ending = _ENDING.format(interruption.signal)
        if screen.is_live:
            screen.phase(ending)
        else:  # not through a console, which the interrupted code may be using
            os.write(2, f"{ending}. Press Ctrl-C again to end at once; no data is lost either way.\n".encode())

    is_main = threading.current_thread() is threading.main_thread()  # a platform may run a job in another thread
    before = {number: signal.signal(number, ask) for number in ((signal.SIGINT, signal.SIGTERM) if is_main else ())}
    try:
        yield interruption
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
