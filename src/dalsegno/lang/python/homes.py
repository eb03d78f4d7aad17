"""What a module is called where others import it.

The file that Python was started with is ``__main__`` in that process and nowhere else. A workflow of it is stored under
the name by which a worker imports the same file, so that it can go on there.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from types import ModuleType

MAIN = "__main__"


def home_of(module: str) -> str:
    return _name_of_main() if module == MAIN else module


def imported(home: str) -> ModuleType | None:
    """The module in this process, under whichever name it is here; nothing is imported."""
    found = sys.modules.get(home)
    if found is None and home == _name_of_main():
        return sys.modules.get(MAIN)
    return found if home != MAIN or _name_of_main() == MAIN else None


@cache
def _name_of_main() -> str:
    """``__main__`` where nobody could import it: an interactive prompt, a pipe."""
    main = sys.modules.get(MAIN)
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:
        return str(spec.name)
    return _dotted(Path(file)) if file else MAIN


def _dotted(file: Path) -> str:
    """With the packages that the file belongs to."""
    parts, folder = [file.stem], file.resolve().parent
    while (folder / "__init__.py").exists():
        parts.insert(0, folder.name)
        folder = folder.parent
    return ".".join(parts)
