"""What the writer of a fixture starts, and how each execution goes on once the store is opened again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

FOREVER = "36500d"
"""A time that never comes; what is due after an hour has passed long ago, by the clock of the writer."""

Step = list[Any]
"""``["signal", name, payload]``, ``["decide", node, decision, data]``, ``["resume"]``, ``["trigger"]``, ``["cancel"]``,
``["terminate"]``, ``["pause"]``. ``["child", workflow, …]``: the same, to a child."""


@dataclass(frozen=True)
class Case:
    workflow: str
    input: Any = None
    before: tuple[Step, ...] = ()
    """Done while the fixture is written, once the execution has come to rest."""
    after: tuple[Step, ...] = ()
    """Done once the store is opened again."""
    options: dict[str, Any] = field(default_factory=dict)
    varies: tuple[str, ...] = ()
    """Events that the order of commits decides about, which are not counted."""


def signal(name: str, payload: Any = None) -> Step:
    return ["signal", name, payload]


GO = (signal("go", "yes"),)

PYTHON = {
    "p_task": Case("p_task", 4),
    "p_values": Case("p_values", 7, after=(signal("go", 9),)),
    "p_in_except": Case("p_in_except", "a-1", after=GO),
    "p_chained": Case("p_chained", "a-1", after=GO),
    "p_in_finally": Case("p_in_finally", 3, after=GO),
    "p_returning": Case("p_returning", 21),
    "p_task_error": Case("p_task_error", "bang", after=GO),
    "p_library_errors": Case("p_library_errors", "this", after=GO),
    "p_catching": Case("p_catching", "that"),
    "p_iterators": Case("p_iterators", 6, after=GO),
    "p_closures": Case("p_closures", 5, before=(signal("go", "one"),), after=(signal("go", "two"),)),
    "p_loop": Case(
        "p_loop", ["a", "b", "c"], before=(signal("go", 1), signal("go", "again")), after=(signal("go", 2),)
    ),
    "p_comprehension": Case("p_comprehension", [0, 1, 2]),
    "p_gather": Case("p_gather", 3),
    "p_gather_limited": Case("p_gather_limited", [1, 2, 3, 4, 5]),
    "p_race_signal": Case("p_race_signal", after=(signal("paid", 12),)),
    "p_race_timer": Case("p_race_timer"),
    "p_first": Case("p_first", 6),
    "p_first_fails": Case("p_first_fails"),
    "p_promise_kept": Case("p_promise_kept", 2, after=GO),
    "p_timeout": Case("p_timeout"),
    "p_signal_timeout": Case("p_signal_timeout"),
    "p_over_time": Case("p_over_time"),
    "p_approval": Case(
        "p_approval", "bo", after=(["decide", "approval", "approved", {"course": "maths", "seats": 2}],)
    ),
    "p_approval_rejected": Case("p_approval", "cy", after=(["decide", "approval", "rejected", None],)),
    "p_decision_kept": Case(
        "p_decision_kept",
        "di",
        before=(["decide", "approval", "approved", {"course": "music", "seats": 1}],),
        after=GO,
    ),
    "p_parent": Case("p_parent", 8, after=(["child", "p_child", "signal", "go", "child"],)),
    "p_parent_of_script": Case(
        "p_parent_of_script", 9, after=(["child", "s_child", "signal", "go", "child"],)
    ),
    "p_clock": Case("p_clock"),
    "p_remote": Case("p_remote", 40),
    "p_cleaning": Case("p_cleaning", before=(["cancel"],), after=(signal("cleaned"),)),
    "p_left_cleaning": Case("p_left_cleaning", before=(["cancel"], ["terminate"])),
    "p_verbs": Case("p_verbs", 1, after=GO, varies=("TimerFired",)),
    "p_retry": Case("p_retry", 5),
    "p_running": Case("p_running", 6),
    "p_instances": Case("p_instances", 11, after=GO),
    "p_manager": Case("p_manager", 1, after=GO),
    "p_match": Case("p_match", {"kind": "book", "copies": 3}, after=GO),
    "p_large": Case("p_large", 900, after=GO),
    "p_done": Case("p_done", 1),
    "p_failed": Case("p_failed", 2),
    "p_limited_first": Case("p_limited", "ann", after=GO),
    "p_limited_second": Case("p_limited", "ann", after=GO),
}

SCRIPTS = {
    "s_task": 'return await Task.with({queue: "later"}).run("tenfold", inputs.n) + 1',
    "s_timer": 'const begun = Date.now()\nawait Timer.delay("1h")\nreturn Date.now() - begun >= 3600000',
    "s_until": 'await Timer.until("2023-12-24T18:00Z")\nreturn "presents"',
    "s_signal": 'const found = await Signal.next("go")\nreturn {found, n: inputs.n}',
    "s_when": 'try { return await Signal.when("never", {timeout: "1h"}) } catch (e) { return [e.code, "late"] }',
    "s_all": 'const slow = Task.with({queue: "later"})\n'
    'return await Promise.all({a: Task.run("add_one", 1), b: slow.run("tenfold", 2), c: Signal.next("go"), d: 4})',
    "s_all_fails": "try {\n"
    ' await Promise.all([Signal.next("never"), Task.with({queue: "later"}).run("fail_later", "x")]) }\n'
    "catch (e) { return [e.code, e.type, e.message] }",
    "s_any": 'return await Promise.any([Task.run("break_down", "x"), Task.with({queue: "later"}).run("tenfold", 3)])',
    "s_race": 'return await Promise.race_kv({timer: Timer.delay("1h"), signal: Signal.next("never")})',
    "s_settled": "return (\n"
    'await Promise.allSettled([Task.run("break_down", "x"), Signal.next("go"), Timer.delay("1h")]))'
    ".map(r => [r.status, r?.value ?? r?.reason?.type])",
    "s_finally": "let steps = []\n"
    'try { try { await Task.run("break_down", "bang") } catch (e) { steps.push(await Signal.next("go")); throw e }\n'
    'finally { await Timer.delay("50ms"); steps.push("finally") } }\n'
    "catch (e) { steps.push([e.type, e.message]) }\nreturn steps",
    "s_thrown": 'try { throw {code: "EMPTY", message: "nothing to pay"} } finally { await Signal.next("go") }',
    "s_loop": "let total = 0\nfor (let [key, n] of {a: 1, b: 2, c: 3}) {\n  for (let i = 0; i < n; i++) {\n"
    '    if (i == 1) { continue }\n    total += n * (await Signal.next("go"))\n  }\n}\nreturn total',
    "s_nested": "let calls = 0\nfunction outer(factor) {\n  const inner = value => {\n"
    " calls += 1; return value * factor }\n"
    '  function ask(name) { return inner(await Signal.next(name)) }\n  return [ask("go"), inner(1)]\n}\n'
    "return [outer(3), calls]",
    "s_callback": 'return [1, 2, 3].map(n => n * (await Task.with({queue: "later"}).run("tenfold", n)))',
    "s_child": 'return [inputs.n, await Signal.next("go")]',
    "s_parent": 'const child = Workflow.run("s_child", {n: 3})\nreturn [await child, "parent"]',
    "s_parent_of_python": 'return [await Workflow.run("p_child", 4), "parent"]',
    "s_approval": "const d =\n"
    'await approval("Pay?", {approvers: ["ann"], form: {type: "object", required: ["cents"]}})\n'
    "return [d.approved, d.by, d.data, d.comment]",
    "s_node": 'return await Node.with({queue: "later"}).run("log", {message: "from a script"})',
    "s_remote": 'return await Task.with({queue: "programs"}).run("outside", inputs.n) + 1',
    "s_cleaning": 'try { await Signal.next("never") } finally { await Signal.next("cleaned") }',
    "s_missing": 'return await Task.run("appear", 5)',
    "s_large": 'let rows = []\nfor (let i = 0; i < 900; i++) { rows.push("row " + i + "x".repeat(50)) }\n'
    'await Signal.next("go")\nreturn rows.length + rows[899].length',
    "s_promise_kept": 'const timer = Timer.delay("1h")\nconst task = Task.with({queue: "later"}).run("tenfold", 8)\n'
    'const go = await Signal.next("go")\nawait timer\nreturn [go, await task, await task]',
    "s_tags": 'set_tags({stage: "waiting"})\nawait Signal.next("go")\nset_tags({stage: null})\nreturn "tagged"',
    "s_large_input": 'return 1 + await Task.with({queue: "later"}).run("measure", "x".repeat(100000))',
    "s_large_input_left": 'Task.with({queue: "later"}).run("measure", "x".repeat(100000))\nreturn "left"',
    "s_done": 'return inputs.n + await Task.run("add_one", 1)',
    "s_failed": 'await Task.run("break_down", "always")',
    "tick": 'return "tick"',
}

SCRIPT_CASES = {
    "s_task": Case("s_task", {"n": 3}),
    "s_timer": Case("s_timer"),
    "s_until": Case("s_until"),
    "s_signal": Case("s_signal", {"n": 2}, after=GO),
    "s_signal_early": Case("s_signal", {"n": 3}, after=(signal("go", {"deep": [1, {"a": None}]}),)),
    "s_when": Case("s_when"),
    "s_all": Case("s_all", after=GO),
    "s_all_fails": Case("s_all_fails"),
    "s_any": Case("s_any"),
    "s_race": Case("s_race"),
    "s_settled": Case("s_settled", after=GO),
    "s_finally": Case("s_finally", before=GO),
    "s_finally_caught": Case("s_finally", after=GO),
    "s_thrown": Case("s_thrown", after=GO),
    "s_loop": Case(
        "s_loop", before=(signal("go", 5),), after=(signal("go", 6), signal("go", 7), signal("go", 8))
    ),
    "s_nested": Case("s_nested", after=(signal("go", 4),)),
    "s_callback": Case("s_callback"),
    "s_parent": Case("s_parent", after=(["child", "s_child", "signal", "go", "child"],)),
    "s_parent_of_python": Case("s_parent_of_python", after=(["child", "p_child", "signal", "go", "child"],)),
    "s_approval": Case("s_approval", after=(["decide", "approval", "approved", {"cents": 5}],)),
    "s_node": Case("s_node"),
    "s_remote": Case("s_remote", {"n": 50}),
    "s_cleaning": Case("s_cleaning", before=(["cancel"],), after=(signal("cleaned"),)),
    "s_missing": Case("s_missing"),
    "s_large": Case("s_large", after=GO),
    "s_promise_kept": Case("s_promise_kept", after=GO),
    "s_large_input": Case("s_large_input"),
    "s_large_input_left": Case("s_large_input_left"),
    "s_tags": Case("s_tags", after=GO),
    "s_done": Case("s_done", {"n": 1}),
    "s_failed": Case("s_failed"),
}


def node(id: str, type: str, **parameters: Any) -> dict[str, Any]:
    """What is no parameter is written with an underscore: ``_queue``."""
    own = {name[1:]: parameters.pop(name) for name in list(parameters) if name.startswith("_")}
    return {"id": id, "type": type, "parameters": parameters, **own}


def graph(*nodes: dict[str, Any], edges: str = "", **fields: Any) -> dict[str, Any]:
    """``edges``: ``a>b a>c``, with ``!`` before the id of an error edge's target."""
    made = []
    for edge in edges.split():
        src, _, dst = edge.partition(">")
        made.append(
            {"id": f"{src}-{dst.lstrip('!')}", "src": src, "dst": dst.lstrip("!"), "is_error": "!" in dst}
        )
    return {"nodes": list(nodes), "edges": made, **fields}


