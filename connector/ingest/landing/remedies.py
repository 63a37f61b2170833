"""What the ingest does about an error of a table: attempts it again, at once or later; waits for a change; or looks for a record
that has caused the error.

Decides by the codes of errors (:mod:`~pykafka_wire.ingest.spark.errors`). Each table format lists its codes by their
meaning (:class:`~pykafka_wire.ingest.tables.format.TableErrors`).
"""

from __future__ import annotations

import builtins
import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from pyspark.errors import AnalysisException

from pykafka_wire.errors import (
    ColumnConflictError,
    DataLossError,
    IngestError,
    MissingLibraryError,
    OffsetsError,
    OptionError,
    SchemaError,
    UnfitRecordsError,
)
from pykafka_wire.ingest.spark.errors import WRAPPING_ERRORS, code_of, is_name_too_long, raised_in, sentence_of
from pykafka_wire.ingest.tables.files_table import TableChangedError
from pykafka_wire.ingest.tables.format import TableErrors
from pykafka_wire.ingest.tables.position import AlreadyLandedError

#: Codes of errors for a topic that the brokers do not have, and for records that they no longer have.
UNKNOWN_TOPIC: Final = "PYKAFKA_WIRE_UNKNOWN_TOPIC"
DATA_LOSS: Final = DataLossError.code
#: Errors that mean "another program has committed to the table", whatever its format.
_CONFLICTS: Final = frozenset({AlreadyLandedError.__name__, TableChangedError.__name__})
#: Spark's conditions of an expression that fails for a record's values.
_VALUE_ERRORS: Final = frozenset(
    {
        "ARITHMETIC_OVERFLOW", "CANNOT_PARSE_TIMESTAMP", "CAST_INVALID_INPUT", "CAST_OVERFLOW", "CAST_OVERFLOW_IN_TABLE_INSERT",
        "DIVIDE_BY_ZERO", "INVALID_ARRAY_INDEX", "INVALID_ARRAY_INDEX_IN_ELEMENT_AT", "NUMERIC_VALUE_OUT_OF_RANGE",
        "REMAINDER_BY_ZERO", "USER_RAISED_EXCEPTION",
    }
)  # fmt: skip
#: Errors that another attempt meets again, until somebody changes a setting, a schema, the table or the topic.
_PERMANENT_ERRORS: Final = frozenset(
    {
        IngestError.code, ColumnConflictError.code, DATA_LOSS, MissingLibraryError.code, SchemaError.code, OptionError.code,
        OffsetsError.code, UNKNOWN_TOPIC, "PYKAFKA_WIRE_SETTINGS",
    }
)  # fmt: skip
#: Errors of Spark's analysis that another attempt may not meet: a table that was dropped is made again.
_TRANSIENT_ANALYSIS_ERRORS: Final = frozenset({"PATH_NOT_FOUND", "TABLE_OR_VIEW_NOT_FOUND"})
#: Errors of networks, services, permissions, disks and memory, in Python and Java libraries, by parts of their class names.
_ENVIRONMENT_ERRORS: Final = re.compile(
    r"Abfs|Access|Amazon|Auth|Aws|AWS|Azure|Block|Boto|Broken|Client|Closed|Commit|Connect|Credential|Database|Denied|Disk|EOF"
    r"|Executor|Fetch|FileAlready|FileNotFound|FileSystem|Forbidden|Google|HTTP|Http|Host|IOE|IOError|Interrupt|Lost|Memory"
    r"|MetaException|Network|NoSuchFile|OSError|Operational|Permission|Py4J|REST|RPC|Remote|Rpc|S3|SafeMode|Sdk|Server|Service"
    r"|Shuffle|Socket|Space|Standby|Storage|TException|TTransport|Throttl|Timeout|TimedOut|Unavailable|URL|^SQL\w*Exception"
)
#: Python packages that call services and stores: no record causes their errors.
_CLIENTS: Final = frozenset(
    {
        "adlfs", "aiohttp", "azure", "boto3", "botocore", "fsspec", "gcsfs", "google.api_core", "google.auth", "google.cloud",
        "requests", "s3fs", "sqlalchemy", "urllib3",
    }
)  # fmt: skip
_PYTHON_ENVIRONMENT_ERRORS: Final = frozenset(
    error.__name__
    for error in vars(builtins).values()
    if isinstance(error, type) and issubclass(error, OSError | MemoryError)
)


class Remedy(Enum):
    """How the ingest reacts to an error of one table."""

    RETRY_NOW = "another attempt at once: another program has committed meanwhile"
    RETRY_LATER = "another attempt after a pause"
    CHANGE = "no attempt before a setting, a schema, the table or the topic has changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An error of one table, with its code, sentence and remedy."""

    code: str
    sentence: str
    remedy: Remedy

    @classmethod
    def of(cls, error: Exception, known: TableErrors) -> Failure:
        """Return the failure of a table, whose format raises the ``known`` errors."""
        return cls(code=code_of(error), sentence=sentence_of(error, known.advice), remedy=remedy_of(error, known))


def remedy_of(error: Exception, known: TableErrors) -> Remedy:
    """Return the remedy of an error. An unknown error is retried later.

    Args:
        known: the errors of the table's format.
    """
    code = code_of(error)
    if code in _CONFLICTS or code in known.conflicts:
        return Remedy.RETRY_NOW
    if code in _PERMANENT_ERRORS or code in _VALUE_ERRORS or code in known.permanent or code in known.of_values:
        return Remedy.CHANGE
    of_analysis = isinstance(error, AnalysisException) and error.getCondition() not in WRAPPING_ERRORS
    return Remedy.CHANGE if of_analysis and not _is_table_missing(code, known) else Remedy.RETRY_LATER


def reason_of_record(error: Exception, known: TableErrors) -> str | None:
    """Return why a record cannot be landed, if a record may be the cause of the error. Return None for an error of the network, a
    service, a permission, a disk, another program's commit, or the table as a whole.

    Only :mod:`~pykafka_wire.ingest.landing.isolation` proves that the record is the cause: the records around it can be landed.

    Args:
        known: the errors of the table's format.
    """
    code = code_of(error)
    if code in _VALUE_ERRORS or code in known.of_values or isinstance(error, UnfitRecordsError):
        return sentence_of(error)
    if is_name_too_long(error):
        return (
            "a value of a partition column is too long for the name of a folder: choose other columns for partition_by"
        )
    raised = raised_in(error)
    module, _, name = (f"{type(error).__module__}.{code}" if raised is None else raised.partition(":")[0]).rpartition(
        "."
    )
    is_table_error = _is_table_missing(code, known) or remedy_of(error, known) is not Remedy.RETRY_LATER
    is_classified = code.startswith("PYKAFKA_WIRE_") or known.is_own(code) or isinstance(error, OSError)
    is_environment = (
        name in _PYTHON_ENVIRONMENT_ERRORS
        or f"{module}.".startswith(tuple(f"{package}." for package in _CLIENTS | known.modules))
        or _ENVIRONMENT_ERRORS.search(name) is not None
    )
    return None if is_table_error or is_classified or is_environment else sentence_of(error)


def refuses_columns(error: Exception, known: TableErrors) -> bool:
    """Return whether the table or its format does not accept the columns of the rows."""
    is_own = known.is_own(code_of(error)) and remedy_of(error, known) is Remedy.CHANGE
    return is_own or code_of(error) == ColumnConflictError.code


def _is_table_missing(code: str, known: TableErrors) -> bool:
    return code in _TRANSIENT_ANALYSIS_ERRORS or code in known.missing
