"""SCRAM against the RFCs' own examples, and against brokers that cheat."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykafka_wire.wire.errors import AuthenticationError
from pykafka_wire.wire.security.scram import HASHES, MAX_ITERATIONS, Scram

NONCE = "rOprNGfwEbeRWgbNEkqO"


class Verifier:
    """The broker's side, written from RFC 5802 without a look at ours; it knows what a broker stores."""

    def __init__(self, mechanism: str, password: str, *, iterations: int = 4096, salt: bytes = b"salty") -> None:
        self.hash = HASHES[mechanism]
        self.iterations = iterations
        self.salt = salt
        salted = hashlib.pbkdf2_hmac(self.hash, password.encode(), salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", self.hash)
        self.stored_key = hashlib.new(self.hash, client_key).digest()
        self.server_key = hmac.digest(salted, b"Server Key", self.hash)
        self.bare = ""
        self.challenge = ""
        self.user = ""

    def first(self, token: bytes) -> bytes:
        header, _, rest = token.decode().split(",", 2)
        assert header == "n"
        self.bare = rest
        user, nonce = rest.split(",")[:2]
        self.user = user.removeprefix("n=").replace("=2C", ",").replace("=3D", "=")
        salt = base64.b64encode(self.salt).decode()
        self.challenge = f"{nonce}server,s={salt},i={self.iterations}"
        return self.challenge.encode()

    def final(self, token: bytes) -> bytes | None:
        """The verdict; None for a proof that does not hold."""
        without_proof, _, proof = token.decode().rpartition(",p=")
        signed = f"{self.bare},{self.challenge},{without_proof}".encode()
        mask = hmac.digest(self.stored_key, signed, self.hash)
        client_key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), mask, strict=True))
        if hashlib.new(self.hash, client_key).digest() != self.stored_key:
            return None
        return b"v=" + base64.b64encode(hmac.digest(self.server_key, signed, self.hash))


def test_the_example_of_rfc_7677() -> None:
    exchange = Scram(name="SCRAM-SHA-256", username="user", password="pencil", nonce=NONCE).exchange()
    assert next(exchange) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    final = exchange.send(b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
    assert final == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    with pytest.raises(StopIteration):
        exchange.send(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


# PBKDF2 takes its time on a busy machine.
@settings(deadline=None, max_examples=50)
@given(
    st.sampled_from(sorted(HASHES)),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20),
    st.binary(min_size=1, max_size=32),
)
def test_user_and_password_may_be_any_text(mechanism: str, username: str, password: str, salt: bytes) -> None:
    broker = Verifier(mechanism, password, salt=salt)
    exchange = Scram(name=mechanism, username=username, password=password).exchange()
    verdict = broker.final(exchange.send(broker.first(next(exchange))))
    assert broker.user == username
    assert verdict is not None
    with pytest.raises(StopIteration):
        exchange.send(verdict)


def test_another_password_gives_another_proof() -> None:
    broker = Verifier("SCRAM-SHA-512", "right")
    exchange = Scram(name="SCRAM-SHA-512", username="u", password="wrong").exchange()
    assert broker.final(exchange.send(broker.first(next(exchange)))) is None


def test_a_nonce_is_never_used_twice() -> None:
    scram = Scram(name="SCRAM-SHA-256", username="u", password="p")  # one mechanism may serve several connections
    tokens = {next(scram.exchange()) for _ in range(1000)}
    assert len(tokens) == 1000
    assert min(map(len, tokens)) >= len("n,,n=u,r=") + 24


def test_a_delegation_token_is_marked_as_one() -> None:
    scram = Scram(name="SCRAM-SHA-256", username="id", password="hmac", is_token=True, nonce="n")
    assert next(scram.exchange()) == b"n,,n=id,r=n,tokenauth=true"


@pytest.mark.parametrize(
    ("challenge", "said"),
    [
        (b"r=stranger,s=c2FsdA==,i=4096", "does not extend the client"),
        (b"r=%(nonce)b,s=c2FsdA==,i=4096", "does not extend the client"),
        (b"r=%(nonce)bx,s=c2FsdA==,i=4095", "4095 SCRAM-SHA-256 iterations"),
        (b"r=%(nonce)bx,s=c2FsdA==,i=%(many)d", "iterations; this client accepts"),
        (b"r=%(nonce)bx,s=c2FsdA==,i=99999999999", "malformed"),
        (b"r=%(nonce)bx,s=c2FsdA==,i=-1", "malformed"),
        (b"r=%(nonce)bx,s=c2FsdA==", "malformed"),
        (b"r=%(nonce)bx,s=,i=4096", "malformed"),
        (b"r=%(nonce)bx,s=c2F,i=4096", "malformed"),
        (b"s=c2FsdA==,r=%(nonce)bx,i=4096", "malformed"),
        (b"m=ext,r=%(nonce)bx,s=c2FsdA==,i=4096", "malformed"),
        (b"", "malformed"),
        (b"\xff\xfe", "not UTF-8 text"),
        (b"e=unknown-user", "unknown-user"),
    ],
)
def test_a_challenge_that_does_not_hold_is_refused(challenge: bytes, said: str) -> None:
    exchange = Scram(name="SCRAM-SHA-256", username="u", password="canary", nonce=NONCE).exchange()
    next(exchange)
    with pytest.raises(AuthenticationError, match=said) as caught:
        exchange.send(
            challenge % {b"nonce": NONCE.encode(), b"many": MAX_ITERATIONS + 1} if b"%" in challenge else challenge
        )
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("verdict", ["zeros", "empty", "flipped", "short", "no base64", "refusal", "nothing"])
def test_a_broker_that_does_not_know_the_password_is_refused(verdict: str) -> None:
    broker = Verifier("SCRAM-SHA-256", "pw")
    exchange = Scram(name="SCRAM-SHA-256", username="u", password="pw").exchange()
    right = broker.final(exchange.send(broker.first(next(exchange))))
    assert right is not None
    signature = base64.b64decode(right[2:])
    forged = {
        "zeros": b"v=" + base64.b64encode(bytes(32)),
        "empty": b"v=",
        "flipped": b"v=" + base64.b64encode(bytes([signature[0] ^ 1]) + signature[1:]),
        "short": b"v=" + base64.b64encode(signature[:-1]),
        "no base64": b"v=!!!",
        "refusal": b"e=invalid-proof",
        "nothing": b"",
    }[verdict]
    with pytest.raises(AuthenticationError):
        exchange.send(forged)


def test_nothing_secret_is_in_its_repr() -> None:
    assert "canary" not in repr(Scram(name="SCRAM-SHA-256", username="u", password="canary", nonce="canary"))
