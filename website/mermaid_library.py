"""Mermaid's library for the site, from npm: diagrams are drawn without a request to another host."""

from __future__ import annotations

import functools
import logging
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

_log = logging.getLogger("mkdocs.hooks.mermaid")

VERSION = "11.17.2"
CACHE = Path(__file__).resolve().parents[1] / ".cache" / f"mermaid-{VERSION}.min.js"


@functools.cache
def library() -> Path | None:
    """The library's file; None without npm or without a network: the theme then loads it from a CDN in the reader's browser."""
    if CACHE.exists():
        return CACHE
    if not shutil.which("npm"):
        _log.info("npm is not installed: diagrams will need the network")
        return None
    with tempfile.TemporaryDirectory() as folder:
        command = ["npm", "pack", "--silent", f"mermaid@{VERSION}"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            _log.info("npm pack failed, diagrams will need the network: %s", done.stderr.strip()[-300:])
            return None
        (packed,) = Path(folder).glob("*.tgz")
        with tarfile.open(packed) as archive:
            file = archive.extractfile("package/dist/mermaid.min.js")
            assert file is not None
            CACHE.parent.mkdir(exist_ok=True)
            CACHE.write_bytes(file.read())
    return CACHE
