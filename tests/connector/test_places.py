"""Folders that an option names, by path or URI."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow.fs
import pytest

from pykafka_wire.errors import OptionError
from pykafka_wire.places import open_folder


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        ("/a/b", "/a/b"),
        ("file:/a/b/", "/a/b"),
        ("file:///a/b", "/a/b"),
        ("file://localhost/a/b", "/a/b"),
        ("file:/a b", "/a b"),
        ("file:///a%20b", "/a b"),
        ("dbfs:/a/b", "/dbfs/a/b"),
        ("dbfs:/Volumes/main/default/v", "/Volumes/main/default/v"),
        ("c", os.path.abspath("c")),  # noqa: PTH100
        ("~/c", str(Path.home() / "c")),
    ],
)
def test_local_folders_are_opened(path: str, folder: str) -> None:
    filesystem, found = open_folder(path, "microBatch")
    assert isinstance(filesystem, pyarrow.fs.LocalFileSystem)
    assert found == folder


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n"])
def test_hadoops_names_of_s3_are_known(scheme: str) -> None:
    filesystem, found = open_folder(f"{scheme}://bucket/c?region=eu-west-1&endpoint_override=127.0.0.1:1", "microBatch")
    assert isinstance(filesystem, pyarrow.fs.S3FileSystem)
    assert found == "bucket/c"


def test_azure_and_google_are_known() -> None:
    assert open_folder("abfss://box@account.dfs.core.windows.net/c", "microBatch")[1] == "box/c"
    assert open_folder("gs://anonymous@bucket/c", "microBatch")[1] == "bucket/c"


def test_an_unknown_file_system_is_refused_without_its_credentials() -> None:
    with pytest.raises(OptionError) as raised:
        open_folder("ftp://me:hunter2@host/c", "microBatch")
    assert "microBatch is 'ftp://***@host/c', which pyarrow cannot open" in str(raised.value)
    assert "hunter2" not in str(raised.value)
