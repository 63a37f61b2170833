"""Which folders are tables: Delta's own errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pykafka_wire.errors import IngestError
from pykafka_wire.ingest.settings import Settings
from pykafka_wire.ingest.tables import LandedTable


def test_a_folder_is_no_table_only_if_delta_says_so(spark: Any, tmp_path: Path) -> None:
    session = spark.newSession()
    session.range(1).write.format("delta").save(str(tmp_path / "table"))
    (tmp_path / "empty").mkdir()
    (tmp_path / "other" / "files").mkdir(parents=True)
    (tmp_path / "file").write_text("a file")
    settings = Settings(checkpoint="c", kafka={"bootstrap.servers": "b:1"}, topics="t", into=str(tmp_path))

    def exists(name: str) -> bool:
        return LandedTable(session, settings, name).exists

    assert [name for name in ("table", "missing", "empty", "other", "file") if exists(name)] == ["table"]
    session.conf.set("spark.sql.runSQLOnFiles", "false")  # Spark's error is that of a session without Delta
    with pytest.raises(IngestError, match=r"cannot look for the table .*table`: start the session with Delta"):
        exists("table")
