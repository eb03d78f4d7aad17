"""Awaiting: tasks, children, timers, signals and groups of them, anywhere an expression may stand."""

from __future__ import annotations

from typing import Any

from dalsegno.lang import AwaitSignal, Cancel, StartTask, StartTimer, StartWorkflow
from dalsegno.model.ids import child_execution_id
from tests.lang.driver import START, Failed, Later, Signal, error_of, play, result_of
from tests.rows import rows

TASKS: dict[str, Any] = {
    "double": lambda n: n * 2,
    "echo": lambda value: value,
    "fail": Failed("NOPE", "it went wrong"),
    "slow": lambda value: Later(10, value),
    "quick": lambda value: Later(1, value),
    "slowfail": lambda value: Later(5, Failed("LATE")),
    "quickfail": lambda value: Later(0.5, Failed("EARLY")),
    "list": [3, 1, 2],
}

PROGRAMS: list[tuple[str, Any]] = [
    # anywhere in an expression
    ("return await Task.run('double', 2)", 4),
    ("return Task.run('double', 2)", 4),
    ("let p = Task.run('double', 2); return await p + await p", 8),
    ("return await Task.run('double', 1) + await Task.run('double', 2)", 6),
    ("return (await Task.run('list', 0)).length", 3),
    ("return (await Task.run('echo', {a: [5]})).a[0]", 5),
    ("return [1, await Task.run('double', 2), 3]", [1, 4, 3]),
    ("return {a: 1, b: await Task.run('double', 2)}", {"a": 1, "b": 4}),
    ("return `x${await Task.run('double', 2)}y`", "x4y"),
    ("if (await Task.run('echo', true)) { return 'yes' }", "yes"),
    ("let n = 0; while (await Task.run('echo', n < 3)) { n++ } return n", 3),
    ("let s = 0; for (let x of await Task.run('list', 0)) { s = s * 10 + x } return s", 312),
    ("let s = 0; for (let i = 0; i < await Task.run('double', 2); i++) { s += i } return s", 6),
    ("return Math.max(await Task.run('double', 1), await Task.run('double', 2))", 4),
    ("return await Task.run('echo', await Task.run('double', 3))", 6),
    ("let o = {n: 1}; o[await Task.run('echo', 'n')] += await Task.run('double', 2); return o", {"n": 5}),
    ("let l = []; l.push(await Task.run('double', 1)); return l", [2]),
    (
        ("let x = true && await Task.run('double', 1); let y = false && await Task.run('fail', 1); "
        "return [x, y]"),
        [2, False],
    ),
    ("return true ? await Task.run('double', 1) : await Task.run('fail', 1)", 2),
    ("let {a, b = await Task.run('double', 4)} = await Task.run('echo', {a: 1}); return [a, b]", [1, 8]),
    ("function f(x = await Task.run('double', 5)) { return x } return f()", 10),
    ("return await Task.run('echo', null) ?? 'none'", "none"),
    # functions that await
    ("function f(n) { return await Task.run('double', n) } return f(1) + f(2)", 6),
    ("let f = async n => await Task.run('double', n); return await f(2)", 4),
    ("function fact(n) { return n < 2 ? 1 : await Task.run('echo', n) * fact(n - 1) } return fact(5)", 120),
    ("return [1, 2, 3].map(x => await Task.run('double', x))", [2, 4, 6]),
    ("return [1, 2, 3].filter(x => await Task.run('echo', x > 1)).map(x => await Task.run('double', x))", [4, 6]),
    ("return [1, 2, 3].reduce((a, b) => a + await Task.run('double', b), 0)", 12),
    ("let s = []; [1, 2].forEach(x => { s.push(await Task.run('double', x)) }); return s", [2, 4]),
    ("return [[1, 2], [3]].map(l => l.map(x => await Task.run('double', x)))", [[2, 4], [6]]),
    ("return [3, 5].find(x => await Task.run('echo', x == 5))", 5),
    ("return [1, 2].some(x => await Task.run('echo', x == 2))", True),
    ("return [1, 2].flatMap(x => await Task.run('echo', [x, x]))", [1, 1, 2, 2]),
    # what is no promise is its own result
    ("return [await 5, await 'x', await null, await [1]]", [5, "x", None, [1]]),
    ("return await (await Task.run('double', 1))", 2),
    # promises are values
    ("let ps = [Task.run('double', 1), Task.run('double', 2)]; return await ps[1] - await ps[0]", 2),
    ("let o = {p: Task.run('double', 3)}; let q = o.p; return [await o.p, await q, o.p == q]", [6, 6, True]),
    (
        ("let p = Task.run('a', 1), q = Task.run('a', 1); return [p == q, p == p.id, p.id, 'p0' == p, "
        "p != 'p0']"),
        [False, True, "p0", True, False],
    ),
    (
        ("let p = Task.run('a', 1); let o = {}; o[p] = 1; return [o, o[p], p in o, "
        "['p0'].includes(p), [p].includes('p0'), [p].indexOf(p)]"),
        [{"p0": 1}, 1, True, True, True, 0],
    ),
    (
        ("let p = Task.run('a', 1); return ['' + p, `${p}`, JSON.stringify({p}), String(p), typeof p, "
        "[p, p].unique().length]"),
        ["p0", "p0", '{"p":"p0"}', "p0", "promise", 1],
    ),
    ("let p = Task.run('a', 1); return p?.nope", None),
    ("let p = Task.run('a', 1); if (p) { return !p }", False),
    # all
    ("return await Promise.all([Task.run('double', 1), 5, Task.run('double', 2)])", [2, 5, 4]),
    ("return await Promise.all({a: Task.run('double', 1), b: 'plain'})", {"a": 2, "b": "plain"}),
    ("return await Promise.all([])", []),
    ("return await Promise.all({})", {}),
    ("return await Task.all([Task.run('slow', 1), Task.run('quick', 2)])", [1, 2]),
    ("let [a, b] = await Promise.all([1, 2].map(n => Task.run('double', n))); return a + b", 6),
    (
        ("try { await Promise.all([Task.run('slow', 1), Task.run('quickfail', 2)]) } catch (e) { "
        "return [e.code, Date.now()] }"),
        ["EARLY", int(START * 1000) + 500],
    ),
    (
        ("try { await Promise.all([Task.run('slowfail', 1), Task.run('quickfail', 2)]) } catch (e) { "
        "return e.code }"),
        "EARLY",
    ),
    (
        ("return await Promise.all([Promise.all([Task.run('double', 1)]), Promise.all({x: "
        "Task.run('double', 2)})])"),
        [[2], {"x": 4}],
    ),
    ("let all = Promise.all([Task.run('double', 1)]); return [await all, await all]", [[2], [2]]),
    # any
    ("return await Promise.any([Task.run('slow', 's'), Task.run('quick', 'q'), Task.run('quickfail', 0)])", "q"),
    ("return await Promise.any({a: Task.run('slow', 's'), b: Task.run('quick', 'q')})", "q"),
    ("return await Promise.any_kv({a: Task.run('slow', 's'), b: Task.run('quick', 'q')})", {"key": "b", "value": "q"}),
    ("return await Promise.any_kv([Task.run('slow', 's'), Task.run('quick', 'q')])", {"key": 1, "value": "q"}),
    ("return await Promise.any([Task.run('slow', 1), 'now'])", "now"),
    (
        ("try { await Promise.any([Task.run('slowfail', 1), Task.run('quickfail', 1)]) } catch (e) { "
        "return [e.code, e.data.map(x => x.code)] }"),
        ["AggregateError", ["LATE", "EARLY"]],
    ),
    ("try { await Promise.any([]) } catch (e) { return e.code }", "AggregateError"),
    ("return await Task.any([Task.run('slow', 's'), Task.run('quick', 'q')])", {"item_id": "p1", "result": "q"}),
    ("try { await Task.any([Task.run('fail', 1)]) } catch (e) { return e.code }", "AggregateError"),
    # race
    ("return await Promise.race([Task.run('slow', 's'), Task.run('quick', 'q')])", "q"),
    (
        ("try { await Promise.race([Task.run('slow', 1), Task.run('quickfail', 1)]) } catch (e) { "
        "return e.code }"),
        "EARLY",
    ),
    ("return await Promise.race_kv({a: Task.run('slow', 1), b: Task.run('quick', 2)})", {"key": "b", "value": 2}),
    ("try { await Promise.race_kv([Task.run('fail', 1)]) } catch (e) { return e.code }", "NOPE"),
    ("try { Promise.race([]) } catch (e) { return e.code }", "WRONG_ARG_TYPE"),
    (
        "return await Task.race([Task.run('slow', 's'), Task.run('quick', 'q')])",
        {"item_id": "p1", "status": "completed", "result": "q"},
    ),
    (
        ("let r = await Task.race([Task.run('slow', 's'), Task.run('quickfail', 'q')]); return "
        "[r.item_id, r.status, r.error.code]"),
        ["p1", "failed", "EARLY"],
    ),
    (
        ("let t = Task.delay(3); let r = await Task.race([Task.run('slow', 1), t]); return [r.item_id "
        "== t, r.status, r.result]"),
        [True, "completed", None],
    ),
    (
        ("let t = Timer.delay(3); let r = await Promise.race_kv({job: Task.run('quick', 1), limit: "
        "t}); return r.key"),
        "job",
    ),
    # all settled
    (
        ("let [a, b] = await Promise.allSettled([Task.run('double', 1), Task.run('fail', 1)]); return "
        "[a, b.status, b.reason.code]"),
        [{"status": "fulfilled", "value": 2}, "rejected", "NOPE"],
    ),
    ("return await Promise.allSettled({x: 1})", {"x": {"status": "fulfilled", "value": 1}}),
    ("return await Promise.allSettled([])", []),
    (
        ("let r = await Promise.all([Promise.allSettled([Task.run('fail', 1)]), Promise.any_kv({k: "
        "Task.run('quick', 5)})]); return [r[0][0].reason.code, r[1]]"),
        ["NOPE", {"key": "k", "value": 5}],
    ),
    (
        ("return await Promise.race([Promise.all([Task.run('slow', 1), Task.run('quick', 2)]), "
        "Promise.all([Task.run('quick', 3)])])"),
        [3],
    ),
    # timers
    ("await Timer.delay(30); return Date.now()", int((START + 30) * 1000)),
    ("await Task.delay('1h30m'); return Date.now()", int((START + 5400) * 1000)),
    ("await Timer.delay('500ms'); return Date.now()", int(START * 1000) + 500),
    ("let t = Timer.delay(10); await Task.run('slow', 1); await t; return Date.now()", int((START + 10) * 1000)),
    ("return await Timer.delay(1)", None),
    ("await Timer.until('2023-11-14T22:13:30Z'); return Date.now()", 1700000010000),
    ("await Timer.until('2023-11-14T22:13:30'); return Date.now()", 1700000010000),
    ("await Timer.until('2000-01-01'); return Date.now()", int(START * 1000)),
]  # fmt: skip


