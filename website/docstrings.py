"""mkdocstrings loads this extension: docstrings without Sphinx's roles."""

from __future__ import annotations

from typing import Any

import griffe

from website.roles import plain


class Roles(griffe.Extension):
    """Applies :func:`plain` to every docstring that is loaded."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:  # Any: griffe's further arguments
        if obj.docstring:
            obj.docstring.value = plain(obj.docstring.value)