def tenfold(id: str, value: Any, **more: Any) -> dict[str, Any]:
    return node(id, "task", task="tenfold", input=value, _queue="later", **more)


GRAPHS = {
    "g_split": graph(
        node("each", "split", input_array="$trigger.items"),
        node("ask", "wait", resume="signal", signal="go-{{ $item }}"),
        node("all", "aggregator", output="{item: $item, answer: $ask}"),
        edges="each>ask ask>all",
    ),
    "g_window": graph(
        node("each", "split", input_array="$trigger.items", max_concurrency=2),
        tenfold("work", "$item"),
        node("all", "aggregator"),
        edges="each>work work>all",
    ),
    "g_nested_splits": graph(
        node("rows", "split", input_array="$trigger.rows"),
        node("cells", "split", input_array="$item"),
        tenfold("work", "$item"),
        node("row", "aggregator"),
        node("all", "aggregator"),
        edges="rows>cells cells>work work>row row>all",
    ),
    "g_collect": graph(
        node("each", "split", input_array="$trigger.items", on_item_error="collect"),
        node("work", "task", task="fail_later", input="item", _queue="later"),
        node("all", "aggregator"),
        edges="each>work work>all",
    ),
    "g_aggregator_timeout": graph(
        node("each", "split", input_array="$trigger.items"),
        node("ask", "wait", resume="signal", signal="go-{{ $item }}"),
        node("all", "aggregator", timeout="1h"),
        edges="each>ask ask>all",
    ),
    "g_merge_all": graph(
        node("left", "log", message="here"),
        node("right", "wait", resume="signal", signal="go"),
        tenfold("third", 4),
        node("join", "merge", timeout=FOREVER),
        edges="left>join right>join third>join",
    ),
    "g_merge_any": graph(
        node("left", "wait", resume="signal", signal="go"),
        node("right", "wait", resume="signal", signal="never"),
        node("join", "merge", mode="first", wait_mode="wait_for_any", losers="cancel"),
        node("then", "log", message="joined"),
        edges="left>join right>join join>then",
    ),
    "g_merge_any_kept": graph(
        node("left", "log", message="first"),
        node("right", "wait", resume="signal", signal="go"),
        node("join", "merge", mode="first", wait_mode="wait_for_any"),
        node("then", "log", message="joined"),
        edges="left>join right>join join>then",
    ),
    "g_merge_timeout": graph(
        node("left", "log", message="here"),
        node("right", "wait", resume="signal", signal="never"),
        node("join", "merge", timeout="1h"),
        edges="left>join right>join",
    ),
    "g_wait": graph(
        node("rest", "wait", amount=1, unit="hours"), node("then", "log", message="rested"), edges="rest>then"
    ),
    "g_until": graph(node("rest", "wait", resume="until", until="2023-12-24T18:00:00Z")),
    "g_signal": graph(
        node("paid", "wait", resume="signal", signal="paid-{{ $trigger.order }}"),
        node(
            "ship", "edit", mode="keep_only", assignments=[{"name": "shipped", "value": "{{ $paid.amount }}"}]
        ),
        edges="paid>ship",
    ),
    "g_signal_timeout": graph(
        node(
            "paid",
            "wait",
            resume="signal",
            signal="never",
            timeout="1h",
            _error={"type": "branch", "error_edge": "paid-late"},
        ),
        node("ship", "log", message="paid"),
        node("late", "log", message="late"),
        edges="paid>ship paid>!late",
    ),
    "g_error_branch": graph(
        node(
            "work",
            "task",
            task="fail_later",
            input="boom",
            _queue="later",
            _error={"type": "branch", "error_edge": "work-alarm"},
        ),
        node("fine", "log", message="fine"),
        node("alarm", "log", message="{{ $work.error.message }}"),
        edges="work>fine work>!alarm",
    ),
    "g_on_error_edge": graph(
        node(
            "work",
            "task",
            task="break_down",
            input="boom",
            _error={"type": "branch", "error_edge": "work-ask"},
        ),
        node("fine", "log", message="fine"),
        node("ask", "wait", resume="signal", signal="go"),
        edges="work>fine work>!ask",
    ),
    "g_retry": graph(
        node("work", "task", task="flaky", input=7, _retry={"max_attempts": 3, "initial_delay": "1h"})
    ),
    "g_fails": graph(node("work", "task", task="fail_later", input="boom", _queue="later")),
    "g_running": graph(node("work", "task", task="hang", input=8)),
    "g_missing": graph(node("work", "task", task="appear", input=9)),
    "g_switch": graph(
        node("ask", "wait", resume="signal", signal="go"),
        node(
            "which",
            "switch",
            rules=[{"value": "$ask", "compare": "no"}, {"value": "$ask", "compare": "yes"}],
            routes=["which-no", "which-yes"],
        ),
        node("no", "log", message="no"),
        node("yes", "log", message="yes"),
        edges="ask>which which>no which>yes",
    ),
    "g_approval": graph(
        node(
            "gate",
            "approval",
            message="Refund {{ $trigger.amount }}?",
            approvers=["ann"],
            form={"type": "object", "required": ["amount"]},
        ),
        node(
            "granted",
            "conditional",
            expression="$gate.decision == 'approved'",
            true_edge_id="granted-pay",
            false_edge_id="granted-refuse",
        ),
        node("pay", "log", message="paying {{ $gate.data.amount }}, says {{ $gate.by }}"),
        node("refuse", "log", message="refused"),
        edges="gate>granted granted>pay granted>refuse",
    ),
    "g_children": graph(
        node("python", "workflow", name="p_child", input=1),
        node("script", "script", source='return await Signal.next("go")'),
        node("graph", "workflow", name="g_signal", input={"order": 5}),
        node("join", "merge", mode="append", timeout=FOREVER),
        edges="python>join script>join graph>join",
    ),
    "g_remote": graph(node("work", "task", task="outside", input="$trigger.n", _queue="programs")),
    "g_plain": graph(
        node("work", "task", task="add_one", input="$trigger.n"),
        node("then", "log", message="{{ $work }}"),
        edges="work>then",
    ),
    "g_paused": graph(
        node("rest", "wait", amount=1, unit="hours"),
        node("then", "log", message="resumed"),
        edges="rest>then",
    ),
    "g_limited": graph(
        node("ask", "wait", resume="signal", signal="go"), concurrency={"key": "g-limit", "limit": 1}
    ),
    "g_rate": graph(node("work", "log", message="one an hour"), concurrency={"key": "g-rate", "rate": "1/h"}),
    "g_node_limit": graph(
        node("each", "split", input_array="$trigger.items"),
        tenfold("work", "$item", _concurrency={"key": "g-node", "limit": 1}),
        node("all", "aggregator"),
        edges="each>work work>all",
    ),
    "g_over_time": graph(node("ask", "wait", resume="signal", signal="never"), timeout="2h"),
    "g_output": graph(
        node("a", "edit", mode="keep_only", assignments=[{"name": "n", "value": "{{ $trigger.n }}"}]),
        node("rest", "wait", amount=1, unit="hours"),
        edges="a>rest",
        output="{n: $a.n, text: 'done'}",
    ),
    "g_call": graph(node("call", "http", url="$trigger.url", _credentials={"ref": "shop"})),
    "g_hook": graph(
        node("incoming", "webhook", path="stored/hook"),
        node("say", "log", message="{{ $trigger.body.word }}"),
        edges="incoming>say",
    ),
    "g_nightly": graph(
        node("nightly", "schedule", cron="0 2 1 1 *", timezone="Europe/Rome"),
        node("say", "log", message="counting"),
        edges="nightly>say",
    ),
}

