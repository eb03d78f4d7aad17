"""The name under which other processes import a module.

The file that Python was started with is ``__main__`` in that process only. A workflow of that file is stored under the
name by which a worker imports the same file, so that the worker can continue it.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from types import ModuleType

MAIN = "__main__"


STORED_NAMES = {
    "dalsegno.engine.scripts.programs": "dalsegno.engine.scripting.sources",
    "dalsegno.lang.python.api": "dalsegno.lang.python.verbs",
    "dalsegno.lang.python.runtime.itertools_classes": "dalsegno.lang.python.itertools_classes",
    "dalsegno.lang.python.values.decisions": "dalsegno.lang.python.approvals",
    "dalsegno.model.failure": "dalsegno.model.retry",
    "dalsegno.nodes.http.egress": "dalsegno.nodes.egress",
}
"""Modules of this package under the names that stored snapshots and errors use.

A module may move, a stored name may not.
"""


def stored_name_of(module: str) -> str:
    """Return the name under which a module is stored."""
    if module == MAIN:
        return _name_of_main()
    return STORED_NAMES.get(module, module)


def imported(stored_name: str) -> ModuleType | None:
    """Return the module in this process, whatever its name here; nothing is imported."""
    found = sys.modules.get(stored_name)
    if found is None and stored_name == _name_of_main():
        return sys.modules.get(MAIN)
    return found if stored_name != MAIN or _name_of_main() == MAIN else None


@cache
def _name_of_main() -> str:
    """Return the importable name of ``__main__``; ``__main__`` itself for an interactive prompt or a pipe."""
    main = sys.modules.get(MAIN)
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:
        return str(spec.name)
    return _dotted(Path(file)) if file else MAIN


def _dotted(file: Path) -> str:
    """Return the dotted name of a file, with the packages that it belongs to."""
    parts, folder = [file.stem], file.resolve().parent
    while (folder / "__init__.py").exists():
        parts.insert(0, folder.name)
        folder = folder.parent
    return ".".join(parts)
