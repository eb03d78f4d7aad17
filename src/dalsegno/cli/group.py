"""The group of all commands: sorts them in its help, and turns what they raise into messages and exit codes."""

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
    "Look": ("ls", "show", "watch", "why", "workers"),
    "Steer": (
        "submit",
        "trigger",
        "signal",
        "approvals",
        "approve",
        "reject",
        "pause",
        "cancel",
        "terminate",
        "dead",
    ),
    "Definitions": ("validate", "deploy", "versions", "alias", "nodes"),
    "Starts by themselves": ("schedule", "webhook", "alerts"),
    "This machine": ("doctor", "backup", "migrate", "bench"),
}


HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}


def family(name: str, help: str) -> typer.Typer:
    """Commands under one name: ``dalsegno keys add``, ``dalsegno keys ls``."""
    return typer.Typer(
        name=name, help=help, no_args_is_help=True, rich_markup_mode=None, context_settings=HELP_OPTIONS
    )


class Commands(TyperGroup):
    """Every way in passes here: the installed program, ``python -m dalsegno`` and tests."""

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
            from dalsegno.cli.problems import report  # noqa: PLC0415 - only who errs pays for it

            code = report(error, as_json="--json" in arguments)
        if standalone_mode:
            sys.exit(code)
        return code

    def list_commands(self, ctx: Any) -> list[str]:
        known = [name for names in SECTIONS.values() for name in names]
        return sorted(self.commands, key=lambda name: known.index(name) if name in known else len(known))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The help's list of commands, by what one wants to do."""
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
"""Newer typers bring their own copy of click: this is the one that is in use."""
