"""The command line in the process of the tests: its commands are built from their functions once per process, which
takes longer than most of them run."""

from __future__ import annotations

import functools

import typer.main
import typer.testing

typer.testing._get_command = functools.cache(typer.main.get_command)  # type: ignore[attr-defined]
