"""Bugs planted in the settlement rules, each found by the seeds that a build tries.

``make soak`` runs this. It shows that the seeds of a build still find what breaks the kernel's promises."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

from dalsegno.testing.simulation.seeds import KINDS, KindName
from tests.simulation import test_script_seeds, test_seeds

pytestmark = [pytest.mark.soak, pytest.mark.own_interpreter]

RULES = "dalsegno.core.settlement"
barriers, finish, machines, settle = (
    import_module(f"{RULES}.{name}") for name in ("barriers", "finish", "machines", "settle")
)
IN_BUILD: dict[KindName, int] = {
    "graphs": test_seeds.IN_BUILD * test_seeds.CHUNK,
    "scripts": test_script_seeds.IN_BUILD * test_script_seeds.CHUNK,
}


def plant(monkeypatch: pytest.MonkeyPatch, rule: Any, bug: Any) -> None:
    """Replace a rule wherever the settlement has it: as a global of a module, or in a table."""
    places = 0
    for name, module in list(sys.modules.items()):
        if not name.startswith(RULES):
            continue
        for key, value in list(vars(module).items()):
            if value is rule:
                monkeypatch.setattr(module, key, bug)
                places += 1
            elif isinstance(value, dict) and not key.startswith("__"):
                for entry in [entry for entry, found in value.items() if found is rule]:
                    monkeypatch.setitem(value, entry, bug)
                    places += 1
    assert places, f"{rule.__name__} is not used"


def nothing(*_: object) -> None:
    """The rule is forgotten."""


def never(*_: object) -> bool:
    return False


refusal = settle._refusal


def a_late_commit_passes(transition: Any, execution: Any, token: Any, *more: Any) -> Any:
    is_late = token.state == "leased" and token.fence != transition.fence
    return None if is_late else refusal(transition, execution, token, *more)


def a_merge_opens_one_early(work: Any, row: Any, spec: Any) -> bool:
    if row.live and row.resolved >= max(row.expected - 1, 1):
        barriers._open(work, row, "open", "open")
        return True
    return False


BUGS: dict[str, tuple[KindName, Callable[..., Any], Callable[..., Any]]] = {
    "a late commit passes": ("graphs", settle._refusal, a_late_commit_passes),
    "a merge opens one early": ("graphs", barriers._judge, a_merge_opens_one_early),
    "a split opens no further items": ("graphs", barriers._reach_milestone, nothing),
    "a gate never closes its edges": ("graphs", settle._close_gate, nothing),
    "the last branch does not end the execution": ("graphs", settle._end_if_last, nothing),
    "an ended scope stays open": ("graphs", settle._end_scope, nothing),
    "a script's completion wakes nothing": ("scripts", machines.judge, nothing),
    "what comes while a script runs is not counted": ("scripts", machines._count_unread, nothing),
    "a script that has moved on is saved": ("scripts", machines.is_outdated, never),
    "tasks of an ended script are not handed over": ("scripts", finish._hand_over, nothing),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_build_finds_it(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    kind, rule, bug = BUGS[name]
    plant(monkeypatch, rule, bug)
    assert first_failure(kind, IN_BUILD[kind]) is not None


def first_failure(kind: KindName, seeds: int) -> int | None:
    craft = KINDS[kind]
    return next((seed for seed in range(seeds) if craft.judge(craft.draw(seed)).findings), None)
