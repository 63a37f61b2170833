"""GSSAPI over TLS against a real KDC and a real broker: `make test-kerberos`.

As for every mechanism, what is wrong must end in one clear error after one attempt.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pykafka_wire.local import LocalCluster
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.errors import SettingsError
from pykafka_wire.wire.settings import ClientSettings
from tests.wire import kdc
from tests.wire.secured import Certificates
from tests.wire.test_security import refusal, works

pytestmark = [pytest.mark.broker, pytest.mark.long]

_MODULE = "com.sun.security.auth.module.Krb5LoginModule required"


class Realm:
    """The KDC, the broker in its realm, and the user's keytab."""

    def __init__(self, running: kdc.Kdc, cluster: LocalCluster, authority: Path, user: Path) -> None:
        self.kdc = running
        self.cluster = cluster
        self.authority = authority
        self.user = user


@pytest.fixture(scope="module")
def _running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    if lacking := kdc.missing():
        pytest.skip(lacking)
    running = kdc.Kdc(tmp_path_factory.mktemp("kdc"))
    certificates = Certificates(running.folder)
    broker, user = running.principal("kafka/localhost"), running.principal("alice")
    line = f'{_MODULE} useKeyTab=true storeKey=true keyTab="{broker}" principal="kafka/localhost@{kdc.REALM}";'
    properties = {
        "listener.name.gss.sasl.enabled.mechanisms": "GSSAPI",
        "listener.name.gss.gssapi.sasl.jaas.config": line,
        # Sessions that end: tickets last for a day.
        "listener.name.gss.gssapi.connections.max.reauth.ms": "2000",
        "sasl.kerberos.service.name": "kafka",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.broker_path),
    }
    cluster = LocalCluster(
        properties=properties,
        listeners={"GSS": "SASL_SSL"},
        jvm_options=[f"-Djava.security.krb5.conf={running.environment['KRB5_CONFIG']}"],
    )
    with running.serving(), cluster:
        yield Realm(running, cluster, certificates.authority_path, user)


@pytest.fixture
def realm(_running: Realm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Realm:
    """The realm, and a user who has no ticket."""
    for name, value in _running.kdc.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path / 'cache'}")
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", str(tmp_path / "none.keytab"))
    return _running


Connect = Callable[..., Cluster]


@pytest.fixture
def connect(realm: Realm, tmp_path: Path) -> Iterator[Connect]:
    """`connect(jaas options, setting=value)`: a client that writes its trace to `tmp_path / "trace"`."""
    made: list[Cluster] = []

    def connect(jaas: str = "", **more: str) -> Cluster:
        options = {
            "bootstrap.servers": realm.cluster.bootstrap("GSS"),
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": str(realm.authority),
            "sasl.mechanism": "GSSAPI",
            "sasl.jaas.config": f"{_MODULE} {jaas};" if jaas else "",
            "trace": str(tmp_path / "trace"),
        }
        named = {name.replace("_", "."): value for name, value in more.items()}
        made.append(Cluster(ClientSettings.from_options(options | named)))
        return made[-1]

    yield connect
    for cluster in made:
        cluster.close()


def by_keytab(path: Path, principal: str = "alice") -> str:
    return f'useKeyTab=true storeKey=true keyTab="{path}" principal="{principal}@{kdc.REALM}"'


def test_a_keytab_in_the_jaas_line(connect: Connect, realm: Realm) -> None:
    assert works(connect(by_keytab(realm.user)))


def test_a_ticket_of_kinits(connect: Connect, realm: Realm, tmp_path: Path) -> None:
    realm.kdc.kinit("alice", realm.user, tmp_path / "cache")
    assert works(connect())
    assert works(connect(f'useTicketCache=true principal="alice@{kdc.REALM}"'))


def test_a_ticket_cache_that_the_line_names(connect: Connect, realm: Realm, tmp_path: Path) -> None:
    realm.kdc.kinit("alice", realm.user, tmp_path / "elsewhere")
    assert connect(f'useTicketCache=true ticketCache="{tmp_path / "elsewhere"}"').metadata.brokers()


def test_an_empty_cache_leaves_it_to_the_keytab(connect: Connect, realm: Realm) -> None:
    assert connect(f"useTicketCache=true {by_keytab(realm.user)}").metadata.brokers()


def test_a_keytab_of_the_environments(connect: Connect, realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", str(realm.user))
    assert connect().metadata.brokers()


def test_a_session_is_renewed_before_it_ends(connect: Connect, realm: Realm, tmp_path: Path) -> None:

    cluster = connect(by_keytab(realm.user))
    trace = tmp_path / "trace"
    deadline = time.monotonic() + 60
    cluster.metadata.brokers()
    while trace.read_text().count("-> SaslHandshake") < 3:
        cluster.metadata.topics(None)
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert "closed" not in trace.read_text(), "the broker ended a session"


def test_no_ticket(connect: Connect, tmp_path: Path) -> None:
    error = refusal(connect(), tmp_path / "trace", attempts="-> SaslHandshake")
    assert "Run kinit, or name a keytab" in str(error)


def test_a_keytab_that_is_not_there(connect: Connect, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"names the keytab .*nowhere\.keytab, which cannot be read"):
        connect(by_keytab(tmp_path / "nowhere.keytab")).metadata.brokers()


def test_a_key_that_has_been_replaced(connect: Connect, realm: Realm, tmp_path: Path) -> None:
    old = realm.kdc.principal("bob")
    realm.kdc.principal("bob")
    error = refusal(connect(by_keytab(old, "bob")), tmp_path / "trace", attempts="-> SaslHandshake")
    assert "export the keytab again" in str(error)


def test_another_service_name_is_refused_at_once(connect: Connect, realm: Realm, tmp_path: Path) -> None:
    cluster = connect(by_keytab(realm.user), sasl_kerberos_service_name="nobody")
    error = refusal(cluster, tmp_path / "trace", attempts="-> SaslHandshake")
    assert "Kerberos for nobody/localhost" in str(error)
    assert "sasl.kerberos.service.name" in str(error)


def test_a_service_that_is_there_and_not_the_brokers(connect: Connect, realm: Realm, tmp_path: Path) -> None:
    """The KDC has a ticket for it, and the broker cannot read it: it reports that, or just closes the connection."""
    realm.kdc.principal("http/localhost")
    cluster = connect(by_keytab(realm.user), sasl_kerberos_service_name="http")
    error = refusal(cluster, tmp_path / "trace", attempts="-> SaslHandshake", most=2)
    assert "refused GSSAPI" in str(error) or "closed the connection twice" in str(error)


def test_clocks_that_differ(connect: Connect, realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kdc").mkdir()
    ahead = kdc.Kdc(tmp_path / "kdc")
    user = ahead.principal("alice")
    monkeypatch.setenv("KRB5_CONFIG", ahead.environment["KRB5_CONFIG"])
    with ahead.serving("faketime", "-f", "+1h"):
        error = refusal(connect(by_keytab(user)), tmp_path / "trace", attempts="-> SaslHandshake")
    assert "Set the clocks" in str(error)


def test_a_kdc_that_is_not_there(
    connect: Connect, realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kdc").mkdir()
    stopped = kdc.Kdc(tmp_path / "kdc")
    monkeypatch.setenv("KRB5_CONFIG", stopped.environment["KRB5_CONFIG"])
    error = refusal(connect(by_keytab(stopped.principal("alice"))), tmp_path / "trace", attempts="-> SaslHandshake")
    assert "the KDC can be reached" in str(error)
