"""Fixtures of the command line's tests."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from dalsegno.cli.main import app
from tests.cli.programs import Program, Programs, is_crash

Invoke = Callable[..., Result]


@pytest.fixture(autouse=True)
def folder(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """Every test works in a directory of its own, with the default store and its own modules in it."""
    of_tests = f"{tmp_path_factory.getbasetemp().parent}/"
    for name, module in list(sys.modules.items()):  # other folders' tests also import modules named `orders`
        if str(vars(module).get("__file__")).startswith(of_tests):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.chdir(tmp_path)
    for name in ("DALSEGNO_STORE", "DALSEGNO_SERVER", "DALSEGNO_KEY", "DALSEGNO_DEBUG", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    loaded, home = set(sys.modules), f"{tmp_path}/"
    yield tmp_path
    for name in sys.modules.keys() - loaded:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(home):
            del sys.modules[name]


@contextmanager
def logging_as_before() -> Iterator[None]:
    """A command may log to its standard error, which is closed when it ends; a process of its own would end, too."""
    loggers = [logging.getLogger(name) for name in ("dalsegno", "uvicorn")]
    before = [(logger, logger.level, logger.propagate, list(logger.handlers)) for logger in loggers]
    try:
        yield
    finally:
        for logger, level, propagate, handlers in before:
            logger.setLevel(level)
            logger.propagate = propagate
            logger.handlers[:] = handlers


@pytest.fixture
def invoke() -> Invoke:
    """The program in this process. Nothing it raises may escape as an exception."""

    def run(*arguments: str, stdin: str | bytes | None = None) -> Result:
        with logging_as_before():
            result = CliRunner().invoke(app, list(arguments), input=stdin)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert not is_crash(result.output), result.output
        return result

    return run


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    """The program in processes of its own; those still alive at the end are killed."""
    running: list[Program] = []
    yield Programs(tmp_path, {**os.environ, "COLUMNS": "80"}, running)
    for program in running:
        program.end()
