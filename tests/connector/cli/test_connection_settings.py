"""Settings of the command line: a name that does not exist is refused before anything connects."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from pykafka_wire.cli.app import commands


@pytest.mark.parametrize(
    "arguments", [["topics"], ["lag", "a-group"], ["ingest", "--topics", "x", "--into", "x", "--plan"]], ids=str
)
def test_a_mistyped_setting_of_the_command_line_is_an_error_that_names_the_nearest(arguments: list[str]) -> None:
    """Else the command would connect in plaintext."""
    given = [*arguments, "-b", "127.0.0.1:1", "-X", "securty.protocol=SASL_SSL", "-X", "kafka.client.id=me"]
    refused = CliRunner().invoke(commands, given)
    assert refused.exit_code == 2, refused.output
    assert "-X names settings that do not exist: securty.protocol (did you mean security.protocol?)" in refused.output
