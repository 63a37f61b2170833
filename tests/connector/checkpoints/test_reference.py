"""How a place in a checkpoint is named."""

from __future__ import annotations

import pytest

from pykafka_wire.checkpoints.reference import parse_reference
from pykafka_wire.errors import OptionError


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("/lake/c", ("/lake/c", None, None)),
        ("checkpoint:/lake/c/", ("/lake/c", None, None)),
        ("Checkpoint:s3a://bucket/c#12", ("s3a://bucket/c", 12, None)),
        ("abfss://box@account.dfs.core.windows.net/c#12/1", ("abfss://box@account.dfs.core.windows.net/c", 12, "1")),
        ("dbfs:/c#/orders_1", ("dbfs:/c", None, "orders_1")),
        ("/with#hash#0", ("/with#hash", 0, None)),
        ("/c#", ("/c", None, None)),
        ("relative", ("relative", None, None)),
    ],
)
def test_a_reference_has_a_path_a_micro_batch_and_a_source(
    text: str, found: tuple[str, int | None, str | None]
) -> None:
    reference = parse_reference(text, "startingOffsets")
    assert (reference.path, reference.batch_id, reference.source) == found


@pytest.mark.parametrize("text", ["checkpoint:", "", "#12", "checkpoint:#1"])
def test_a_reference_without_a_folder_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match=r"startingOffsets names no folder .*checkpointLocation"):
        parse_reference(text, "startingOffsets")


@pytest.mark.parametrize("fragment", ["newest", "-1", "1/", "1/2/3", "1.5", "9" * 19, "١"])
def test_what_is_no_micro_batch_is_refused_with_an_example(fragment: str) -> None:
    with pytest.raises(OptionError, match=r"after # comes the number of a micro-batch.*#12"):
        parse_reference(f"/c#{fragment}", "microBatch")


def test_a_micro_batch_may_be_required() -> None:
    assert parse_reference("/c#0", "microBatch", needs_batch=True).batch_id == 0
    for text in ("/c", "/c#/1"):
        with pytest.raises(OptionError, match=r"microBatch is .*: name the micro-batch after the folder"):
            parse_reference(text, "microBatch", needs_batch=True)


def test_a_position_that_was_read_already_must_be_whole() -> None:
    for text in ("checkpoint:{", "checkpoint:{}"):
        with pytest.raises(OptionError, match=r"startingOffsets is malformed .*what checkpoint_position returned"):
            parse_reference(text, "startingOffsets")
    with pytest.raises(OptionError, match="name the micro-batch"):
        parse_reference('checkpoint:{"checkpoint":"/c"}', "microBatch", needs_batch=True)


def test_no_text_of_a_reference_has_credentials() -> None:
    reference = parse_reference("s3://AKIA:hunter2@bucket/c?secret=hunter2#3/0", "startingOffsets")
    assert reference.path == "s3://AKIA:hunter2@bucket/c?secret=hunter2"
    for text in (str(reference), repr(reference), reference.with_fragment(2)):
        assert "hunter2" not in text
    assert str(reference) == "s3://***@bucket/c?***#3/0"
    with pytest.raises(OptionError) as raised:
        parse_reference("s3://AKIA:hunter2@bucket/c#x", "startingOffsets")
    assert "hunter2" not in str(raised.value)
