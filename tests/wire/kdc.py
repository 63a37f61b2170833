"""A real KDC (MIT's) for tests: a realm, its principals and their keytabs. Run, it says what it lacks on this machine."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from pykafka_wire.local.cluster import free_ports

REALM = "TEST.LOCAL"
#: What the tests need besides Java.
PACKAGES = "krb5-kdc, krb5-admin-server, krb5-user, libkrb5-dev and faketime (Debian's names), then gssapi by pip"
PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit", "faketime")
TIMEOUT_S = 30.0
_SBIN = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin", "/usr/local/sbin"))


def missing() -> str:
    """One sentence that says what to install, empty where all is there."""
    lacking = [name for name in PROGRAMS if shutil.which(name, path=_SBIN) is None]
    try:
        import gssapi  # noqa: F401
    except (ImportError, OSError):
        lacking.append("the package gssapi")
    return f"The Kerberos tests need {', '.join(lacking)}: install {PACKAGES}." if lacking else ""


class Kdc:
    """A realm in a folder of its own, with its KDC on a free port of loopback."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (self._port,) = free_ports(1)
        #: How programs and libraries find it.
        self.environment = {"KRB5_CONFIG": str(folder / "krb5.conf"), "KRB5_KDC_PROFILE": str(folder / "kdc.conf")}
        (folder / "kdc.conf").write_text(
            f"[kdcdefaults]\n kdc_listen = 127.0.0.1:{self._port}\n kdc_tcp_listen = 127.0.0.1:{self._port}\n"
            f"[realms]\n {REALM} = {{\n  database_name = {folder}/principal\n"
            f"  key_stash_file = {folder}/stash\n  acl_file = {folder}/acl\n }}\n"
        )
        # Without kdc_timesync a client with a wrong clock is refused, instead of going by the KDC's.
        (folder / "krb5.conf").write_text(
            f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n"
            " dns_canonicalize_hostname = false\n rdns = false\n udp_preference_limit = 1\n kdc_timesync = 0\n"
            f"[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{self._port}\n }}\n"
        )
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")

    def principal(self, name: str) -> Path:
        """A principal with a fresh key; where it is, in a keytab."""
        path = self.folder / f"{name.replace('/', '-')}-{time.monotonic_ns()}.keytab"
        if f"{name}@{REALM}" not in self._run("kadmin.local", "-q", "listprincs"):
            self._run("kadmin.local", "-q", f"addprinc -randkey +requires_preauth {name}")
        self._run("kadmin.local", "-q", f"ktadd -k {path} {name}")
        return path

    @contextmanager
    def serving(self, *wrapper: str) -> Iterator[Kdc]:
        """Responds for as long as the context lasts; `wrapper` is a command that runs it, such as faketime."""
        command = [*wrapper, _program("krb5kdc"), "-n", "-P", str(self.folder / "kdc.pid")]
        with (self.folder / "kdc.log").open("ab") as log:
            process = subprocess.Popen(
                command, env={**os.environ, **self.environment}, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        try:
            deadline = time.monotonic() + TIMEOUT_S
            while True:
                with closing(socket.socket()) as probe:
                    if probe.connect_ex(("127.0.0.1", self._port)) == 0:
                        break
                assert process.poll() is None, (self.folder / "kdc.log").read_text()
                assert time.monotonic() < deadline, "the KDC does not respond"
                time.sleep(0.02)
            yield self
        finally:
            process.terminate()
            process.wait(TIMEOUT_S)

    def kinit(self, principal: str, keytab: Path, cache: Path) -> None:
        self._run("kinit", "-k", "-t", str(keytab), "-c", f"FILE:{cache}", principal)

    def _run(self, name: str, *arguments: str) -> str:
        done = subprocess.run(
            [_program(name), *arguments],
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        assert done.returncode == 0, f"{name}: {done.stderr}"
        return done.stdout


def _program(name: str) -> str:
    found = shutil.which(name, path=_SBIN)
    assert found is not None, f"{name} is not installed"
    return found


if __name__ == "__main__":
    sys.exit(missing() or None)
