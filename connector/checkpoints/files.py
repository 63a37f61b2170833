"""The files of a checkpoint in a file system that pyarrow knows."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from pykafka_wire.errors import OffsetsError
from pykafka_wire.places import open_folder
from pykafka_wire.wire.masking import without_secrets


class LoggedFile(NamedTuple):
    """A file of a checkpoint's log, named after its micro-batch; ``modified_ms`` is since the epoch, None if unknown."""

    batch_id: int
    modified_ms: int | None


class CheckpointFiles(Protocol):
    """The files of one checkpoint."""

    @property
    def shown(self) -> str:
        """Return the checkpoint's folder, without credentials, for errors."""

    def logged(self, folder: str) -> list[LoggedFile]:
        """Return the files of a log, ``offsets`` or ``commits``, whose names are numbers; none where the folder does not exist."""

    def read(self, name: str) -> str | None:
        """Return a file's text, such as ``offsets/12``; None where it does not exist."""


class StoredFiles:
    """A checkpoint in a file system that pyarrow knows."""

    def __init__(self, path: str, option: str) -> None:
        """Take ``path``, local or a URI, and the name of the option that has it.

        Raises:
            OptionError: a URI that pyarrow does not know.
        """
        self._filesystem, self._folder = open_folder(path, option)
        self._shown = without_secrets(path)

    @property
    def shown(self) -> str:
        return self._shown

    def logged(self, folder: str) -> list[LoggedFile]:
        import pyarrow as pa
        import pyarrow.fs  # loaded by then

        selector = pyarrow.fs.FileSelector(f"{self._folder}/{folder}", allow_not_found=True)
        try:
            files = self._filesystem.get_file_info(selector)
        except (OSError, pa.ArrowException) as error:
            raise self._unreadable(folder, error) from None
        return [
            LoggedFile(int(file.base_name), None if file.mtime_ns is None else file.mtime_ns // 1_000_000)
            for file in files
            # Files that Spark has not finished, and Hadoop's checksums, have names of another form.
            if file.type == pyarrow.fs.FileType.File and file.base_name.isascii() and file.base_name.isdigit()
        ]

    def read(self, name: str) -> str | None:
        import pyarrow as pa

        try:
            with self._filesystem.open_input_file(f"{self._folder}/{name}") as file:
                data: bytes = file.read()
        except FileNotFoundError:
            return None
        except (OSError, pa.ArrowException) as error:
            raise self._unreadable(name, error) from None
        return data.decode("utf-8", errors="replace")

    def _unreadable(self, name: str, error: Exception) -> OffsetsError:
        # Not chained: pyarrow's text may quote a URI with credentials.
        text = str(error).replace(self._folder, self._shown)
        return OffsetsError(
            f"{name} of the checkpoint {self._shown} cannot be read ({text}): check the path, the permissions and the "
            "credentials of the driver's Python process."
        )