@rows(("source", "expected"), PROGRAMS)
def test_program_returns(source: str, expected: Any) -> None:
    assert result_of(source, tasks=TASKS) == expected


FAILURES: list[tuple[str, str, str]] = [
    ("return {a: [1, Task.run('t', 1)]}", "TypeError", "promise at .a[1]"),
    ("return [Promise.all([])]", "TypeError", "promise at [0]"),
    ("await Task.run('t', {x: {p: Task.run('u', 1)}})", "TypeError", "promise at .x.p"),
    ("await Task.run('t', Task.run('u', 1))", "TypeError", "the value itself"),
    ("await Task.run('t', {n: 0 / 0})", "TypeError", "NaN at .n"),
    ("return [1 / 0]", "TypeError", "Infinity at [0]"),
    ("return {f: () => 1}", "TypeError", "function at .f"),
    ("return Math.max", "TypeError", "function"),
    ("await Workflow.run('w', {f: () => 1})", "TypeError", "workflow 'w'"),
    ("await Node.run('http', {u: Task.run('t', 1)})", "TypeError", "node 'http'"),
    ("let p = Task.run('t', 1); p.result", "PROPERTY_NOT_FOUND", "await it first"),
    ("let p = Task.run('t', 1); p.then(x => x)", "NOT_A_FUNCTION", "await it first"),
    ("let p = Task.run('t', 1); p + 1", "TypeError", "await the promise first"),
    ("let p = Task.run('t', 1); p > 3", "TypeError", "await the promise first"),
    ("let p = Task.run('t', 1); p * 3", "TypeError", "await the promise first"),
    ("Task.with({retrys: 3})", "WRONG_ARG_TYPE", "no option 'retrys'; did you mean 'retry'?"),
    ("Task.with({version: 2})", "WRONG_ARG_TYPE", "Task.with() has no option 'version'"),
    ("Workflow.with({queue: 'q'})", "WRONG_ARG_TYPE", "Workflow.with() has no option 'queue'"),
    ("Task.with({timeout: 'soon'})", "WRONG_ARG_TYPE", "Task.with(): the option 'timeout' is not a duration"),
    ("Task.with({delay: -1})", "WRONG_ARG_TYPE", "the option 'delay'"),
    ("Node.with({queue: ''})", "WRONG_ARG_TYPE", "Node.with(): the option 'queue' must be a text"),
    ("Task.with({priority: 1.5})", "WRONG_ARG_TYPE", "the option 'priority' must be a whole number"),
    ("Task.with({retries: -1})", "WRONG_ARG_TYPE", "the option 'retries' must be a whole number"),
    ("Task.with({concurrency: 0})", "WRONG_ARG_TYPE", "the option 'concurrency' is not valid: 'limit'"),
    ("Workflow.with({tags: {a: 1}})", "WRONG_ARG_TYPE", "the option 'tags' must be an object of texts"),
    ("let p = Task.run('t', 1); p.x = 1", "TypeError", "promise"),
    ("for (let x of Task.run('t', 1)) { }", "TYPE_ERROR", "await the promise first"),
    ("let p = Promise.all([]); return '' + p", "TypeError", "promise"),
    ("return [2, 1].sort((a, b) => await Task.run('t', a - b))", "TypeError", "sort() cannot await"),
    ("let l = [2, 1]; l.sort((a, b) => [1].map(x => await Task.run('t', 1))[0])", "TypeError", "sort() cannot await"),
    ("Task.run('t')", "WRONG_ARG_COUNT", "takes 2 arguments, not 1"),
    ("Task.run()", "WRONG_ARG_COUNT", "takes 2"),
    ("Task.run('t', 1, 2)", "WRONG_ARG_COUNT", "takes 2"),
    ("Task.run(5, {})", "WRONG_ARG_TYPE", "a string"),
    ("Task.run('', {})", "WRONG_ARG_TYPE", "not empty"),
    ("Node.run('http', 5)", "WRONG_ARG_TYPE", "an object"),
    ("Workflow.run(null, {})", "WRONG_ARG_TYPE", "a string"),
    ("Workflow.start('w')", "WRONG_ARG_COUNT", "takes 2"),
    ("Task.with(5)", "WRONG_ARG_TYPE", "an object"),
    ("Task.with({queue: () => 1})", "TypeError", "Task.with()"),
    ("Task.with({}).nope()", "NOT_A_FUNCTION", "it has run()"),
    ("Workflow.with({}).nope()", "NOT_A_FUNCTION", "it has run() and start()"),
    ("Timer.delay(-1)", "WRONG_ARG_TYPE", "negative"),
    ("Timer.delay('soon')", "WRONG_ARG_TYPE", "duration"),
    ("Timer.delay(null)", "WRONG_ARG_TYPE", "duration"),
    ("Timer.delay(0 / 0)", "WRONG_ARG_TYPE", "negative"),
    ("Timer.delay(1 / 0)", "WRONG_ARG_TYPE", "hundred years"),
    ("Timer.until('tomorrow')", "WRONG_ARG_TYPE", "not a date"),
    ("Timer.until(1 / 0)", "WRONG_ARG_TYPE", "finite"),
    ("Signal.next(5)", "WRONG_ARG_TYPE", "a string"),
    ("Signal.when('s', {timeout: -1})", "WRONG_ARG_TYPE", "negative"),
    ("Signal.when('s', {tiemout: 1})", "WRONG_ARG_TYPE", "timeout"),
    ("Signal.when('s', 5)", "WRONG_ARG_TYPE", "an object"),
    ("Promise.all(5)", "WRONG_ARG_TYPE", "a list or an object"),
    ("Promise.all([], {canel: true})", "WRONG_ARG_TYPE", "cancel"),
    ("Promise.all([], {cancel: 1})", "WRONG_ARG_TYPE", "cancel"),
    ("await Promise.any([])", "AggregateError", "no promise"),
    ("Task.race({})", "WRONG_ARG_TYPE", "never end"),
]  # fmt: skip


