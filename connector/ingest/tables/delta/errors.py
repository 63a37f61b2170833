"""The errors of Delta tables, by their codes: Delta's conditions in Spark, and the classes of the library deltalake."""

from __future__ import annotations

import re
from typing import Final

from pykafka_wire.ingest.tables.format import TableErrors

#: Delta's condition for a type that cannot be merged into the table with the features that the table has.
CANNOT_MERGE: Final = "DELTA_FAILED_TO_MERGE_FIELDS"
#: Delta's conditions for a folder that does not exist or holds no table.
NO_TABLE: Final = frozenset({"DELTA_MISSING_DELTA_TABLE", "DELTA_PATH_DOES_NOT_EXIST", "DELTA_TABLE_NOT_FOUND"})
ERRORS: Final = TableErrors(
    conflicts=frozenset(
        {
            # Of deltalake, and of Delta's commits by a catalog.
            "CommitFailedError", "CommitFailedException",
            "DELTA_CONCURRENT_APPEND", "DELTA_CONCURRENT_DELETE_DELETE", "DELTA_CONCURRENT_DELETE_READ",
            "DELTA_CONCURRENT_TRANSACTION", "DELTA_CONCURRENT_WRITE", "DELTA_METADATA_CHANGED", "DELTA_PATH_EXISTS",
            "DELTA_PROTOCOL_CHANGED", "DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS", "DELTA_SCHEMA_CHANGED_WITH_VERSION",
            "DELTA_SCHEMA_CHANGED",
        }
    ),
    modules=frozenset({"deltalake", "_internal"}),  # the latter is the module of its errors
    missing=NO_TABLE,
    permanent=frozenset({"DELTA_CANNOT_MODIFY_APPEND_ONLY", "DELTA_FEATURES_REQUIRE_MANUAL_ENABLEMENT"}),
    of_values=frozenset(
        {"DELTA_EXCEED_CHAR_VARCHAR_LIMIT", "DELTA_NOT_NULL_CONSTRAINT_VIOLATED", "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"}
    ),
    advice={
        CANNOT_MERGE: ': the table cannot be widened to the type that the newest schema, or "schema" in the settings, gives. Make '
        'the types fit, give the topic another table by "name" in [[table]], or set on_conflict = "divert".'
    },
    quoting=(
        re.compile(r"(\[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES\].*?violated by row with values:).*()", re.DOTALL),
        re.compile(r'(\[DELTA_EXCEED_CHAR_VARCHAR_LIMIT\] Value ").*(" exceeds)', re.DOTALL),
    ),
    prefix="DELTA_",
)  # fmt: skip
