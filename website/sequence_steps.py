"""Sequence diagrams as lists of their steps: a phone is too narrow for the lanes of a diagram."""

from __future__ import annotations

import html
import re
from typing import Final

_DIAGRAM: Final = re.compile(r"^```mermaid\nsequenceDiagram\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PARTICIPANT: Final = re.compile(r"participant (\w+) as (.+)")
_MESSAGE: Final = re.compile(r"(\w+)--?>>(\w+): (.+)")
_NOTE: Final = re.compile(r"Note over [\w,]+: (.+)")
_BLOCK: Final = re.compile(r"(alt|else|loop) (.+)")
_BLOCK_TEXTS: Final = {"alt": "If {}:", "else": "Or if {}:", "loop": "For {}:"}


def with_steps(markdown: str) -> str:
    """A page with a list behind each sequence diagram; the site's styles show one of the two."""
    return _DIAGRAM.sub(lambda found: f"{found[0]}\n\n{_steps(found[1])}", markdown)


def _steps(diagram: str) -> str:
    """Raises ValueError for a line that is none of those known here: no step may be missing on a phone."""
    names: dict[str, str] = {}
    found: list[str] = []
    number, depth = 0, 0
    for line in map(str.strip, diagram.splitlines()):
        if participant := _PARTICIPANT.fullmatch(line):
            names[participant[1]] = participant[2]
        elif message := _MESSAGE.fullmatch(line):
            number += 1
            sender, receiver = (html.escape(names[each]) for each in message.group(1, 2))
            way = sender if sender == receiver else f"{sender} → {receiver}"
            found.append(_step(depth, f"{number}. <strong>{way}</strong>: {html.escape(message[3])}"))
        elif note := _NOTE.fullmatch(line):
            found.append(_step(depth, f"<em>{html.escape(note[1].replace('<br/>', ' '))}</em>"))
        elif block := _BLOCK.fullmatch(line):
            found.append(_step(depth - (block[1] == "else"), _BLOCK_TEXTS[block[1]].format(html.escape(block[2]))))
            depth += block[1] != "else"
        elif line == "end":
            depth -= 1
        elif line != "autonumber":
            raise ValueError(f"a line of a sequence diagram that website/sequence_steps.py does not know: {line!r}")
    return '<div class="sequence-steps">\n' + "\n".join(found) + "\n</div>"


def _step(depth: int, text: str) -> str:
    return f'<p style="margin-left: {depth}em">{text}</p>'
