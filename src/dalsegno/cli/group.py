"""The group of all commands: sorts them in the help, and turns exceptions into messages and exit codes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

SECTIONS: dict[str, tuple[str, ...]] = {
    "Run": ("run", "resume", "retry", "rerun", "start"),
    "Serve": (
        "dev",
        "server",
        "worker",
        "scheduler",
        "keys",
        "limits",
        "credentials",
        "protect",
        "unprotect",
        "snapshots",
    ),
    "Inspect": ("ls", "show", "watch", "why", "workers"),
    "Control": (
        "submit",
        "trigger",
        "signal",
        "approvals",
        "approve",
        "reject",
        "pause",
        "cancel",
        "terminate",
        "task",
        "dead",
    ),
    "Definitions": ("validate", "deploy", "workflows", "versions", "alias", "nodes"),
    "Triggers and alerts": ("schedule", "webhook", "alerts"),
    "Maintenance": ("doctor", "backup", "migrate", "bench"),
}


HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}


def command_group(name: str, help: str) -> typer.Typer:
    """Return a group of commands under one name: ``dalsegno keys add``, ``dalsegno keys ls``."""
    return typer.Typer(
        name=name, help=help, no_args_is_help=True, rich_markup_mode=None, context_settings=HELP_OPTIONS
    )


class Commands(TyperGroup):
    """The root group. The installed program, ``python -m dalsegno`` and tests all call its ``main``."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        arguments = list(args) if args is not None else sys.argv[1:]
        try:
            ended = super().main(arguments, prog_name, complete_var, False, windows_expand_args, **extra)
            code = ended if isinstance(ended, int) else 0
            sys.stdout.flush()
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - here every error ends
            from dalsegno.cli.errors import report  # noqa: PLC0415 - only who errs pays for it

            code = report(error, as_json="--json" in arguments)
        if standalone_mode:
            sys.exit(code)
        return code

    def list_commands(self, ctx: Any) -> list[str]:
        known = [name for names in SECTIONS.values() for name in names]
        return sorted(self.commands, key=lambda name: known.index(name) if name in known else len(known))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands in sections by purpose."""
        width = max(len(name) for name in self.commands)
        for title, names in SECTIONS.items():
            present = [(name, self.commands[name]) for name in names if name in self.commands]
            rows = [(name.ljust(width), command.get_short_help_str(70)) for name, command in present]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


ClickException: type[Exception] = next(
    each for each in typer.BadParameter.__mro__ if each.__name__ == "ClickException"
)
"""The class that typer raises: newer versions bring their own copy of click."""
