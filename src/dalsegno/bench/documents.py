"""The graphs the workloads run."""

from __future__ import annotations

from typing import Any


def chain(steps: int) -> dict[str, Any]:
    """``steps`` durable steps in a row, each a Python task with a 10-byte output."""
    nodes = [{"id": f"s{index}", "type": "task", "parameters": {"task": "step"}} for index in range(steps)]
    edges = [{"id": f"e{index}", "src": f"s{index}", "dst": f"s{index + 1}"} for index in range(steps - 1)]
    return {"name": f"bench-chain-{steps}", "nodes": nodes, "edges": edges}


def fan_out(name: str, output: str = "small") -> dict[str, Any]:
    """A list of any length, one task per item, one list of results."""
    task = {"task": output, "input": "$item"}
    return {
        "name": name,
        "nodes": [
            {"id": "each", "type": "split", "parameters": {"input_array": "$trigger.items"}},
            {"id": "work", "type": "task", "parameters": task},
            {"id": "all", "type": "aggregator", "parameters": {}},
        ],
        "edges": [{"id": "in", "src": "each", "dst": "work"}, {"id": "out", "src": "work", "dst": "all"}],
        "output": "{{ $all.length }}",
    }


def sleeper() -> dict[str, Any]:
    """Sleeps until the time it is given, then notes when it woke."""
    return {
        "name": "bench-sleeper",
        "nodes": [
            {"id": "sleep", "type": "wait", "parameters": {"resume": "until", "until": "$trigger.until"}},
            {"id": "woke", "type": "task", "parameters": {"task": "woke", "input": "$trigger.until"}},
        ],
        "edges": [{"id": "then", "src": "sleep", "dst": "woke"}],
    }
