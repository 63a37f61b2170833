"""``groups``: the consumer groups of a cluster."""

from __future__ import annotations

from typing import Any

import click

from pykafka_wire.cli.connection import command, connected, output
from pykafka_wire.cli.lag import GENERATED, lag_of_groups
from pykafka_wire.wire.cluster.describe import list_groups
from pykafka_wire.wire.groups.committed_offsets import (
    fetch_offsets_of_groups,
)


@command()
@click.argument("text", required=False)
@click.option("--lag", "with_lag", is_flag=True, help="Also show the lag of each group.")
def groups(text: str | None, with_lag: bool) -> None:
    """List the groups that you may describe, of consumers and of streaming queries. With TEXT, list only groups whose names
    contain it.

    A query without kafka.group.id commits to a group named PREFIX-UUID, where PREFIX is its groupIdPrefix. A query is not a member
    of its group, so the state is Empty, unless it has groupMembership=static.
    """
    with connected() as cluster:
        matching = [group for group in list_groups(cluster) if text is None or text in group.name]
        reports = lag_of_groups(cluster, fetch_offsets_of_groups(cluster, matching)) if with_lag else {}
        rows: list[dict[str, Any]] = []
        for group in matching:
            generated = GENERATED.fullmatch(group.name)
            row = {
                "group": group.name,
                "state": group.state or None,
                "type": group.kind or None,
                "protocol": group.protocol_type or None,
                "prefix": generated["prefix"] if generated is not None else None,
            }
            if with_lag:
                report = reports.get(group.name)
                row["lag"] = None if report is None else report.lag
            rows.append(row)
    named = f" with {text!r} in its name" if text is not None else ""
    output().rows(rows, empty=f"There is no group{named} that you may describe.", only_if_wide=("prefix", "protocol"))
    if unknown := sorted({name for report in reports.values() for name in report.unknown}):
        click.echo(f"The lag of groups that read these is unknown: {', '.join(unknown)}.", err=True)
