"""Opens folders that an option names: local paths, and URIs of the file systems that pyarrow knows.

Owns how Spark's spellings of a path become pyarrow's, and that no error shows a URI's credentials.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa

from pykafka_wire.errors import OptionError
from pykafka_wire.wire.masking import without_secrets

#: At least two letters, so that a Windows drive is none.
_SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]+):", re.IGNORECASE)
#: Hadoop's names of S3, which Spark users write; pyarrow knows the first only.
_S3: Final = ("s3", "s3a", "s3n")
#: Where Databricks mounts its own file system on the driver; Unity Catalog's volumes are mounted at their own path.
_DBFS_MOUNT: Final = "/dbfs"
_VOLUMES: Final = "/Volumes/"


def open_folder(path: str, option: str) -> tuple[Any, str]:  # Any: pyarrow's file system
    """The file system and the folder of a local path or a URI, such as ``file:/…``, ``s3://…``, ``abfss://…``, ``gs://…``.

    Args:
        option: the option's name, for errors.

    Raises:
        OptionError: a URI that pyarrow does not know.
    """
    import pyarrow.fs  # slow to load in every worker, and hardly any needs it

    found = _SCHEME.match(path)
    if found is None:
        return pyarrow.fs.LocalFileSystem(), str(Path(path).expanduser().absolute())
    scheme = found[1].lower()
    rest = path[found.end() :]
    if scheme == "dbfs":
        inside = "/" + rest.lstrip("/")
        return pyarrow.fs.LocalFileSystem(), inside if inside.startswith(_VOLUMES) else _DBFS_MOUNT + inside
    if scheme == "file":  # file:/path, as Hadoop prints it, too; Hadoop escapes no blanks, other programs do
        inside = unquote(re.sub(r"^//[^/]*", "", rest))
        return pyarrow.fs.LocalFileSystem(), str(Path(inside).absolute())
    if scheme in _S3:
        scheme = "s3"
    try:
        filesystem, folder = pyarrow.fs.FileSystem.from_uri(f"{scheme}:{rest}")
    except (OSError, ValueError, pa.ArrowException) as error:
        shown = without_secrets(path)
        text = str(error).replace(path, shown).replace(f"{scheme}:{rest}", shown)
        # Not chained: pyarrow's own text may quote the URI, credentials included, and a traceback would show it.
        raise OptionError(
            f"{option} is {shown!r}, which pyarrow cannot open ({text}): use a local folder, or a URI such as file:///…, "
            "s3://… or gs://…."
        ) from None
    return filesystem, folder.rstrip("/")
