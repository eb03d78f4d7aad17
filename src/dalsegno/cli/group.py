"""The group of all commands: sorts them in the help, and turns exceptions into messages and exit codes."""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup, TyperOption

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
    "Inspect": ("ls", "show", "watch", "why", "debug", "workers"),
    "Control": (
        "submit",
        "trigger",
        "signal",
        "ask",
        "approvals",
        "approve",
        "reject",
        "pause",
        "cancel",
        "terminate",
        "move",
        "task",
        "dead",
    ),
    "Definitions": ("validate", "deploy", "workflows", "versions", "alias", "nodes"),
    "Triggers and alerts": ("schedule", "webhook", "alerts"),
    "Maintenance": ("doctor", "backup", "migrate", "bench"),
}


HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}

SERVER_OPTIONS = {
    "broker": (
        "DALSEGNO_BROKER",
        "URL of Redis or RabbitMQ, which bring work to workers. Default: DALSEGNO_BROKER, else the store does.",
    ),
    "redis": (
        "DALSEGNO_REDIS",
        "URL of the Redis that other programs use. Default: DALSEGNO_REDIS, else the broker if it is Redis.",
    ),
}
"""Options of the commands that run or change work, besides ``--store``, with the variable that each overrides."""
WITHOUT_SERVERS = frozenset(
    (
        *("alerts ls", "approvals", "backup", "credentials ls", "debug", "keys ls", "limits ls", "ls"),
        "migrate",
        *("schedule ls", "schedule show", "show", "snapshots status", "task ls", "task show", "validate"),
        *("versions", "watch", "webhook ls", "why", "workers", "workflows"),
    )
)
"""Commands that use the store only: a broker holds nothing that they show."""


def command_group(name: str, help: str) -> typer.Typer:
    """Return a group of commands under one name: ``dalsegno keys add``, ``dalsegno keys ls``."""
    return typer.Typer(
        name=name, help=help, no_args_is_help=True, rich_markup_mode=None, context_settings=HELP_OPTIONS
    )


def only_named(app: typer.Typer, arguments: Sequence[str]) -> typer.Typer:
    """Return the program with the one command, or group of commands, that the arguments name.

    Typer reads the signatures of all commands before it runs one, which takes longer than most commands. The help, and
    the suggestions for a name that is unknown, need all of them.
    """
    name = arguments[0] if arguments else ""
    named = [each for each in app.registered_commands if each.name == name]
    groups = [
        each
        for each in app.registered_groups
        if each.typer_instance is not None and each.typer_instance.info.name == name
    ]
    if not named and not groups and name != "--version":
        return app
    narrowed = copy.copy(app)
    narrowed.registered_commands, narrowed.registered_groups = named, groups
    return narrowed


class Commands(TyperGroup):
    """The root group. The installed program, ``python -m dalsegno`` and tests all call its ``main``."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        add_server_options(self)

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
            with _server_variables():
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


def add_server_options(group: TyperGroup, prefix: str = "") -> None:
    """Add ``--broker`` and ``--redis`` to the commands of the group that have ``--store`` and bring work to workers."""
    for each, command in group.commands.items():
        name = prefix + each
        if isinstance(command, TyperGroup):
            add_server_options(command, f"{name} ")
            continue
        names = [parameter.name for parameter in command.params]
        if "store" in names and "broker" not in names and name not in WITHOUT_SERVERS:
            at = names.index("store") + 1
            command.params[at:at] = [_server_option(option) for option in SERVER_OPTIONS]


def _server_option(option: str) -> TyperOption:
    variable, about = SERVER_OPTIONS[option]

    def choose(_context: Any, _parameter: Any, value: str | None) -> None:
        """The option is the variable of this process and of those that it starts: no password is on a command line."""
        if value is not None:
            os.environ[variable] = value

    return TyperOption(
        param_decls=[f"--{option}"],
        type=str,
        metavar="URL",
        help=about,
        callback=choose,
        expose_value=False,
        show_default=False,
    )


@contextmanager
def _server_variables() -> Iterator[None]:
    """Undo what options set in the environment."""
    before = {variable: os.environ.get(variable) for variable, _ in SERVER_OPTIONS.values()}
    try:
        yield
    finally:
        for variable, value in before.items():
            if value is None:
                os.environ.pop(variable, None)
            else:
                os.environ[variable] = value


ClickException: type[Exception] = next(
    each for each in typer.BadParameter.__mro__ if each.__name__ == "ClickException"
)
"""The class that typer raises: newer versions bring their own copy of click."""
