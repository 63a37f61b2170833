"""Folders of an ingest before Spark starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pykafka_wire.ingest.settings.settings_file import make_settings
from pykafka_wire.ingest.startup.folder_checks import folder_mistakes


def settings(into: Path | str, checkpoint: Path | str) -> Any:
    return make_settings(
        {
            "checkpoint": str(checkpoint), "topics": ".*", "into": str(into), "kafka": {"bootstrap.servers": "b:9092"},
            "defaults": {"format": "json"},
        }
    )  # fmt: skip


def test_folders_that_can_be_made_are_well_and_nothing_stays_of_the_try(tmp_path: Path) -> None:
    assert folder_mistakes(settings(tmp_path / "a" / "lake", tmp_path / "b"), ["orders"]) == []
    assert folder_mistakes(settings("s3://bucket/lake", "s3://bucket/c"), ["orders"]) == []
    assert folder_mistakes(settings("main.shop", tmp_path / "b"), ["orders"]) == []
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_hadoop_s_settings_may_put_elsewhere_is_left_to_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(folder_mistakes(settings("/proc/lake", "/proc/c"), [])) == 2
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop/conf")
    assert folder_mistakes(settings("/proc/lake", "/proc/c"), []) == []
    assert len(folder_mistakes(settings("file:///proc/lake", "file:///proc/c"), [])) == 2


def test_folders_that_cannot_be_written_are_named_all_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    first, second = folder_mistakes(settings("/proc/lake", tmp_path / "file" / "c"), [])
    assert first.startswith("checkpoint is ") and f"{tmp_path / 'file'} is not a folder" in first
    assert second.startswith("into is /proc/lake, but /proc is not writable (")


def test_what_another_program_has_written_is_left_alone(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    lake, checkpoint = tmp_path / "lake", tmp_path / "c"
    # As after a crash between the first rows and the table's properties: its commit alone names the query.
    for name, query in (("foreign", None), ("ours", "q1"), ("others", "q2")):
        metadata = None if query is None else {"userMetadata": json.dumps({"pykafka-wire": {"query": query}})}
        commit = deltalake.CommitProperties(custom_metadata=metadata)
        deltalake.write_deltalake(str(lake / name), pa.table({"a": [1]}), commit_properties=commit)
    (lake / "files").mkdir()
    (lake / "files" / "x.csv").touch()
    (lake / "empty").mkdir()
    checkpoint.mkdir()
    (checkpoint / "metadata").write_text(json.dumps({"id": "q1"}))
    names = ["foreign", "ours", "others", "files", "empty", "new"]
    foreign, others, files = folder_mistakes(settings(lake, checkpoint), names)
    assert f"{lake / 'foreign'} exists, but no ingest has created it" in foreign and "drop" not in foreign
    assert "belongs to another ingest, whose query has the id q2" in others
    assert f"{lake / 'files'} has files that are not a Delta table" in files
