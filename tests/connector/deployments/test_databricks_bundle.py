"""The asset bundle in conf/databricks against what Databricks publishes: the JSON schema of its command line, its Python models.

Both are Databricks' own and no part of this project. The models come from the package index; the schema is downloaded from the
forge, or read from the file that PYKAFKA_WIRE_BUNDLE_SCHEMA names.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

BUNDLE = Path(__file__).resolve().parents[3] / "conf" / "databricks" / "databricks.yml"
PUBLISHED = "https://raw.githubusercontent.com/databricks/cli/v1.13.0/bundle/schema/jsonschema.json"
MODELS = "databricks-bundles==1.22.1"
#: Reads a job as JSON; it must be the same after the models have read and written it.
READ_BY_MODELS = """
import json, sys
from databricks.bundles.jobs import Job

job = json.load(sys.stdin)
sys.exit(None if Job.from_dict(job).as_dict() == job else "the models have lost something")
"""

pytestmark = pytest.mark.long


def bundle() -> Any:
    return yaml.safe_load(BUNDLE.read_text(encoding="utf-8"))


def _misspelled_key(job: Any) -> None:
    job["tasks"][0]["job_cluster_kye"] = job["tasks"][0].pop("job_cluster_key")


def _text_for_a_number(job: Any) -> None:
    job["job_clusters"][0]["new_cluster"]["num_workers"] = "two"


MISTAKES = [_misspelled_key, _text_for_a_number]


@pytest.fixture(scope="module")
def schema() -> Any:
    named = os.environ.get("PYKAFKA_WIRE_BUNDLE_SCHEMA")
    if named:
        text = Path(named).read_text(encoding="utf-8")
    else:
        try:
            with urllib.request.urlopen(PUBLISHED, timeout=60) as response:
                text = response.read().decode()
        except OSError as error:
            report = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
            report(f"{PUBLISHED} cannot be read: {error}. Set PYKAFKA_WIRE_BUNDLE_SCHEMA to a copy of it.")
    # Python's regular expressions know no Unicode classes.
    text = text.replace(r"[\\p{L}\\p{N}]", "[a-zA-Z0-9]").replace(r"\\p{L}", "[a-zA-Z]")
    found = json.loads(text)
    return jsonschema.validators.validator_for(found)(found)


def test_the_bundle_is_valid_by_the_schema(schema: Any) -> None:
    errors = schema.iter_errors(bundle())
    assert [(list(error.absolute_path), error.message) for error in errors] == []


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_schema_finds_mistakes(mistake: Callable[[Any], None], schema: Any) -> None:
    damaged = bundle()
    mistake(damaged["resources"]["jobs"]["stream_orders"])
    assert not schema.is_valid(damaged)


@pytest.fixture(scope="module")
def read_by_models(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Any], str]:
    """The error of Databricks' models for a job, "" if there is none."""
    folder = tmp_path_factory.mktemp("models")
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder), MODELS]
    subprocess.run(install, check=True, timeout=600)

    def read(job: Any) -> str:
        return subprocess.run(
            [sys.executable, "-c", READ_BY_MODELS],
            input=json.dumps(job), env={**os.environ, "PYTHONPATH": str(folder)},
            capture_output=True, text=True, timeout=60, check=False,
        ).stderr  # fmt: skip

    return read


@pytest.mark.parametrize("name", ["stream_orders", "ingest_shop"])
def test_the_job_is_valid_by_the_models(read_by_models: Callable[[Any], str], name: str) -> None:
    assert read_by_models(bundle()["resources"]["jobs"][name]) == ""


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_models_find_mistakes(mistake: Callable[[Any], None], read_by_models: Callable[[Any], str]) -> None:
    job = bundle()["resources"]["jobs"]["stream_orders"]
    mistake(job)
    assert "ValueError" in read_by_models(job)
