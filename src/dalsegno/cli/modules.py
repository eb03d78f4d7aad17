"""User modules: imported by name or by file, and searched for applications and workflows."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from dalsegno.app import App
from dalsegno.cli.errors import Refusal, UnreadablePython
from dalsegno.cli.import_errors import add_place, import_refusal
from dalsegno.engine.starting.module_import import module_import
from dalsegno.errors import DalSegnoError
from dalsegno.lang.python import DurableTask, DurableWorkflow, PythonProgram
from dalsegno.model.suggestion import did_you_mean

PYTHON = ".py"


@dataclass(frozen=True, slots=True)
class PythonTarget:
    """A workflow or task of a program, and its application."""

    app: App
    workflow: DurableWorkflow[..., object] | DurableTask[..., object]
    app_name: str
    """The value of ``--app`` that names the application."""


def names_python(target: str) -> bool:
    """Return whether the target reads ``module:function``, ``path/file.py:function`` or ``path/file.py``."""
    module_name, colon, _ = target.rpartition(":")
    if target.endswith(PYTHON):
        return True
    return (
        bool(colon)
        and (module_name.endswith(PYTHON) or _is_dotted(module_name))
        and not Path(target).exists()
    )


def load_app(name: str) -> App:
    """Import ``module:attribute`` or ``path/file.py:attribute``. The attribute defaults to ``app``."""
    module_name, attribute = _split_name(name)
    module = _import(module_name)
    hint = _applications(module, module_name)
    found = _attribute(module, module_name, attribute or "app", hint)
    if not isinstance(found, App):
        raise Refusal(f"'{name}' is a {type(found).__name__}, not a dalsegno.App", hint)
    found.close()  # the module may have used it; the command opens it on its own event loop
    return found


def load_workflow(target: str, app: str | None) -> PythonTarget:
    """Return the target of ``run``. Without a function's name it is the module's only workflow."""
    module_name, name = _split_name(target)
    module = _import(module_name)
    found = (
        _attribute(module, module_name, name, _listed(module))
        if name
        else _only_workflow(module, module_name)
    )
    if not isinstance(found, DurableWorkflow | DurableTask):
        raise _no_workflow(target, found)
    if app is not None:
        return PythonTarget(_with(load_app(app), found, app), found, app)
    owner, attribute = _owner(sys.modules.get(found.function.__module__, module), found)
    name = _module_name_of(module_name, module, found)
    return PythonTarget(owner, found, name if attribute == "app" else f"{name}:{attribute}")


def programs_in(file: str) -> list[PythonProgram]:
    """Return the compiled workflows that a Python file defines."""
    return [workflow.program for workflow in _workflows(_import(file)).values()]


def workflows_in(file: str) -> list[str]:
    """Return the names of the workflows that a Python file defines."""
    return [workflow.name for workflow in _workflows(_import(file)).values()]


# -- importing ------------------------------------------------------------------------------------------------


def _split_name(name: str) -> tuple[str, str]:
    module_name, colon, attribute = name.rpartition(":")
    return (module_name, attribute) if colon else (name, "")


def _is_dotted(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))


def _import(module_name: str) -> ModuleType:
    if module_name.endswith(PYTHON):
        return _import_file(Path(module_name))
    _put_first(os.getcwd())  # noqa: PTH109 - sys.path holds text
    return _import_module(module_name)


def _import_file(file: Path) -> ModuleType:
    """Import a file as Python does: with the script's directory on the path, or as part of its package."""
    if not file.is_file():
        raise Refusal(f"there is no file {file}", "Give the path of a Python file, or MODULE:NAME.")
    path = file.resolve()
    parts = [path.stem]
    folder = path.parent
    while (folder / "__init__.py").exists():
        parts.insert(0, folder.name)
        folder = folder.parent
    _put_first(str(folder))
    name = ".".join(parts)
    module = _import_module(name)
    other = getattr(module, "__file__", None)
    if other is None or Path(other).resolve() != path:
        raise Refusal(f"{file} cannot be imported: another module is called '{name}'", "Rename the file.")
    return module