@rows(("source", "code", "words"), FAILURES)
def test_program_fails(source: str, code: str, words: str) -> None:
    error = error_of(source)
    assert (error.code, words in error.message) == (code, True), error


def test_a_nested_promise_can_be_caught_where_the_task_is_started() -> None:
    assert result_of("try { Task.run('t', [Task.run('u', 1)]) } catch (e) { return e.code }") == "TypeError"


def test_effects_are_what_the_program_asked_for() -> None:
    source = """
    Task.run('a', {n: 1})
    Task.with({queue: 'q', retries: 3}).with({priority: 1}).run('b', [])
    Node.run('http', {url: 'u'})
    Node.with({timeout: 5}).run('llm', {})
    Workflow.run('child', 1)
    Workflow.with({version: 'stable'}).start('other', 2)
    Timer.delay(5)
    Signal.next('go')
    Signal.when('go', {timeout: '1m'})
    wait_for_signal('approval')
    """
    assert play(source).effects == [
        StartTask("p0", "a", {"n": 1}),
        StartTask("p1", "b", [], {"queue": "q", "retries": 3, "priority": 1}),
        StartTask("p2", "node:http", {"url": "u"}),
        StartTask("p3", "node:llm", {}, {"timeout": 5}),
        StartWorkflow("p4", "child", 1),
        StartWorkflow("p5", "other", 2, {"version": "stable"}, detached=True),
        StartTimer("p6", START + 5),
        AwaitSignal("p7", "go"),
        AwaitSignal("p8", "go", START + 60),
        AwaitSignal("p9", "approval"),
    ]


