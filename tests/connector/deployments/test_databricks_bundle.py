"""The asset bundle in conf/databricks against the JSON schema that Databricks publishes with its command line.

The schema is Databricks' own and no part of this project: it is downloaded, or read from the file that
PYKAFKA_WIRE_BUNDLE_SCHEMA names.
"""

from __future__ import annotations

import copy
import json
import os
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

BUNDLE = Path(__file__).resolve().parents[3] / "conf" / "databricks" / "databricks.yml"
PUBLISHED = "https://raw.githubusercontent.com/databricks/cli/v1.13.0/bundle/schema/jsonschema.json"

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def schema() -> Any:
    named = os.environ.get("PYKAFKA_WIRE_BUNDLE_SCHEMA")
    if named:
        text = Path(named).read_text(encoding="utf-8")
    else:
        with urllib.request.urlopen(PUBLISHED, timeout=60) as answer:
            text = answer.read().decode()
    # Python's regular expressions know no Unicode classes.
    text = text.replace(r"[\\p{L}\\p{N}]", "[a-zA-Z0-9]").replace(r"\\p{L}", "[a-zA-Z]")
    found = json.loads(text)
    return jsonschema.validators.validator_for(found)(found)


def test_the_bundle_is_valid(schema: Any) -> None:
    errors = schema.iter_errors(yaml.safe_load(BUNDLE.read_text(encoding="utf-8")))
    assert [(list(error.absolute_path), error.message) for error in errors] == []


def _misspelled_key(bundle: Any) -> None:
    job = bundle["resources"]["jobs"]["stream_orders"]
    job["tasks"][0]["job_cluster_kye"] = job["tasks"][0].pop("job_cluster_key")


def _text_for_a_number(bundle: Any) -> None:
    bundle["resources"]["jobs"]["stream_orders"]["job_clusters"][0]["new_cluster"]["num_workers"] = "two"


@pytest.mark.parametrize("damage", [_misspelled_key, _text_for_a_number])
def test_the_schema_finds_mistakes(damage: Callable[[Any], None], schema: Any) -> None:
    bundle = copy.deepcopy(yaml.safe_load(BUNDLE.read_text(encoding="utf-8")))
    damage(bundle)
    assert not schema.is_valid(bundle)
