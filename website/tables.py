"""Tables for screens of any width: long names may break, and each cell knows its column's heading."""

from __future__ import annotations

import re

_TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
_HEADING = re.compile(r"<th[^>]*>(.*?)</th>", re.DOTALL)
_ROW = re.compile(r"<tr[^>]*>.*?</tr>", re.DOTALL)
_TAG = re.compile(r"<[^>]+>")


def labelled(html: str) -> str:
    """`html` with `data-label` on the cells of tables, but for each row's first cell and for columns without a heading."""
    return _TABLE.sub(lambda found: _labelled_table(found[0]), html)


def _labelled_table(table: str) -> str:
    headings = [_TAG.sub("", heading).strip().replace('"', "&quot;") for heading in _HEADING.findall(table)]

    def row(found: re.Match[str]) -> str:
        cells = found[0].split("<td")
        cells[1:2] = [_breakable(cell) for cell in cells[1:2]]
        labelled = [f' data-label="{heading}"' if heading else "" for heading in headings[1:]]
        return cells[0] + "".join(
            f"<td{labelled[i - 1] if 0 < i <= len(labelled) else ''}{cell}" for i, cell in enumerate(cells[1:])
        )

    return _ROW.sub(row, table)


def _breakable(cell: str) -> str:
    """A long name of a setting may break after its dots."""
    return re.sub(r"<code>[^<]*</code>", lambda code: code[0].replace(".", ".<wbr>"), cell)
