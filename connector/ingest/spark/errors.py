"""How errors are read: an error's code, and the sentence that a user reads.

Spark's errors have a condition, Java's a class, and ours a code. If our error comes from another process inside an error of Spark,
only its text is left, which begins with the code. Only this module reads the text of an error. All other modules call its
functions, or compare the code that :func:`code_of` returns. What the ingest does about an error is decided in
:mod:`~pykafka_wire.ingest.landing.remedies`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from pykafka_wire.errors import ConnectorError
from pykafka_wire.wire.errors import WireError

#: Conditions and classes of errors that only wrap another error: they name the call or the task that failed.
WRAPPING_ERRORS: Final = frozenset(
    {
        "", "FOREACH_BATCH_USER_FUNCTION_ERROR", "PYTHON_DATA_SOURCE_ERROR", "PYTHON_EXCEPTION", "STREAM_FAILED",
        "TASK_WRITE_FAILED", "java.lang.RuntimeException", "java.lang.reflect.InvocationTargetException",
        "java.util.concurrent.ExecutionException", "org.apache.spark.SparkException",
        "org.apache.spark.api.python.PythonException",
    }
)  # fmt: skip
_OURS: Final = re.compile(r"\[(PYKAFKA_WIRE_[A-Z0-9_]+)\]")
#: An error's code and its sentence.
_SENTENCE: Final = re.compile(r"\[([A-Z][A-Z0-9_.]+)\] .*")
#: The error of a Python worker: the line after the frames of a traceback.
_RAISED: Final = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t]+.*\n)*(\S.*)")
#: The sentences of the operating system and of HDFS for a name that is too long.
_TOO_LONG: Final = ("File name too long", "maximum path component name limit")
#: The sentence of Hadoop for a local folder that cannot be created, for whatever reason, with its path.
_NO_FOLDER: Final = re.compile(r"Mkdirs failed to create (\S[^\n]*?)(?: \(exists=|$)", re.MULTILINE)
#: The most bytes of a name in most file systems.
_LONGEST_NAME: Final = 255
_MAX_SHOWN: Final = 2000
_NO_ADVICE: Final[Mapping[str, str]] = {}


def code_of(error: BaseException) -> str:
    """Return an error's code: ours, the condition of Spark or Delta up to the first dot, or the class name."""
    if isinstance(error, ConnectorError):
        return error.code
    if isinstance(error, WireError):
        return error.label
    if not isinstance(error, (PySparkException, Py4JJavaError)):
        return type(error).__name__
    conditions = list(_conditions(error))
    if conditions[0] in WRAPPING_ERRORS and (ours := _OURS.findall(str(error))):
        return str(ours[-1])
    specific = [condition for condition in conditions if condition not in WRAPPING_ERRORS] or conditions
    code = specific[0] if conditions[0] not in WRAPPING_ERRORS else specific[-1]
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


def raised_in(error: BaseException) -> str | None:
    """Return the error of a Python worker, as its class and its text, from an error of Spark; None for other errors."""
    raised = _RAISED.findall(str(error))
    return str(raised[-1]) if raised else None


def is_name_too_long(error: BaseException) -> bool:
    """Return whether a file system refuses the name of a file or a folder because of its length."""
    text = str(error)
    names = (name for path in _NO_FOLDER.findall(text) for name in path.split("/"))
    return any(sentence in text for sentence in _TOO_LONG) or any(len(name.encode()) > _LONGEST_NAME for name in names)


def sentence_of(error: BaseException, advice: Mapping[str, str] = _NO_ADVICE) -> str:
    """Return an error as a sentence for users: with its code, and without Spark's wrapping sentences and tracebacks.

    Args:
        advice: what a user can do, by the conditions whose own sentences do not say it.
    """
    text = str(error)
    sentences = [match[0] for match in _SENTENCE.finditer(text) if match[1] not in WRAPPING_ERRORS]
    ours = [sentence for sentence in sentences if _OURS.match(sentence)]
    if sentences:
        sentence = str([*sentences[:1], *ours[-1:]][-1])[:_MAX_SHOWN]
        condition = _SENTENCE.match(sentence)
        added = advice.get(condition[1], "") if condition is not None else ""
        return sentence if sentence.endswith(added) else sentence.rstrip(".") + added
    if (raised := raised_in(error)) is not None:
        return raised[:_MAX_SHOWN]
    if isinstance(error, Py4JJavaError):
        java: Any = error.java_exception
        while java.getCause() is not None:
            java = java.getCause()
        return str(java.toString()).split("\n")[0][:_MAX_SHOWN]
    return f"{type(error).__name__}: {text}".split("\n")[0][:_MAX_SHOWN]
