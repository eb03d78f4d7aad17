"""A run that asks for no credential pays nothing for those who do."""

from __future__ import annotations

import pytest

from dalsegno import App
from dalsegno.engine.secrets import redaction
from dalsegno.ports.node import NodeContext


def test_without_credentials_nothing_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("something was searched")

    monkeypatch.setattr(redaction.Redactor, "__init__", never)
    app = App("memory:")

    @app.task
    async def work(ctx: NodeContext, n: int) -> int:
        ctx.log("working")
        if n < 0:
            raise ValueError("negative")
        return n

    nodes = [{"id": "a", "type": "task", "parameters": {"task": "work", "input": "$trigger"}}]
    app.deploy({"name": "graph", "nodes": nodes})
    app.deploy_script('workflow s(n) { try { await Task.run("work", -1) } catch (e) { return e.message } }')
    with app.running():
        assert app.start("graph", 3).result(timeout=20) == 3
        assert app.start("s", 1).result(timeout=20) == "negative"


def test_keys_and_ciphers_are_not_loaded_before_they_are_needed() -> None:
    import subprocess
    import sys

    code = (
        "import sys; from dalsegno import App; App('memory:').close(); print('cryptography' in sys.modules)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert found.stdout.strip() == "False"