def _put_first(folder: str) -> None:
    if not sys.path or sys.path[0] != folder:
        sys.path.insert(0, folder)


def _import_module(name: str) -> ModuleType:
    try:
        with module_import(name):
            return importlib.import_module(name)
    except DalSegnoError as error:
        add_place(error)
        raise
    except SyntaxError as error:
        raise UnreadablePython(error) from error
    except Exception as error:
        raise import_refusal(name, error) from error


# -- searching ------------------------------------------------------------------------------------------------


def _attribute(module: ModuleType, module_name: str, dotted: str, hint: str) -> object:
    found: object = module
    for part in dotted.split("."):
        if not hasattr(found, part):
            known = [name for name in dir(found) if not name.startswith("_")]
            raise Refusal(
                f"module '{module_name}' has no attribute '{part}'{did_you_mean(part, known)}", hint
            )
        found = getattr(found, part)
    return found


def _workflows(module: ModuleType) -> dict[str, DurableWorkflow[..., object]]:
    """Return the workflows that the module itself defines."""
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, DurableWorkflow) and value.function.__module__ == module.__name__
    }


def _applications(module: ModuleType, module_name: str) -> str:
    names = [name for name, value in vars(module).items() if isinstance(value, App)]
    if not names:
        return f"'{module_name}' contains no dalsegno.App: write app = App() in it, or name the module that has one."
    return f"'{module_name}' holds: {', '.join(names)}. Write --app {module_name}:{names[0]}."


def _listed(module: ModuleType) -> str:
    names = ", ".join(_workflows(module))
    return f"Its workflows: {names}." if names else "It has no workflows: write @app.workflow above one."


def _only_workflow(module: ModuleType, module_name: str) -> object:
    found = _workflows(module)
    if len(found) != 1:
        count = "several workflows" if found else "no workflow"
        raise Refusal(
            f"{module_name} has {count}", f"Name one: dalsegno run {module_name}:NAME. {_listed(module)}"
        )
    return next(iter(found.values()))


def _no_workflow(target: str, found: object) -> Refusal:
    if callable(found):
        return Refusal(
            f"'{target}' is an ordinary function, not a workflow", "Write @app.workflow above its async def."
        )
    hint = "Deployed graphs and scripts are named with `dalsegno start`."
    return Refusal(f"'{target}' is a {type(found).__name__}, not a workflow", hint)


def _owner(
    module: ModuleType, found: DurableWorkflow[..., object] | DurableTask[..., object]
) -> tuple[App, str]:
    """Return the application in the function's own module that has registered it, and its name."""
    for name, value in vars(module).items():
        if isinstance(value, App) and _registers(value, found):
            value.close()
            return value, name
    raise Refusal(
        f"no application in module '{module.__name__}' has registered '{found.name}'",
        "Give it: --app MODULE:NAME.",
    )


def _with(app: App, found: DurableWorkflow[..., object] | DurableTask[..., object], name: str) -> App:
    if not _registers(app, found):
        kind, names = _names_beside(app, found)
        has = f"It has the {kind}s {', '.join(names)}" if names else f"It has no {kind}"
        raise Refusal(
            f"the application {name} has not registered '{found.name}'",
            f"{has}. Give the application that has it, or leave --app out.",
        )
    return app


def _registers(app: App, found: DurableWorkflow[..., object] | DurableTask[..., object]) -> bool:
    return found.name in _names_beside(app, found)[1]


def _names_beside(
    app: App, found: DurableWorkflow[..., object] | DurableTask[..., object]
) -> tuple[str, Sequence[str]]:
    """Return the kind, and all names of that kind that the application has."""
    if isinstance(found, DurableWorkflow):
        return "workflow", app.workflows.names()
    return "task", app.tasks.names()


def _module_name_of(
    module_name: str, module: ModuleType, found: DurableWorkflow[..., object] | DurableTask[..., object]
) -> str:
    """Return the given module if it defines the function, else the module that does."""
    own = found.function.__module__
    return module_name if own == module.__name__ else own
