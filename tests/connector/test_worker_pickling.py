"""What happens in a Spark worker when it gets a reader of ours: its garbage collections are spared what is loaded by then."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest


@pytest.mark.parametrize("kept", ["1", ""])
def test_only_a_worker_that_spark_keeps_is_spared_collections(kept: str) -> None:
    code = """
        import gc, pickle
        from pyspark import cloudpickle
        from pyspark.sql.types import BinaryType, StructField, StructType
        from pykafka_wire.options.source import parse_source_options
        from pykafka_wire.source.batch_reader import KafkaBatchReader

        options = parse_source_options({"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"}, "batch")
        reader = KafkaBatchReader(options, StructType([StructField("value", BinaryType())]))
        sent = cloudpickle.dumps(reader)
        assert not gc.get_freeze_count()
        pickle.loads(sent)
        frozen = gc.get_freeze_count()
        pickle.loads(sent)
        assert gc.get_freeze_count() == frozen, "done once, or each task would leave its garbage behind"
        print(frozen)
    """
    # Spark sets it for workers that are kept for the next task, after each of which its daemon collects.
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_REUSE_WORKER"}
    if kept:
        environment["SPARK_REUSE_WORKER"] = kept
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment,
    )
    assert found.returncode == 0, found.stderr
    assert (int(found.stdout) > 10_000) is bool(kept)
