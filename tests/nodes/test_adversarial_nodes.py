"""Every node type with the sizes that a hostile caller would choose: bounded in time, in memory, and in how long it
keeps the event loop from other work. A type without a row here fails."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from dalsegno.engine.settings import EngineLimits
from dalsegno.engine.steps.budget import StepMeter
from dalsegno.engine.steps.tasks import Tasks, make_task
from dalsegno.errors import DalSegnoError
from dalsegno.graph.templates import compile_template
from dalsegno.lang import ExpressionFailed, Limits, RootNames
from dalsegno.nodes.http.service import HttpService
from dalsegno.ports.node import NodeError
from tests.loop_gaps import LoopGaps
from tests.nodes.fakes import REGISTRY, FakeContext
from tests.peak_memory import peak_kib, reset_peak

SECONDS = 5.0
"""Of processor time; most take less than half a second."""
GAP = 0.2
"""Seconds of processor time for which the event loop does nothing else; most take less than 0.05."""
MEGABYTES = 60
LIMITS = EngineLimits(expressions=Limits(instructions=200_000), step_instructions=1_000_000)

TEXT = "ab" * 4_000_000
NUMBERS = [(number * 7919) % 100_003 for number in range(60_000)]
OBJECTS = [{"id": number % 997, "deep": {"list": [number, str(number)]}} for number in range(20_000)]
WIDE = {f"key{number}": number for number in range(20_000)}
PRODUCT = "$numbers.map(a => $numbers.map(b => a + b).length).length"
"""Far more instructions than any limit."""

REFUSED = "HTTP_CONNECTION_REFUSED"
NEVER = "DS-900"
"""A trigger is never run: it only marks where an execution starts."""

ROOTS = {"text": TEXT, "numbers": NUMBERS, "objects": OBJECTS, "wide": WIDE, "$json": OBJECTS}


class Row(NamedTuple):
    parameters: Mapping[str, Any]
    given: Mapping[str, Any] = {}
    roots: Mapping[str, Any] = {}
    ends: str = "done"
    """Or the code of its error."""


def tasks() -> Tasks:
    found = Tasks()

    async def echo(value: Any) -> Any:
        return value

    found.register(make_task(echo))
    return found


ROWS: dict[str, list[Row]] = {
    "aggregator": [Row({"timeout": "1m"}, {"payload": OBJECTS})],
    "approval": [
        Row({"message": "$text"}),
        Row({"approvers": "$numbers"}),
        Row({"form": {"patternProperties": {rf"\pL{{{900 - number}}}": {} for number in range(60)}}}),
    ],
    "conditional": [
        Row({"expression": f"{PRODUCT} > 1"}, ends="LimitExceeded"),
        Row({"expression": "$text == $text and $objects == $objects"}),
    ],
    "datetime": [
        Row({"operation": "format", "value": "$text"}, ends="INVALID_PARAMETERS"),
        Row({"format": "$text"}, ends="INVALID_PARAMETERS"),
        Row({"value": "$numbers"}, ends="INVALID_PARAMETERS"),
    ],
    "dedupe": [
        Row({}),
        Row({"fields": ["deep.list", "id"]}),
        Row({"expression": "[item.deep, $numbers.length]"}),
    ],
    "edit": [
        Row(
            {"assignments": [{"name": f"a{number}", "value": "$text"} for number in range(80)]},
            roots={"$json": WIDE},
        ),
        Row(
            {"assignments": [{"name": f"new{number}", "value": number} for number in range(1500)]},
            roots={"$json": WIDE},
        ),
        Row({"target_path": PRODUCT, "assignments": [{"name": "a", "value": 1}]}, ends="LimitExceeded"),
        Row({"assignments": [{"name": "a", "value": "$text", "type": "number"}]}, ends="EDIT_FAILED"),
        Row({"assignments": [{"name": "a", "value": "$text", "type": "json"}]}, ends="EDIT_FAILED"),
    ],
    "filter": [
        Row({"expression": "item.id % 2 == 0 and item.deep.list[1] != ''"}),
        Row({"expression": PRODUCT}, ends="LimitExceeded"),
    ],
    "group": [
        Row({"field": "deep"}),
        Row({"expression": "item.id % 3"}),
        Row({"rules": ["id", "deep.list"]}),
    ],
    "http": [
        Row({"url": "http://127.0.0.1:1/?q={{ $text }}"}, ends=REFUSED),
        Row({"url": "http://127.0.0.1:1/", "body": "$objects"}, ends=REFUSED),
    ],
    "input": [Row({}, {"start": OBJECTS})],
    "limit": [Row({"count": 10_000, "keep": "last"})],
    "log": [Row({"message": "$objects"}), Row({"message": "{{ $text }}{{ $text }}"})],
    "manual": [Row({}, {"start": OBJECTS}, ends=NEVER)],
    "map": [
        Row({"expression": "{id: item.id, list: item.deep.list.map(x => x)}"}),
        Row({"expression": PRODUCT}, ends="LimitExceeded"),
    ],
    "merge": [
        Row({"mode": "combine"}, {"payload": [WIDE] * 50}),
        Row({"mode": "append"}, {"payload": [OBJECTS] * 100}),
    ],
    "output": [Row({}, {"outputs": {f"n{number}": OBJECTS for number in range(1000)}})],
    "publish": [
        Row({"key": "all", "value": "$objects"}, ends="DS-150"),
        Row({"key": "{{ $text }}", "value": 1}, ends="DS-120"),
    ],
    "schedule": [Row({"cron": "0 0 29 2 *"}, ends=NEVER)],
    "script": [Row({"source": "return 1", "input": "$objects"})],
    "sort": [
        Row({"input_array": "$numbers"}),
        Row({"rules": ["deep", {"field": "id", "direction": "desc"}]}),
        Row({"expression": PRODUCT}, ends="LimitExceeded"),
    ],
    "split": [Row({"input_array": "$numbers"})],
    "switch": [
        Row({"rules": [{"value": "$text", "operator": "contains", "compare": "abba"} for _ in range(100)]}),
        Row(
            {"rules": [{"value": f"{{{{ {PRODUCT} }}}}", "compare": number} for number in range(12)]},
            ends="LimitExceeded",
        ),
    ],
    "task": [Row({"task": "echo", "input": "$objects"}, {"services": {"tasks": tasks()}})],
    "wait": [Row({"resume": "signal", "signal": "{{ $text }}"}, ends="INVALID_PARAMETERS")],
    "webhook": [Row({"path": "hook"}, {"start": OBJECTS}, ends=NEVER)],
    "workflow": [Row({"name": "child", "input": "$objects"})],
}

CASES = [
    pytest.param(name, row, id=f"{name}-{number}")
    for name, rows in ROWS.items()
    for number, row in enumerate(rows)
]


def test_every_node_type_has_a_row() -> None:
    assert set(ROWS) == set(REGISTRY.types()), "a new node type needs a row with adversarial sizes"


async def prepared(ctx: FakeContext, name: str, parameters: Mapping[str, Any]) -> Any:
    """Typed parameters, rendered as the engine renders them."""
    node_type = REGISTRY.get(name)
    kinds = node_type.spec.kinds
    templates = {key: value for key, value in parameters.items() if kinds.get(key, "template") == "template"}
    others = {key: value for key, value in parameters.items() if key not in templates}
    names = RootNames.of(root for root in ctx.roots if not root.startswith("$"))
    template = compile_template(templates, names, "")
    rendered = template.render(ctx.lookup, now=ctx.now, meter=ctx.meter)
    return node_type.parse({**rendered, **ctx.compile(node_type, others)})


async def run(name: str, row: Row) -> str:
    """What became of it: ``done``, or the code of the error."""
    http = HttpService()
    ctx = FakeContext({**ROOTS, **row.roots}, **{"services": {"http": http}, **row.given})
    ctx.meter = StepMeter(LIMITS)
    try:
        await REGISTRY.get(name).execute(ctx, await prepared(ctx, name, row.parameters))
    except NodeError as error:
        return error.failure.code
    except (DalSegnoError, ExpressionFailed) as error:
        return error.code
    finally:
        await http.close()
    return "done"


@pytest.fixture(scope="module")
def _first_use() -> None:
    """The first request of a process loads modules, and so does the first long evaluation."""
    asyncio.run(run("http", Row({"url": "http://127.0.0.1:1/"})))
    asyncio.run(run("conditional", ROWS["conditional"][0]))


@pytest.fixture(scope="module")
def _few_objects(_first_use: None) -> None:
    """The garbage collector ignores what else lives in the tests' process, from now on."""
    gc.collect()
    gc.freeze()


@pytest.mark.usefixtures("_few_objects")
@pytest.mark.parametrize(("name", "row"), CASES)
async def test_a_node_is_bounded(name: str, row: Row) -> None:
    resident = reset_peak()
    began = time.process_time()
    async with LoopGaps() as gaps:
        became = await run(name, row)
    spent = time.process_time() - began
    grown = (peak_kib() - resident) / 1024
    assert became == row.ends
    assert spent < SECONDS
    # Pure ones are computed in a process when they are heavy.
    assert REGISTRY.get(name).pure or gaps.longest < GAP
    assert grown < MEGABYTES
