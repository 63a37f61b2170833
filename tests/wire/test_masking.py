"""What errors and logs show of a user's text."""

from __future__ import annotations

import pytest

from pykafka_wire.wire.masking import quoted, without_secrets


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://key:secret@bucket/c?x=1", "s3://***@bucket/c?***"),
        ("s3://key@bucket/c", "s3://***@bucket/c"),
        ("s3://key:se/cr@et@bucket/c", "s3://***@bucket/c"),
        ("checkpoint:s3://key:secret@bucket/c", "checkpoint:s3://***@bucket/c"),
        ("abfss://box@account.dfs.core.windows.net/c", "abfss://box@account.dfs.core.windows.net/c"),
        ("ABFSS://box@account.dfs.core.windows.net/c", "ABFSS://box@account.dfs.core.windows.net/c"),
        ("abfss://box:secret@account.dfs.core.windows.net/c", "abfss://***@account.dfs.core.windows.net/c"),
        ("user:secret@host:9092", "***@host:9092"),
        ("a:1,user:secret@host:9092", "***@host:9092"),
        ("user:secret@host s3://bucket", "***@host s3://bucket"),
        ("/a@b?c", "/a@b?c"),
        ("orders", "orders"),
        ("2026-01-01T12:00:00Z", "2026-01-01T12:00:00Z"),
    ],
)
def test_credentials_and_queries_are_masked(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


def test_a_quoted_value_is_its_repr_without_secrets() -> None:
    assert quoted("it's") == repr("it's")
    assert quoted("user:secret@host") == "'***@host'"
    assert quoted(7) == "7"
