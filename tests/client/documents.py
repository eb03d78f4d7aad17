"""Workflows that the client's tests deploy."""

from __future__ import annotations

from typing import Any

GREET: dict[str, Any] = {
    "name": "greet",
    "nodes": [
        {
            "id": "say",
            "type": "edit",
            "parameters": {"assignments": [{"name": "text", "value": "Hello, {{ input.name }}!"}]},
        }
    ],
    "output": "$say.text",
}

FAILS: dict[str, Any] = {
    "name": "fails",
    "nodes": [{"id": "try", "type": "task", "parameters": {"task": "fail"}}],
}

WAITS: dict[str, Any] = {
    "name": "waits",
    "nodes": [
        {"id": "go", "type": "wait", "parameters": {"resume": "signal", "signal": "go", "timeout": "1h"}}
    ],
    "output": "$go.by",
}

ASKS: dict[str, Any] = {
    "name": "asks",
    "nodes": [
        {
            "id": "ask",
            "type": "approval",
            "parameters": {
                "message": "May I?",
                "approvers": ["Ann"],
                "form": {"type": "object", "properties": {"limit": {"type": "integer"}}},
                "timeout": "1h",
            },
        }
    ],
    "output": "$ask",
}

SCRIPT = """

const twice = await Task.run("double", inputs.n)
const decision = await Signal.when("approved")
return {twice, by: decision.by}
"""
