"""A Python that has what this one has, but not pykafka-wire: as on a cluster to which only the wheel is sent."""

from __future__ import annotations

import re
import subprocess
import sysconfig
import venv
from pathlib import Path

_LEFT_OUT = re.compile(r"(__editable__[._])?(pyspark_)?pykafka_wire|__pycache__")


def bare_python(folder: Path) -> Path:
    """The executable of a new environment in ``folder``. Its packages are links to this Python's, so that it is ready at once."""
    venv.create(folder, symlinks=True, with_pip=False)
    python = folder / "bin" / "python"
    (site_packages,) = folder.glob("lib/python*/site-packages")
    for installed in Path(sysconfig.get_path("purelib")).iterdir():
        if not _LEFT_OUT.match(installed.name):
            (site_packages / installed.name).symlink_to(installed)
    check = "import importlib.util, pyspark, pyarrow; assert importlib.util.find_spec('pykafka_wire') is None"
    subprocess.run([str(python), "-c", check], check=True, timeout=60, cwd=folder)
    return python
