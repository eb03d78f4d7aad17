"""Library nodes run on their own, with finished parameters: the implementation of ``Node.run`` in scripts.

Values come from the script and are never read as templates. Only parameters that are conditions or expressions in a
graph (`filter`, `map`, `conditional` …) are compiled, in the same language. They see `$json`, and `item` and `index`
if the node iterates over a list.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from dalsegno.engine.steps.budget import Meters
from dalsegno.engine.steps.contexts import RunContext
from dalsegno.errors import NotFound
from dalsegno.graph.catalog import NodeSpec
from dalsegno.graph.checks.parameters import describe, form_problems, unwrapped
from dalsegno.graph.checks.settings import read_retry_parameters
from dalsegno.graph.documents.findings import Report
from dalsegno.lang import Expression, ExpressionError, RootNames, compile_condition, compile_expression
from dalsegno.lang.runtime.limits import Meter
from dalsegno.ports.node import (
    AwaitSignal,
    FanOut,
    NodeError,
    NodeTypes,
    Route,
    SleepUntil,
    StartChild,
    Working,
)

WORKING_PAYLOAD = "$json"
"""The data that edit and list nodes work on. A script passes it under this name with the parameters; otherwise it
is the `input_array`.
"""

ADVICE = {
    "split": "use a loop, or Promise.all over the list",
    "aggregator": "use a loop, or Promise.all over the list",
    "merge": "use Promise.all, Promise.any or Promise.race",
    "wait": "use Timer.delay, Timer.until or Signal.when",
    "trigger": "it starts workflows and does nothing itself",
}
"""Kinds of nodes that only work between the edges of a graph, and the alternative in a script."""

ADVICE_ON_RESULT: dict[type, str] = {
    AwaitSignal: "use Signal.next or Signal.when",
    StartChild: "use Workflow.run or Workflow.start; a script's own functions need no node",
    SleepUntil: "use Timer.delay or Timer.until",
    FanOut: "use a loop, or Promise.all over the list",
}


async def run_library_node(types: NodeTypes, type_name: str, ctx: RunContext, meters: Meters) -> Any:
    """Run the node and return its output, or its question to people. Raises NodeError, or the node's own exception."""
    spec = types.find(type_name)
    if spec is None:
        raise NotFound(f"there is no node type '{type_name}'; `dalsegno nodes` lists them all")
    if spec.control in ADVICE:
        raise _no_meaning(type_name, ADVICE[spec.control])
    if not isinstance(ctx.payload, Mapping):
        raise _refusal(f"the parameters of node type '{type_name}' must be an object")
    given = dict(ctx.payload)
    working = given.pop(WORKING_PAYLOAD, given.get("input_array"))
    node_type = types.get(spec.type)
    meter = meters.new(may_be_light=node_type.pure)
    _check(spec, given, meter)
    expressions = _expressions(spec, given)
    if spec.type == "http":
        _use_retry(given, ctx)
    parameters = node_type.parse({key: value for key, value in given.items() if key not in expressions})
    ctx.enter_node(spec.type, working, expressions, meter)
    output = await node_type.execute(ctx, parameters)
    if isinstance(output, AwaitSignal) and output.question is not None:
        return output
    advice = ADVICE_ON_RESULT.get(type(output))
    if advice is not None:
        raise _no_meaning(type_name, advice)
    return output.output if isinstance(output, Route | Working) else output


def _check(spec: NodeSpec, given: Mapping[str, Any], meter: Meter) -> None:
    """Check parameters as in a document: required ones must be present, unknown ones are refused."""
    light = meter if meter.limits.is_light else None
    found = [*spec.check(given), *form_problems(spec, given, light)]
    problems = [problem for problem in found if problem.severity == "error"]
    if problems:
        listed = [{"path": list(problem.path), "message": problem.message} for problem in problems]
        message = "; ".join(problem.message for problem in problems)
        raise NodeError(message, code="INVALID_PARAMETERS", details={"problems": listed}, retryable=False)


def _expressions(spec: NodeSpec, given: Mapping[str, Any]) -> dict[str, Expression]:
    found = {}
    for key, kind in spec.kinds.items():
        value = given.get(key)
        if value is None or kind not in ("condition", "expression"):
            continue
        try:
            text = json.dumps(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise _refusal(f"parameter '{key}' is no {kind}: {error}") from None
        operator = given.get("operator")
        try:
            found[key] = _compiled(
                kind, text, operator if isinstance(operator, str) else None, spec.local_names
            )
        except ExpressionError as error:
            raise NodeError(
                f"parameter '{key}': {describe(error)}",
                code="BAD_EXPRESSION",
                details={"parameter": key},
                retryable=False,
            ) from None
    return found


@lru_cache(maxsize=512)
def _compiled(kind: str, text: str, operator: str | None, local_names: frozenset[str]) -> Expression:
    """Compile a parameter given as JSON. Cached, because scripts tend to pass the same few repeatedly."""
    names = RootNames.of(variables=local_names)
    value = json.loads(text)
    if kind == "condition":
        return compile_condition(value, operator, names)
    if isinstance(value, list | dict):
        raise ExpressionError("an expression is needed here, as text")
    return compile_expression(unwrapped(value) if isinstance(value, str) else text, names=names)


def _use_retry(given: Mapping[str, Any], ctx: RunContext) -> None:
    """Apply the retry shorthand of the http node; options of the call take precedence."""
    report = Report()
    policy = read_retry_parameters(given, "", report)
    if report.failed:
        raise _refusal("; ".join(finding.message for finding in report.findings))
    if policy is not None:
        ctx.use_retry(policy)


def _no_meaning(type_name: str, advice: str) -> NodeError:
    return _refusal(f"a node of type '{type_name}' cannot be used in a script: {advice}")


def _refusal(message: str) -> NodeError:
    return NodeError(message, code="WRONG_ARG_TYPE", retryable=False)
