"""The console command ``pykafka-wire``: shows a cluster, finds connection problems, moves a group's offsets.

Needs the extra ``cli`` (click and rich); no other part of the package needs it. Spark is not needed.
"""

from __future__ import annotations

import sys


def main(arguments: list[str] | None = None) -> None:
    """Run the command with these arguments (default: the process's) and exit; ``pykafka-wire --help`` lists the exit codes."""
    try:
        from pykafka_wire.cli.app import application
    except ModuleNotFoundError as error:
        if error.name not in ("click", "rich"):
            raise
        sys.exit(f"The package {error.name} is missing: pip install 'pykafka-wire[cli]'")
    application(arguments)
