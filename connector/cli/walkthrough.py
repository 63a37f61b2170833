"""``walkthrough``: Kafka's protocol step by step, on a real cluster."""

from __future__ import annotations

import click

from pykafka_wire.cli.connection import command, output, settings


@command()
def walkthrough() -> None:
    """Show Kafka's protocol step by step: the requests of a small producer and consumer, and the brokers' responses.

    The command creates its own topic and group on the cluster, and deletes the topic at the end.
    """
    from pykafka_wire.wire.walkthrough import run_walkthrough

    if output().json:
        raise click.UsageError("walkthrough prints text for people: leave out --json.")
    run_walkthrough(settings())
