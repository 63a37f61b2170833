"""The places of checkpoints, tables and other folders: what a path or a URI names, for Spark, for pyarrow and for deltalake."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from pykafka_wire.errors import OptionError
from pykafka_wire.wire.masking import without_secrets

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

#: At least two letters, so that a Windows drive is none.
_SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]+):", re.IGNORECASE)
#: Hadoop's names of S3, which Spark users write; pyarrow knows the first only.
_S3: Final = ("s3", "s3a", "s3n")
#: Where Databricks mounts its own file system on the driver; Unity Catalog's volumes are mounted at their own path.
_DBFS_MOUNT: Final = "/dbfs"
_VOLUMES: Final = "/Volumes/"


def local_folder(path: str) -> str | None:
    """Return the folder of a local path, ``file:/…`` or ``dbfs:/…``; None for any other URI."""
    scheme = _SCHEME.match(path)
    if scheme is None:
        return str(Path(path).expanduser().absolute())
    rest = path[scheme.end() :]
    if scheme[1].lower() == "dbfs":
        inside = "/" + rest.lstrip("/")
        return inside if inside.startswith(_VOLUMES) else _DBFS_MOUNT + inside
    if scheme[1].lower() == "file":  # file:/path, as Hadoop prints it, too; Hadoop escapes no blanks, other programs do
        return str(Path(unquote(re.sub(r"^//[^/]*", "", rest))).absolute())
    return None


def unescaped(path: str) -> str:
    """Return a place as Hadoop takes it, which does not read escapes: ``file:///my%20lake`` names the folder ``my lake``."""
    folder = local_folder(path)
    if "%" not in path or folder is None or _SCHEME.match(path) is None or path.lower().startswith("dbfs:"):
        return path
    return folder if "%" in folder else f"file:{folder}"


def qualified(path: str, default: str) -> str:
    """Return a path as Spark takes it whose default file system (``fs.defaultFS``) is the URI ``default``.

    What has a file system of its own stays as it is, and so do paths where the default one is the machine's.
    """
    if (
        _SCHEME.match(path)
        or not path.startswith("/")
        or path.startswith(_VOLUMES)
        or default.lower().startswith("file:")
    ):
        return path
    return default.rstrip("/") + path


def is_spark_s_to_resolve(path: str) -> bool:
    """Return whether a path names no file system, and Hadoop's settings may have another one for it than this machine's."""
    return _SCHEME.match(path) is None and not path.startswith(_VOLUMES) and "HADOOP_CONF_DIR" in os.environ


def stored_uri(uri: str) -> str:
    """Return a URI of an object store by the scheme that libraries beside Hadoop know."""
    scheme, _, rest = uri.partition(":")
    return f"{'s3' if scheme.lower() in _S3 else scheme.lower()}:{rest}"


def table_uri(folder: str) -> str:
    """Return the URI of a local path, ``file:/…`` or another URI, as the library deltalake takes it."""
    local = local_folder(folder)
    return stored_uri(folder) if local is None else Path(local).as_uri()


def open_folder(path: str, option: str) -> tuple[FileSystem, str]:
    """Return the file system and the folder of a local path or a URI, such as ``file:/…``, ``s3://…``, ``abfss://…``, ``gs://…``.

    Args:
        option: the option's name, for errors.

    Raises:
        OptionError: a URI that pyarrow does not know.
    """
    import pyarrow as pa
    import pyarrow.fs  # slow to load in every worker, and hardly any needs it

    local = local_folder(path)
    if local is not None:
        return pyarrow.fs.LocalFileSystem(), local
    uri = stored_uri(path)
    try:
        filesystem, folder = pyarrow.fs.FileSystem.from_uri(uri)
    except (OSError, ValueError, pa.ArrowException) as error:
        shown = without_secrets(path)
        text = str(error).replace(path, shown).replace(uri, shown)
        # Not chained: pyarrow's own text may quote the URI, credentials included, and a traceback would show it.
        raise OptionError(
            f"{option} is {shown!r}, which pyarrow cannot open ({text}): use a local folder, or a URI such as file:///…, "
            "s3://… or gs://…."
        ) from None
    return filesystem, folder.rstrip("/")
