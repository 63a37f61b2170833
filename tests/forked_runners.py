"""A Python that Spark starts for each streaming query, forked from a process that has imported what each of them imports.

A streaming query of a Python data source has a process of its own, which imports pyspark, pyarrow and this package for a second of
processor time. A server of the tests' session imports them once. The program that Spark takes for Python asks the server to fork,
hands its input and outputs on, and ends when the forked process ends, with its exit code. Whatever else Spark runs by that program
is run by the real Python.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import random
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

RUNNER: Final = "pyspark.sql.streaming.python_streaming_source_runner"
#: Without site-packages, so that Python starts in 20 ms.
_PROGRAM: Final = """#!{python} -IS
import json, os, socket, sys

if sys.argv[1:] == ["-m", {runner!r}]:
    with socket.socket(socket.AF_UNIX) as server:
        server.connect({address!r})
        socket.send_fds(server, [b"."], [0, 1, 2])
        server.sendall(json.dumps([os.getcwd(), dict(os.environ)]).encode())
        server.shutdown(socket.SHUT_WR)
        code = b""
        while received := server.recv(1):
            code = received
    sys.exit(code[0] if code else 1)
os.execv({python!r}, [{python!r}, *sys.argv[1:]])
"""


@contextlib.contextmanager
def forked_runners() -> Iterator[str]:
    """Serve forks, and give the program that Spark takes for Python: the real one where a process with threads must not fork."""
    if sys.platform != "linux":
        yield sys.executable
        return
    with tempfile.TemporaryDirectory(prefix="runners") as folder:  # a short path, as the address of a socket must be
        address, program = f"{folder}/s", Path(folder, "python")
        program.write_text(_PROGRAM.format(python=sys.executable, runner=RUNNER, address=address), encoding="utf-8")
        program.chmod(0o700)
        command = [sys.executable, __file__, address]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
            assert server.stdout is not None
            assert server.stdout.readline() == b"ready\n"
            try:
                yield str(program)
            finally:
                server.kill()


def serve(address: str) -> None:
    """Fork for each connection to a socket, until this process is killed or its parent ends."""
    importlib.import_module(RUNNER)
    del sys.modules[RUNNER]  # it is run as the main module
    for package in ("pykafka_wire.source", "pykafka_wire.source.planning", "pykafka_wire.source.progress"):
        for found in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
            importlib.import_module(found.name)
    gc.freeze()  # forks share the memory of what is imported, as long as no collection writes to it
    signal.signal(signal.SIGCHLD, _reap)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen(64)
        print("ready", flush=True)
        while True:
            connection, _ = server.accept()
            if os.fork() == 0:
                server.close()
                _run(connection)
            connection.close()


def _reap(*_: object) -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _run(connection: socket.socket) -> None:
    """Become the process that a connection asks for, and exit."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _, descriptors, _, _ = socket.recv_fds(connection, 1, 3)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    with connection.makefile("rb") as asked:
        folder, variables = json.load(asked)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    paths = filter(None, variables.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:] = [folder, *paths, *sys.path[1:]]
    random.seed()
    code = 0
    try:
        runpy.run_module(RUNNER, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    connection.sendall(bytes([code % 256]))
    sys.exit(code)  # the connection is closed when the process has ended


if __name__ == "__main__":
    serve(sys.argv[1])
