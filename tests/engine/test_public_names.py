"""What users import: every error that a call of theirs may raise on purpose is among the public names."""

from __future__ import annotations

import ast
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import dalsegno
from dalsegno.client.problems import BY_STATUS
from dalsegno.errors import DalSegnoError
from tests.rows import rows

INSIDE = ("dalsegno.adapters.", "dalsegno.cli.", "dalsegno.server.", "dalsegno.testing.")
"""Who raises here does it for the engine, for people at a terminal, for clients by HTTP, or for tests."""
CAUGHT = {
    "NameMissing": "the execution waits for a program that has the name",
    "RouteMissing": "the client goes the way of older servers",
    "KeyMissing": "the worker looks for another one that has the key",
    "TemplateErrors": "part of InvalidDefinition",
    "PayloadRefused": "its asker is refused, and the workflow waits for the next request",
    "MoveRefused": "a retry is refused with Conflict, or fails in its first turn with MOVE_REFUSED",
}
"""Never leave the engine."""
PUBLIC_MODULES = (
    "app",
    "client/client",
    "event_loop_host",
    "handle",
    "lang/python/api",
    "schedules",
    "starts",
)
"""Whose functions users call."""


def _errors(kind: type[DalSegnoError] = DalSegnoError) -> Iterator[type[DalSegnoError]]:
    for each in kind.__subclasses__():
        yield each
        yield from _errors(each)


def test_every_error_of_the_engine_is_public() -> None:
    for module in ("engine", "client", "graph", "lang", "nodes", "ports", "core"):
        package = import_module(f"dalsegno.{module}")
        for found in pkgutil.walk_packages(package.__path__, f"dalsegno.{module}."):
            import_module(found.name)
    own = {each for each in _errors() if each.__module__.startswith("dalsegno.")}
    missing = sorted(
        each.__name__
        for each in own
        if not each.__module__.startswith(INSIDE)
        and each.__name__ not in CAUGHT
        and getattr(dalsegno, each.__name__, None) is not each
    )
    assert missing == []


@pytest.mark.parametrize("module", PUBLIC_MODULES)
def test_whatever_a_public_function_raises_by_name_is_public_or_python_s_own(module: str) -> None:
    source = Path(dalsegno.__file__).parent / f"{module}.py"
    raised = {
        node.exc.func.id
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.Raise)
        and isinstance(node.exc, ast.Call)
        and isinstance(node.exc.func, ast.Name)
        and node.exc.func.id[0].isupper()
    }
    builtins = {"TypeError", "ValueError", "TimeoutError"}
    assert raised - builtins - set(dalsegno.__all__) == set()


def test_what_a_server_s_answer_becomes_is_public() -> None:
    assert {each.__name__ for each in BY_STATUS.values()} <= set(dalsegno.__all__)


@rows("name", sorted(set(dalsegno.__all__)))
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(dalsegno, name) is not None
