"""Tables of settings for the documentation, made of the code that declares them.

Owns what a table says of one setting, and the tables of docs/settings.md. Nothing here has an effect on a client.
"""

from __future__ import annotations

from pykafka_wire.wire.errors import fill_in
from pykafka_wire.wire.settings import SETTINGS
from pykafka_wire.wire.settings.unsupported import IGNORED, REJECTED


def mark_experimental(meaning: str, is_experimental: bool) -> str:
    """Return what a table says of a setting, an option or a command."""
    return f"*experimental*: {meaning}" if is_experimental else meaning


def settings_table(prefix: str = "kafka.") -> str:
    """Return Markdown tables of the settings, of those that are ignored, and of those that are rejected."""
    lines = ["| Setting | Default | For | Meaning |", "|---|---|---|---|"]
    for setting in SETTINGS:
        secret = " (secret)" if setting.secret else ""
        meaning = mark_experimental(fill_in(setting.meaning, prefix), setting.is_experimental)
        lines.append(f"| `{prefix}{setting.name}` | {setting.default} | {setting.scope} | {meaning}{secret} |")
    lines += ["", "Accepted without effect:", "", "| Setting | Why |", "|---|---|"]
    lines += [f"| `{prefix}{name}` | {fill_in(reason, prefix)} |" for name, reason in IGNORED.items()]
    lines += [
        "",
        "Rejected, because without them the client would not do what you asked for:",
        "",
        "| Setting | Instead |",
        "|---|---|",
    ]
    lines += [f"| `{prefix}{name}` | {fill_in(rejected.remedy, prefix)} |" for name, rejected in REJECTED.items()]
    return "\n".join(lines) + "\n"