def test_a_started_workflow_is_its_execution_id() -> None:
    source = "let id = Workflow.start('w', {}); return [id, typeof id]"
    assert result_of(source) == [child_execution_id("e-1", "p0"), "string"]


def test_options_can_be_kept_and_used_again() -> None:
    source = "let fast = Task.with({queue: 'fast'}); fast.run('a', 1); await fast.run('b', 2)"
    assert [effect.options for effect in play(source).effects] == [{"queue": "fast"}] * 2  # type: ignore[union-attr]


def test_losers_are_cancelled_only_if_asked() -> None:
    def cancelled(source: str) -> list[str]:
        return [effect.id for effect in play(source, tasks=TASKS).effects if isinstance(effect, Cancel)]

    three = "[Task.run('slow', 1), Task.run('quick', 2), Timer.delay(50)]"
    assert cancelled(f"await Promise.race({three})") == []
    assert cancelled(f"await Promise.race({three}, {{cancel: true}})") == ["p0", "p2"]
    assert cancelled(f"await Task.any({three}, {{cancel: true}})") == ["p0", "p2"]
    assert cancelled(f"await Promise.all({three}, {{cancel: true}})") == []
    assert cancelled(f"let r = Promise.race({three}, {{cancel: true}}); await r; await r") == ["p0", "p2"]
    failing = "[Task.run('slow', 1), Task.run('quickfail', 2)]"
    assert cancelled(f"try {{ await Promise.all({failing}, {{cancel: true}}) }} catch {{ }}") == ["p0"]


