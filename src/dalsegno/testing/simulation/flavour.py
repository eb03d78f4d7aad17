"""What a random graph is made of: how likely each kind of node is, and its parameters."""

from __future__ import annotations

from random import Random
from typing import Any

from dalsegno.testing.simulation.nodes import ALWAYS

MAX_DEPTH = 3
"""How deep splits are nested."""
PATIENT = "30d"
"""A deadline that no run reaches."""


class Flavour:
    """The character of one graph: some have many failures, some deadlines, some races, most a little of each."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.failures = random.choice((0.0, 0.1, 0.3, 0.5))
        self.deadlines = random.random() < 0.25
        self.races = random.random() < 0.3
        self.halts = random.random() < 0.5
        self.gates = random.choice((0.0, 0.15, 0.4))
        self.slow = random.choice((0.0, 0.2, 0.6))
        self.large = random.random() < 0.12
        self.dependencies = random.random() < 0.3

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def kinds(self, ports: int, depth: int, budget: int) -> tuple[list[str], list[float]]:
        weights = {"work": 8.0, "conditional": 2.5, "switch": 1.5, "wait": 1.0, "log": 0.4, "output": 0.15}
        weights["merge"] = 4.0 if ports > 1 else 0.3
        weights["split"] = 3.0 if depth < MAX_DEPTH and budget > 1 else 0.0
        return list(weights), list(weights.values())

    # -- nodes ----------------------------------------------------------------------------------------------------

    def work(
        self, loops: tuple[str, ...], sources: list[dict[str, Any]]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        parameters: dict[str, Any] = {}
        fields: dict[str, Any] = {}
        if self.chance(self.failures):
            parameters["fails"] = self.random.choice((1, 1, 2, ALWAYS))
            if loops and self.chance(0.6):
                parameters["when"] = self.random.choice(("{{ $index % 2 == 0 }}", "{{ $index == 1 }}"))
            if self.chance(0.5):
                fields["retry"] = {
                    "max_attempts": self.random.choice((2, 3)),
                    "initial_delay": self.random.choice((0, 0.2, 2)),
                    "jitter": self.random.choice((0, 0.5)),
                }
            self._strategy(fields, halts=bool(loops) or self.halts)
        if self.chance(self.slow):
            parameters["seconds"] = self.random.choice((0.01, 0.3, 2.0, 12.0))
            if self.deadlines and self.chance(0.3):
                fields["timeout"] = self.random.choice((0.2, 1.0, 5.0))
        if self.large and self.chance(0.5):
            parameters["pad"] = self.random.choice((1200, 3000, 5000))
        note = self._note(loops, sources)
        if note is not None:
            parameters["note"] = note
        return parameters, fields

    def _strategy(self, fields: dict[str, Any], *, halts: bool | None = None) -> None:
        """Inside an item a halt ends the item only, so it may always occur there."""
        halts = self.halts if halts is None else halts
        strategy = self.random.choice(("halt", "halt", "ignore", "branch") if halts else ("ignore", "branch"))
        if strategy == "branch":
            fields["branches"] = True
            strategy = "ignore"  # unless an error edge is drawn
        fields["error"] = {"type": strategy}

    def _note(self, loops: tuple[str, ...], sources: list[dict[str, Any]]) -> Any:
        choices: list[Any] = [None, None, 7, "$trigger.k"]
        if loops:
            choices += ["$item", "$index", f"{{{{ ${self.random.choice(loops)}.index }}}}"]
        if len(sources) == 1 and sources[0]["type"] == "work" and "fails" not in sources[0]["parameters"]:
            choices += [f"${sources[0]['id']}.v"]
        return self.random.choice(choices)

    def wait(self) -> dict[str, Any]:
        if self.chance(0.15):
            return {"resume": "until", "until": "2023-11-15T00:00:05Z"}
        return {"amount": self.random.choice((0, 0.5, 3, 40)), "unit": "seconds"}

    def conditional(self, loops: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
        choices = ["$trigger.k > 1", "$trigger.k == 0", "true", "false"]
        if loops:
            choices += ["$index % 2 == 0", "$index > 0", "$index == 0"] * 2
        fields: dict[str, Any] = {}
        expression = self.random.choice(choices)
        if self.chance(self.failures * 0.3):
            expression = "$trigger.k - 'a' > 1"
            self._strategy(fields)
        return {"expression": expression}, fields

    def switch(self, loops: tuple[str, ...]) -> dict[str, Any]:
        value = "$index" if loops and self.chance(0.7) else "$trigger.k"
        rules = [
            {"value": value, "operator": "==", "compare": index}
            for index in range(self.random.choice((1, 2)))
        ]
        return {"rules": rules, "routes": [None] * (len(rules) + self.random.choice((0, 1)))}

    def merge(self) -> tuple[dict[str, Any], dict[str, Any]]:
        fields: dict[str, Any] = {}
        parameters: dict[str, Any] = {"timeout": PATIENT}
        mode = self.random.choice(("append", "append", "append", "first", "combine"))
        if mode != "append":
            parameters["mode"] = mode
        if self.races and self.chance(0.5):
            del parameters["timeout"]
            parameters |= {
                "wait_mode": "wait_for_any",
                "losers": self.random.choice(("keep", "cancel", "cancel")),
            }
        elif self.deadlines and self.chance(0.5):
            parameters["timeout"] = self.random.choice((0.1, 1, 8))
        if self.chance(0.4):
            self._strategy(fields)
        return parameters, fields

    def split(self, depth: int) -> tuple[dict[str, Any], dict[str, Any]]:
        fields: dict[str, Any] = {}
        size = self.random.choice(
            (0, 1, 2, 3, 4, 6) if depth == 0 else (0, 1, 2, 3) if depth == 1 else (0, 1, 2)
        )
        array: Any = [10 * depth + index for index in range(size)]
        if self.chance(0.1):
            array = "$trigger.list"
        if self.chance(self.failures * 0.3):
            array = "$trigger.k"
            self._strategy(fields)
        parameters: dict[str, Any] = {"input_array": array}
        if self.chance(0.5):
            parameters["max_concurrency"] = self.random.choice((1, 2, 3))
        if self.chance(0.3):
            parameters["on_item_error"] = self.random.choice(("collect", "collect", "halt"))
        if "error" not in fields and self.chance(0.3):
            self._strategy(fields)
        return parameters, fields

    def aggregator(self) -> tuple[dict[str, Any], dict[str, Any]]:
        parameters: dict[str, Any] = {}
        fields: dict[str, Any] = {}
        if self.chance(0.15):
            parameters["output"] = self.random.choice(("$index", "$item"))
        if self.deadlines and self.chance(0.4):
            parameters["timeout"] = self.random.choice((0.1, 1, 8))
            self._strategy(fields)
        return parameters, fields

    def header(self, random: Random) -> dict[str, Any]:
        header: dict[str, Any] = {}
        if self.deadlines and random.random() < 0.2:
            header["timeout"] = random.choice((1, 10, 60))
        if random.random() < 0.06:
            header["output"] = random.choice(("$trigger.k", "$trigger.nope.deeper"))
        return header


def draw_flavour(random: Random) -> Flavour:
    return Flavour(random)
