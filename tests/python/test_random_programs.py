"""Random workflows do what CPython does: in memory, stored at every await, and stored at every instruction."""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
from types import ModuleType

import pytest

from dalsegno.lang.python import compile_workflow
from tests.effort import first
from tests.python import tasks
from tests.python.driving import MODES, Driver, natively, outcome
from tests.python.random_programs import module_text

SEEDS = range(int(os.environ.get("DALSEGNO_SEEDS", "8")))
IN_BUILD = 2
PER_SEED = 15
FEW = 15
"""Awaits of a program that is also stored at every instruction, which takes a while."""


@pytest.fixture
def imported(tmp_path):
    """Writes text into a module of its own and imports it."""
    names: list[str] = []

    def import_text(text: str) -> ModuleType:
        name = f"random_programs_{len(names)}"
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        names.append(name)
        spec.loader.exec_module(module)
        return module

    yield import_text
    for name in names:
        del sys.modules[name]


@pytest.mark.parametrize("seed", first(IN_BUILD, SEEDS))
def test_random_workflows_do_what_cpython_does(seed, imported):
    module = imported(module_text(seed, PER_SEED))
    for number in range(PER_SEED):
        function = getattr(module, f"flow_{number}")
        tasks.calls.clear()
        expected = natively(function, 5), list(tasks.calls)
        program = compile_workflow(function)
        for mode in MODES if len(expected[1]) <= FEW else ("hot", "stored"):
            tasks.calls.clear()
            found = outcome(Driver(program, mode).run(5)), list(tasks.calls)
            assert found == expected, f"{mode}:\n{inspect.getsource(function)}"
