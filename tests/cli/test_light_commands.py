"""Commands that only look do not load what compiles and runs workflows: people wait for each of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Invoke
from tests.cli.documents import write

HEAVY = ("dalsegno.lang", "dalsegno.lang.python", "dalsegno.app", "dalsegno.nodes", "dalsegno.engine.client")
LOADED = """
import json, sys
from dalsegno.cli.main import main
sys.argv = ["dalsegno", *sys.argv[1:]]
try:
    main()
finally:
    print(json.dumps([name for name in sys.modules if name.startswith("dalsegno")]), file=sys.stderr)
"""


@pytest.mark.parametrize("command", [["ls"], ["ls", "--json"], ["--help"], ["--version"]])
def test_looking_loads_no_compiler(invoke: Invoke, folder: Path, command: list[str]) -> None:
    write(folder, one_flow="return 1")
    assert invoke("run", "one.flow").exit_code == 0
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *command], capture_output=True, text=True, cwd=folder, check=True
    )
    loaded = json.loads(done.stderr.splitlines()[-1])
    assert "dalsegno.cli.main" in loaded
    assert [name for name in HEAVY if name in loaded] == []


def test_the_code_of_unsupported_python_is_the_one_that_errors_are_known_by() -> None:
    from dalsegno.cli.errors import UNSUPPORTED_PYTHON
    from dalsegno.lang.python import UnsupportedPython

    assert UnsupportedPython.code == UNSUPPORTED_PYTHON