def test_signals_come_in_order_and_early_ones_are_kept() -> None:
    source = (
        "await Timer.delay(10); let a = await Signal.next('s'); let b = await Signal.next('s'); return [a, b]"
    )
    assert result_of(
        source, signals=[Signal(1, "s", "first"), Signal(2, "s", "second"), Signal(3, "t", 0)]
    ) == [
        "first",
        "second",
    ]


def test_an_abandoned_wait_does_not_swallow_the_next_signal() -> None:
    source = """
    async function first() { return await Promise.race([Signal.next('s'), Timer.delay(5)]) }
    let a = await first()
    let b = await Signal.next('s')
    return [a, b]
    """
    assert result_of(source, signals=[Signal(10, "s", "late")]) == [None, "late"]


def test_a_signal_times_out() -> None:
    source = "try { await Signal.when('s', {timeout: 5}) } catch (e) { return [e.code, Date.now()] }"
    assert result_of(source) == ["TimeoutError", int((START + 5) * 1000)]
    assert result_of("return await Signal.when('s', {timeout: 5})", signals=[Signal(1, "s", 7)]) == 7


def test_a_returned_promise_is_awaited_outside_of_try() -> None:
    source = "try { return Task.run('fail', 1) } catch (e) { return 'caught' } finally { log('cleanup') }"
    ending = play(source, tasks=TASKS)
    assert (ending.status, ending.logs) == ("failed", [("info", "cleanup")])
    assert (
        result_of("try { return await Task.run('fail', 1) } catch (e) { return e.code }", tasks=TASKS)
        == "NOPE"
    )


def test_forgotten_tasks_are_started_all_the_same() -> None:
    ending = play("for (let i = 0; i < 3; i++) { Task.run('t', i) } return 'done'")
    assert [effect.id for effect in ending.effects] == ["p0", "p1", "p2"]


# the machine's own protocol
def test_scripts_of_the_first_design() -> None:
    """The shapes that the language grew from."""
    assert (
        result_of(
            "workflow example(inputs) {\n  result = await Task.run('process_data', inputs)\n  return result\n}",
            1,
        )
        == "process_data!"
    )
    race = """
    timeout_timer = Task.delay(30)
    result = await Task.race([
      Task.run("operation", inputs),
      timeout_timer  // Timeout
    ])
    if (result.item_id == timeout_timer) {
      return {error: "Operation timed out"}
    }
    return result.result
    """
    assert result_of(race, tasks={"operation": Later(60, "late")}) == {"error": "Operation timed out"}
    assert result_of(race, tasks={"operation": Later(6, "fine")}) == "fine"
    fastest = 'fastest = await Task.any([Task.run("api1", inputs), Task.run("api2", inputs)])\nreturn fastest'
    assert result_of(fastest, tasks={"api1": Failed("X")}) == {"item_id": "p1", "result": "api2!"}
