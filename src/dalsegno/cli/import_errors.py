"""Errors while a user's module is imported: where in the user's code, and which name was meant."""

from __future__ import annotations

import importlib.util
import os
import pkgutil
import re
import sys
import sysconfig
from collections.abc import Iterable
from importlib.metadata import packages_distributions
from pathlib import Path
from types import TracebackType

import dalsegno
from dalsegno.cli.errors import Refusal
from dalsegno.errors import DalSegnoError
from dalsegno.model.suggestion import did_you_mean

_NO_NAME = re.compile(r"cannot import name '(\w+)' from (?:partially initialized module )?'([\w.]+)'")
LIKENESS = 0.8
"""Of names of modules: there are hundreds, so that some name is always a little alike."""
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
