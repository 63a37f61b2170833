"""How errors are classified: an error's code, its remedy, and the sentence that a user reads.

Spark's errors have a condition, Java's a class, and ours a code. If our error comes from another process inside an error of Spark,
only its text is left, which begins with the code. Only this module reads the text of an error. All other modules call its
functions, or compare the code that :func:`code_of` returns.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, PySparkException

from pykafka_wire.errors import (
    ConnectorError,
    DataLossError,
    IngestError,
    MissingLibraryError,
    OffsetsError,
    OptionError,
    RegistryError,
    SchemaError,
    UnfitRecordsError,
)
from pykafka_wire.wire.errors import WireError

#: Codes of errors for a topic that the brokers do not have, and for records that they no longer have.
UNKNOWN_TOPIC: Final = "PYKAFKA_WIRE_UNKNOWN_TOPIC"
DATA_LOSS: Final = DataLossError.code
REGISTRY: Final = RegistryError.code
#: Delta's condition for a type that cannot be merged into the table with the features that the table has.
CANNOT_MERGE: Final = "DELTA_FAILED_TO_MERGE_FIELDS"
#: Delta's conditions for a folder that does not exist or holds no table.
NO_TABLE: Final = frozenset({"DELTA_MISSING_DELTA_TABLE", "DELTA_PATH_DOES_NOT_EXIST", "DELTA_TABLE_NOT_FOUND"})
#: Conditions and classes of errors that only wrap another error: they name the call or the task that failed.
_WRAPPING_ERRORS: Final = frozenset(
    {
        "", "FOREACH_BATCH_USER_FUNCTION_ERROR", "PYTHON_DATA_SOURCE_ERROR", "PYTHON_EXCEPTION", "STREAM_FAILED",
        "TASK_WRITE_FAILED", "java.lang.RuntimeException", "java.lang.reflect.InvocationTargetException",
        "java.util.concurrent.ExecutionException", "org.apache.spark.SparkException",
        "org.apache.spark.api.python.PythonException",
    }
)  # fmt: skip
#: Errors that mean "another program has committed to the table": Delta's conditions, and the classes of deltalake, pyiceberg and
#: ours.
_CONFLICTS: Final = frozenset(
    {
        "AlreadyLandedError", "CommitFailedError", "CommitFailedException", "TableChangedError",
        "DELTA_CONCURRENT_APPEND", "DELTA_CONCURRENT_DELETE_DELETE", "DELTA_CONCURRENT_DELETE_READ", "DELTA_CONCURRENT_TRANSACTION",
        "DELTA_CONCURRENT_WRITE", "DELTA_METADATA_CHANGED", "DELTA_PATH_EXISTS", "DELTA_PROTOCOL_CHANGED",
        "DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS", "DELTA_SCHEMA_CHANGED_WITH_VERSION", "DELTA_SCHEMA_CHANGED",
    }
)  # fmt: skip
#: Conditions of an expression or a constraint that fails for a record's values.
_VALUE_ERRORS: Final = frozenset(
    {
        "ARITHMETIC_OVERFLOW", "CANNOT_PARSE_TIMESTAMP", "CAST_INVALID_INPUT", "CAST_OVERFLOW", "CAST_OVERFLOW_IN_TABLE_INSERT",
        "DELTA_NOT_NULL_CONSTRAINT_VIOLATED", "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES", "DIVIDE_BY_ZERO", "INVALID_ARRAY_INDEX",
        "INVALID_ARRAY_INDEX_IN_ELEMENT_AT", "NUMERIC_VALUE_OUT_OF_RANGE", "REMAINDER_BY_ZERO", "USER_RAISED_EXCEPTION",
    }
)  # fmt: skip
#: Errors that another attempt meets again, until somebody changes a setting, a schema, the table or the topic.
_PERMANENT_ERRORS: Final = _VALUE_ERRORS | {
    IngestError.code, DATA_LOSS, MissingLibraryError.code, SchemaError.code, OptionError.code, OffsetsError.code, UNKNOWN_TOPIC,
    "PYKAFKA_WIRE_SETTINGS", "DELTA_CANNOT_MODIFY_APPEND_ONLY", "DELTA_FEATURES_REQUIRE_MANUAL_ENABLEMENT",
}  # fmt: skip
#: Errors of Spark's analysis that another attempt may not meet: a table that was dropped is made again.
_TRANSIENT_ANALYSIS_ERRORS: Final = NO_TABLE | {"PATH_NOT_FOUND", "TABLE_OR_VIEW_NOT_FOUND"}
#: Advice for errors whose own sentence in Delta has none.
_ADVICE: Final = {
    CANNOT_MERGE: ': the table cannot be widened to the type that the newest schema, or "schema" in the settings, gives. Make the '
    'types fit, give the topic another table by "name" in [[table]], or set on_conflict = "divert".'
}
_OURS: Final = re.compile(r"\[(PYKAFKA_WIRE_[A-Z0-9_]+)\]")
#: An error's code and its sentence.
_SENTENCE: Final = re.compile(r"\[([A-Z][A-Z0-9_.]+)\] .*")
#: The error of a Python worker: the line after the frames of a traceback.
_RAISED: Final = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t]+.*\n)*(\S.*)")
_MAX_SHOWN: Final = 2000


#: Errors of networks, services, permissions, disks and memory, in Python and Java libraries, by parts of their class names.
_ENVIRONMENT_ERRORS: Final = re.compile(
    r"Abfs|Access|Amazon|Auth|Aws|AWS|Azure|Block|Boto|Broken|Client|Closed|Commit|Connect|Credential|Database|Denied|Disk|EOF"
    r"|Executor|Fetch|FileAlready|FileNotFound|FileSystem|Forbidden|Google|HTTP|Http|Host|IOE|IOError|Interrupt|Lost|Memory"
    r"|MetaException|Network|NoSuchFile|OSError|Operational|Permission|Py4J|REST|RPC|Remote|Rpc|S3|SafeMode|Sdk|Server|Service"
    r"|Shuffle|Socket|Space|Standby|Storage|TException|TTransport|Throttl|Timeout|TimedOut|Unavailable|URL|^SQL\w*Exception"
)
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
    def of(cls, error: Exception) -> Failure:
        return cls(code=code_of(error), sentence=sentence_of(error), remedy=remedy_of(error))


def code_of(error: BaseException) -> str:
    """Return an error's code: ours, the condition of Spark or Delta up to the first dot, or the class name."""
    if isinstance(error, ConnectorError):
        return error.code
    if isinstance(error, WireError):
        return error.label
    if not isinstance(error, (PySparkException, Py4JJavaError)):
        return type(error).__name__
    conditions = list(_conditions(error))
    if conditions[0] in _WRAPPING_ERRORS and (ours := _OURS.findall(str(error))):
        return str(ours[-1])
    specific = [condition for condition in conditions if condition not in _WRAPPING_ERRORS] or conditions
    code = specific[0] if conditions[0] not in _WRAPPING_ERRORS else specific[-1]
    return code.partition(".")[0] if code.isupper() else code.rpartition(".")[2]