GRAPH_CASES = {
    "g_split": Case(
        "g_split",
        {"items": [1, 2, 3, 4]},
        before=(signal("go-2", "two"), signal("go-4", "four")),
        after=(signal("go-3", "three"), signal("go-1", "one")),
    ),
    "g_window": Case("g_window", {"items": [1, 2, 3, 4, 5]}),
    "g_nested_splits": Case("g_nested_splits", {"rows": [[1, 2], [3], []]}),
    "g_collect": Case("g_collect", {"items": [1, 2]}),
    "g_aggregator_timeout": Case("g_aggregator_timeout", {"items": [1, 2]}, before=(signal("go-1", 1),)),
    "g_merge_all": Case("g_merge_all", after=GO),
    "g_merge_any": Case("g_merge_any", after=GO),
    "g_merge_any_kept": Case("g_merge_any_kept", after=GO),
    "g_merge_timeout": Case("g_merge_timeout"),
    "g_wait": Case("g_wait"),
    "g_until": Case("g_until"),
    "g_signal": Case("g_signal", {"order": 7}, after=(signal("paid-7", {"amount": 12}),)),
    "g_signal_timeout": Case("g_signal_timeout"),
    "g_error_branch": Case("g_error_branch"),
    "g_on_error_edge": Case("g_on_error_edge", after=GO),
    "g_retry": Case("g_retry"),
    "g_fails": Case("g_fails"),
    "g_running": Case("g_running"),
    "g_missing": Case("g_missing"),
    "g_switch": Case("g_switch", after=GO),
    "g_approval": Case("g_approval", {"amount": 80}, after=(["decide", "gate", "approved", {"amount": 80}],)),
    "g_children": Case(
        "g_children",
        after=(
            ["child", "p_child", "signal", "go", "python"],
            ["child", "g_children/script", "signal", "go", "script"],
            ["child", "g_signal", "signal", "paid-5", {"amount": 3}],
        ),
    ),
    "g_remote": Case("g_remote", {"n": 60}),
    "g_delayed": Case("g_plain", {"n": 1}, options={"delay": "1h", "priority": 3}),
    "g_submitted": Case("g_plain", {"n": 2}, options={"submit": True}, after=(["trigger"],)),
    "g_delayed_long": Case("g_plain", {"n": 3}, options={"delay": FOREVER}, after=(["trigger"],)),
    "g_paused": Case("g_paused", before=(["pause"],), after=(["resume"],)),
    "g_limited_first": Case("g_limited", after=GO),
    "g_limited_second": Case("g_limited", after=GO),
    "g_rate_first": Case("g_rate"),
    "g_rate_second": Case("g_rate"),
    "g_node_limit": Case("g_node_limit", {"items": [1, 2, 3]}),
    "g_over_time": Case("g_over_time"),
    "g_output": Case("g_output", {"n": 5}),
    "g_done": Case("g_plain", {"n": 4}, options={"idempotency_key": "order-4"}),
    "g_failed": Case("g_call", {"url": "http://localhost:9/none"}),
}

UNDELIVERED = {
    "o_parent": Case("s_parent", after=(["child", "s_child", "signal", "go", "late child"],)),
    "o_task": Case("s_task", {"n": 6}),
    "o_graph": Case("g_children", after=GRAPH_CASES["g_children"].after),
}
"""Started last, by a process that delivers no orders of the outbox."""

CASES = PYTHON | SCRIPT_CASES | GRAPH_CASES
