"""Runs a program with Spark whose output, logs and files a test searches for secrets."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

#: Every Python process of the program logs everything, the clouds' libraries too.
_LOGGING: Final = "import logging, sys\nlogging.basicConfig(level=logging.DEBUG, stream=sys.stderr)\n"
_TIMEOUT_S: Final = 580


def run_searched(
    program: Path, folder: Path, environment: Mapping[str, str] | None = None
) -> tuple[subprocess.CompletedProcess[str], dict[str, str]]:
    """The ended program, and by name the text of its stdout, of its stderr, and of every file in ``folder``.

    The program gets ``folder`` as its argument. Its Spark has the event log, and all of Spark's files, in there.
    """
    site = folder / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(_LOGGING)
    variables = {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": _submit_arguments(folder),
        "PYTHONPATH": str(site),
    }
    done = subprocess.run(
        [sys.executable, str(program), str(folder)],
        env={**os.environ, **variables, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
    )
    texts = {"stdout": done.stdout, "stderr": done.stderr}
    for path in folder.rglob("*"):
        if path.is_file():
            texts[str(path.relative_to(folder))] = path.read_bytes().decode("utf-8", "replace")
    return done, texts


def _submit_arguments(folder: Path) -> str:
    (folder / "events").mkdir()
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file:{folder / 'events'}",
        "spark.local.dir": folder / "local",
        "spark.sql.warehouse.dir": folder / "warehouse",
        "spark.sql.shuffle.partitions": "1",
    }
    conf = " ".join(f"--conf {name}={value}" for name, value in settings.items())
    return f"--master local[2] {conf} pyspark-shell"
