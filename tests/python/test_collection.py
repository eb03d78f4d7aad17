"""Plain functions do as workflows what they do as functions: with an ``await`` before each of their statements, stored
and loaded at every one."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from dalsegno.lang.python import DurableWorkflow, to_plain
from tests.python.collection import classes, functions, values
from tests.python.driving import MODES, drive, outcome

MODULES = (classes, functions, values)
PROGRAMS = [
    pytest.param(module, function.__name__, arguments, id=f"{function.__name__}-{number}")
    for module in MODULES
    for function, calls in module.PROGRAMS.items()
    for number, arguments in enumerate(calls)
]


class Awaiting(ast.NodeTransformer):
    """Makes the programs of a module async, and puts an ``await`` before each of their statements."""

    def __init__(self, programs: set[str]) -> None:
        self._programs = programs

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node  # nested functions and helpers stay as they are

    def program(self, node: ast.FunctionDef) -> ast.AsyncFunctionDef:
        self.generic_visit(node)
        fields = {name: getattr(node, name) for name in node._fields}
        return ast.copy_location(ast.AsyncFunctionDef(**fields), node)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for name in ("body", "orelse", "finalbody"):
            statements = getattr(node, name, None)
            if isinstance(statements, list) and not isinstance(node, ast.Module):
                setattr(node, name, [each for one in statements for each in self._paused(one)])
        return node

    def _paused(self, statement: ast.stmt) -> list[ast.stmt]:
        pause = ast.parse("await _pause()").body[0]
        return [ast.copy_location(pause, statement), statement]

    def module(self, tree: ast.Module) -> ast.Module:
        tree.body = [
            self.program(each) if isinstance(each, ast.FunctionDef) and each.name in self._programs else each
            for each in tree.body
            if not isinstance(each, ast.AnnAssign)  # the table of programs
        ]
        pausing = ast.parse("from tests.python.tasks import nothing as _pause").body
        tree.body[2:2] = pausing
        return ast.fix_missing_locations(tree)


@pytest.fixture(scope="module")
def transformed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made: dict[str, ModuleType] = {}
    folder = tmp_path_factory.mktemp("collection")

    def transform(module: ModuleType) -> ModuleType:
        name = f"awaiting_{module.__name__.rpartition('.')[2]}"
        if name not in made:
            programs = {function.__name__ for function in module.PROGRAMS}
            tree = Awaiting(programs).module(ast.parse(inspect.getsource(module)))
            path = folder / f"{name}.py"
            path.write_text(ast.unparse(tree))
            spec = importlib.util.spec_from_file_location(name, path)
            assert spec is not None
            assert spec.loader is not None
            made[name] = sys.modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(made[name])
        return made[name]

    yield transform
    for name in made:
        del sys.modules[name]


def plainly(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[str, str]:
    try:
        return "completed", repr(to_plain(function(*arguments), "result"))
    except Exception as error:  # noqa: BLE001 - to be compared
        return "raised", repr((type(error).__name__, str(error) or type(error).__name__))


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "every"])
@pytest.mark.parametrize(("module", "name", "arguments"), PROGRAMS)
def test_a_program_does_as_a_workflow_what_it_does_as_a_function(module, name, arguments, mode, transformed):
    workflow = DurableWorkflow(getattr(transformed(module), name))
    inputs = workflow.bind(*to_plain(arguments, "arguments"))
    found, result = outcome(drive(workflow, inputs, mode, lossy=True))
    assert (found, repr(result)) == plainly(getattr(module, name), arguments)


def test_there_are_many_programs():
    assert sum(len(module.PROGRAMS) for module in MODULES) >= 60
