"""What a user reads of an error of ours that Spark reports."""

from __future__ import annotations


def sentence_in(text: str) -> str:
    """The one sentence with our code, after a few lines of Spark's, of which one names this package's code."""
    assert text.count("[PYKAFKA_WIRE_") == 1, text
    lines = text.splitlines()
    (number,) = (number for number, line in enumerate(lines) if "[PYKAFKA_WIRE_" in line)
    assert sum("/pykafka_wire/" in line for line in lines) == 1, text
    assert number <= 9, text
    return lines[number].partition("Error: ")[2]
