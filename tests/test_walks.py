"""How many files one operation passes through: so many a reader has to open to follow it."""

from __future__ import annotations

import re
from pathlib import Path

from tests.servers.forking import run_python

ROOT = Path(__file__).parents[1]
MOST = {"token": 31, "start": 35, "why": 15, "why-script": 35}


def test_walks_are_short() -> None:
    ended = run_python(str(ROOT / "scripts" / "walks.py"), *MOST)
    assert ended.returncode == 0, ended.stderr
    files = {
        name: int(count) for name, count in re.findall(r"^([\w-]+): (\d+) files$", ended.stdout, re.MULTILINE)
    }
    assert files.keys() == MOST.keys()
    assert {name: count for name, count in files.items() if count > MOST[name]} == {}
