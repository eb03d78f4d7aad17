"""User modules: imported by name or by file, and searched for applications and workflows.

An error while a module is imported is reported with its place in the user's code, and with the name that was meant.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
import re
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import packages_distributions
from pathlib import Path
from types import ModuleType, TracebackType

import dalsegno
from dalsegno.app import App
from dalsegno.cli.errors import Refusal, UnreadablePython
from dalsegno.engine.starting.module_import import module_import
from dalsegno.errors import DalSegnoError
from dalsegno.lang.python import DurableTask, DurableWorkflow, PythonProgram
from dalsegno.model.suggestion import did_you_mean

_NO_NAME = re.compile(r"cannot import name '(\w+)' from (?:partially initialized module )?'([\w.]+)'")
LIKENESS = 0.8
"""Similarity from which a module is suggested for an unknown name. Among hundreds of modules, one is always a
little alike."""
_OURS = str(Path(dalsegno.__file__).parent)


def import_refusal(asked: str, error: Exception) -> Refusal:
    """Return the error for a module ``asked`` whose import raised."""
    place = place_in_user_code(error.__traceback__)
    if isinstance(error, ModuleNotFoundError) and error.name is not None:
        return _missing_module(asked, error.name, place)
    if isinstance(error, ImportError) and place and (said := _NO_NAME.match(str(error))):
        return Refusal(*_missing_name(place, said[1], said[2], error))
    at = f" at {place}" if place else ""
    hint = "Set DALSEGNO_DEBUG=1 for the traceback."
    return Refusal(f"importing '{asked}' raised {type(error).__name__}{at}: {error}", hint)


def add_place(error: DalSegnoError) -> None:
    """Let the error say which line of the user's code raised it, unless it says so itself."""
    place = place_in_user_code(error.__traceback__)
    if place and place not in str(error) and not getattr(error, "hint", ""):
        error.hint = f"Raised at {place}."  # type: ignore[attr-defined]  # read by `report`


def place_in_user_code(trace: TracebackType | None) -> str:
    """Return ``file:line`` of the innermost frame that is neither Python's nor ours, nor of an installed package."""
    found = ""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith("<") and not _is_foreign(file):
            found = f"{os.path.relpath(file)}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found


def _is_foreign(file: str) -> bool:
    folders = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return any(Path(file).is_relative_to(folder) for folder in (*folders, _OURS) if folder)


def _missing_module(asked: str, missing: str, place: str) -> Refusal:
    meant = did_you_mean(missing, _known_modules(missing), LIKENESS)
    if not place and (asked == missing or asked.startswith(f"{missing}.")):
        looked = f"It is looked for in {os.getcwd()} and in what is installed."  # noqa: PTH109 - shown as it is
        return Refusal(f"cannot import '{asked}': there is no module '{missing}'{meant}", looked)
    where = f"{place} imports" if place else f"importing '{asked}' imports"
    parent, _, _ = missing.rpartition(".")
    if meant and parent:
        cure = "Correct the name there."
    elif meant:
        cure = f"Correct the name there, or install '{missing}' for {sys.executable}."
    elif parent:
        cure = f"'{parent}' is installed but has no such part: perhaps another version of it is needed."
    else:
        cure = f"Install the package that has it for {sys.executable}, for example: pip install {missing}"
    return Refusal(f"{where} '{missing}', and there is no module of that name{meant}", cure)


def _known_modules(missing: str) -> Iterable[str]:
    """Return the names that could have been meant: beside it in its package, or installed, or in the folder."""
    parent, _, _ = missing.rpartition(".")
    if parent:
        package = sys.modules.get(parent)
        parts = pkgutil.iter_modules(getattr(package, "__path__", []))
        return [f"{parent}.{part.name}" for part in parts]
    here = [found.name for found in pkgutil.iter_modules([os.getcwd()])]  # noqa: PTH109 - as in sys.path
    installed = [name for name in packages_distributions() if importlib.util.find_spec(name) is not None]
    names = {*here, *installed, *sys.stdlib_module_names}
    return sorted(name for name in names if not name.startswith("_"))


def _missing_name(place: str, name: str, module: str, error: ImportError) -> tuple[str, str]:
    owner = sys.modules.get(module)
    if "partially initialized" in str(error):
        return f"{place} imports '{name}' from '{module}', which itself is still being imported", (
            "Two modules import each other: move what both need into a third one."
        )
    meant = did_you_mean(name, [each for each in dir(owner) if not each.startswith("_")])
    return f"{place} imports '{name}' from '{module}', which has no such name{meant}", (
        f"'{module}' is {getattr(owner, '__file__', None) or 'built in'}."
    )


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