def _conditions(error: PySparkException | Py4JJavaError) -> Iterator[str]:
    """Yield the condition of an error and of each of its causes, or the class name where there is no condition."""
    java: Any = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    if java is None:  # the server of Spark Connect sends conditions only
        yield error.getCondition() or type(error).__name__
        return
    while java is not None:
        name = str(java.getClass().getName())
        methods = {str(method.getName()) for method in java.getClass().getMethods()}
        yield str((java.getCondition() if "getCondition" in methods else None) or name)
        java = java.getCause()


def remedy_of(error: Exception) -> Remedy:
    """Return the remedy of an error. An unknown error is retried later."""
    code = code_of(error)
    if code in _CONFLICTS:
        return Remedy.RETRY_NOW
    of_analysis = isinstance(error, AnalysisException) and error.getCondition() not in _WRAPPING_ERRORS
    return (
        Remedy.CHANGE
        if code in _PERMANENT_ERRORS or (of_analysis and code not in _TRANSIENT_ANALYSIS_ERRORS)
        else Remedy.RETRY_LATER
    )


def reason_of_record(error: Exception) -> str | None:
    """Return why a record cannot be landed, if a record may be the cause of the error. Return None for an error of the network, a
    service, a permission, a disk, another program's commit, or the table as a whole.

    Only :mod:`~pykafka_wire.ingest.landing.isolation` proves that the record is the cause: the records around it can be landed.
    """
    code = code_of(error)
    if code in _VALUE_ERRORS or isinstance(error, UnfitRecordsError):
        return sentence_of(error)
    raised = _RAISED.findall(str(error))
    name = str(raised[-1]).partition(":")[0].rpartition(".")[2] if raised else code
    is_table_error = (
        code in _CONFLICTS | NO_TABLE | _TRANSIENT_ANALYSIS_ERRORS or remedy_of(error) is not Remedy.RETRY_LATER
    )
    is_classified = code.startswith(("PYKAFKA_WIRE_", "DELTA_")) or isinstance(error, OSError)
    is_environment = name in _PYTHON_ENVIRONMENT_ERRORS or _ENVIRONMENT_ERRORS.search(name) is not None
    return None if is_table_error or is_classified or is_environment else sentence_of(error)


def sentence_of(error: BaseException) -> str:
    """Return an error as a sentence for users: with its code, and without Spark's wrapping sentences and tracebacks."""
    text = str(error)
    sentences = [match[0] for match in _SENTENCE.finditer(text) if match[1] not in _WRAPPING_ERRORS]
    ours = [sentence for sentence in sentences if _OURS.match(sentence)]
    if sentences:
        sentence = str([*sentences[:1], *ours[-1:]][-1])[:_MAX_SHOWN]
        condition = _SENTENCE.match(sentence)
        advice = _ADVICE.get(condition[1], "") if condition is not None else ""
        return sentence if sentence.endswith(advice) else sentence.rstrip(".") + advice
    if raised := _RAISED.findall(text):
        return str(raised[-1])[:_MAX_SHOWN]
    if isinstance(error, Py4JJavaError):
        java: Any = error.java_exception
        while java.getCause() is not None:
            java = java.getCause()
        return str(java.toString()).split("\n")[0][:_MAX_SHOWN]
    return f"{type(error).__name__}: {text}".split("\n")[0][:_MAX_SHOWN]
