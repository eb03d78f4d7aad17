"""Scripts and Python workflows that a limit ends: none of their code runs then, so what they have to clean up is a dead
letter, from which another execution cleans up."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from dalsegno import NodeContext, signal
from dalsegno.engine.operations.dead_letters import DeadLetter, DeadLetters
from dalsegno.engine.scripts.steps import ScriptStep, ScriptSteps
from dalsegno.engine.settings import EngineLimits
from dalsegno.engine.steps import values as storage
from dalsegno.handle import Handle
from dalsegno.lang import Limits
from dalsegno.model.token import Lease
from tests.scenarios.stage import Ended, Stage

LIMITS = EngineLimits(stored_bytes=20_000, value_bytes=30_000, scripts=Limits(instructions=20_000))
CUT = "the execution failed and did not clean up: "


@pytest.fixture
def limited(store_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setattr(storage, "AT_ONCE", 1)
    with Stage(store_url, limits=LIMITS) as stage:

        @stage.app.task
        async def rows(count: int) -> str:
            return "x" * count

        yield stage


def letters(stage: Stage) -> list[DeadLetter]:
    return stage.app.host.call(DeadLetters(stage.app.engine).all())


def cut_short(stage: Stage, handle: Handle, code: str = "LimitExceeded") -> Ended:
    """The execution that a limit has ended, and that its one dead letter is about."""
    ended = stage.end_of(handle)
    assert (ended.state, ended.error["code"]) == ("FAILED", code)
    stage.until("a dead letter", handle, lambda: letters(stage))
    (letter,) = letters(stage)
    assert letter.id == f"cleanup:{handle.id}"
    assert letter.reason == CUT + ended.error["message"]
    return ended


def clean_up(stage: Stage, handle: Handle, *signals: str) -> Ended:
    again = stage.app.handle(stage.app.host.call(DeadLetters(stage.app.engine).retry(f"cleanup:{handle.id}")))
    for name in signals:
        again.signal(name)
    ended = stage.end_of(again)
    assert (ended.state, ended.error["code"]) == ("CANCELLED", "CancelledError")
    assert letters(stage) == []
    return ended


TOO_MUCH = 'await Promise.all([Task.run("rows", 25000), Signal.next("never")])'
SAGA = """
await Task.run("note", "charged")
try {
    %s
} catch (error) {
    await Task.run("note", "refunded")
    throw error
}
"""
ENDINGS = {
    "too much stored": TOO_MUCH,
    "too many instructions": 'await Task.run("rows", 1); let n = 0; while (true) { n = n + 1 }',
    "an unsuitable request": 'await Task.run("rows", 1); await Task.run("x".repeat(1000), 1)',
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_script_that_a_limit_ends_can_clean_up_later(limited: Stage, ending: str) -> None:
    handle = limited.start_script(SAGA % ENDINGS[ending])
    code = "WRONG_ARG_TYPE" if ending == "an unsuitable request" else "LimitExceeded"
    failed = cut_short(limited, handle, code)
    assert limited.seen == ["charged"]
    ended = clean_up(limited, handle)
    assert ended.error["message"] == f"the execution was cancelled: {failed.error['message']}"
    assert limited.seen == ["charged", "refunded"]


def test_a_python_workflow_that_a_limit_ends_can_clean_up_later(limited: Stage) -> None:
    @limited.app.task
    async def provider(what: str) -> None:
        limited.seen.append(what)

    @limited.app.workflow
    async def order(how: str) -> None:
        await provider("charged")
        try:
            await provider("asked")
            if how == "instructions":
                while True:
                    pass
            held = threading.Lock()
            await signal("never")
            held.release()
        except (RuntimeError, TypeError, ValueError):
            raise AssertionError("it cannot be caught") from None
        finally:
            await provider("refunded")

    for how, code in (("instructions", "LimitExceeded"), ("a lock", "NotStorable")):
        limited.seen.clear()
        handle = limited.app.start(order, how)
        cut_short(limited, handle, code)
        assert limited.seen == ["charged", "asked"]
        clean_up(limited, handle)
        assert limited.seen == ["charged", "asked", "refunded"]


def test_a_task_in_flight_is_requested_again_with_its_key(limited: Stage) -> None:
    """It becomes an execution of its own when its script ends; what cleans up asks for its result once more."""
    handle = limited.start_script(
        'const charging = Task.run("hold", "charge")\n'
        f'try {{ {TOO_MUCH} }} finally {{ await Task.run("note", await charging) }}'
    )
    cut_short(limited, handle)
    door = limited.door("charge")
    door.open()
    clean_up(limited, handle)
    assert limited.seen == ["charge"]
    assert len(set(door.comers)) == 1


def test_a_large_input_is_kept_for_the_clean_up(store_url: str) -> None:
    """That of a task which still runs when a limit ends its script, and ends before the clean-up asks for it again."""
    with Stage(store_url, limits=EngineLimits(scripts=Limits(instructions=20_000))) as stage:
        door, sizes = stage.door("charge"), list[int]()

        @stage.app.task
        async def charge(ctx: NodeContext, text: str) -> int:
            await door.passing(ctx.idempotency_key)
            sizes.append(len(text))
            return len(text)

        handle = stage.start_script(
            """
            const charging = Task.run("charge", "x".repeat(200000))
            try { await Signal.next("go"); while (true) {} } finally { await Task.run("note", await charging) }
            """
        )
        stage.until("the task runs", handle, lambda: door.comers)
        handle.signal("go")
        failed = cut_short(stage, handle)
        door.open()
        (handed,) = failed.data("TaskHandedOver", "charge")
        assert stage.end_of(stage.app.handle(handed["execution"])).output == 200_000
        clean_up(stage, handle)
        assert (stage.seen, sizes, len(set(door.comers))) == ([200_000], [200_000] * 2, 1)


def test_a_task_whose_script_fails_in_the_same_commit_counts(limited: Stage) -> None:
    handle = limited.start_script(SAGA % ENDINGS["too many instructions"])
    ended = cut_short(limited, handle)
    assert [ended.count("TaskCompleted", name) for name in ("note", "rows")] == [1, 1]


def test_a_clean_up_that_a_limit_ends_too_is_a_letter_again(limited: Stage) -> None:
    """It goes on when somebody says so, not by itself."""
    size = 25_000

    @limited.app.task
    async def report(order: str) -> str:
        return order * size

    handle = limited.start_script(
        f"""
        try {{ {TOO_MUCH} }} finally {{
            await Task.run("note", "refunded")
            await Promise.all([Task.run("report", "r"), Signal.next("clean")])
            await Task.run("note", "told")
        }}
        """
    )
    cut_short(limited, handle)
    dead = DeadLetters(limited.app.engine)
    second = limited.app.handle(limited.app.host.call(dead.retry(f"cleanup:{handle.id}")))
    ended = limited.end_of(second)
    assert (ended.state, ended.error["code"]) == ("CANCELLED", "LimitExceeded")
    assert [letter.id for letter in letters(limited)] == [f"cleanup:{second.id}"]
    size = 1
    clean_up(limited, second, "clean")
    assert limited.seen == ["refunded", "told"]


def test_a_failure_of_the_system_has_one_letter(limited: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its workers died again and again: it is to be cleaned up, and then neither form of letter is left."""
    resume = ScriptSteps._resume

    async def lost(steps: ScriptSteps, lease: Lease) -> ScriptStep:
        return await resume(steps, replace(lease, losses=steps.limits.losses))

    def failed() -> Handle:
        handle = limited.start_script(SAGA % 'await Signal.next("never")')
        limited.until("it waits", handle, lambda: [wait.kind for wait in handle.why()] == ["signal"])
        with monkeypatch.context() as patch:
            patch.setattr(ScriptSteps, "_resume", lost)
            handle.signal("never")
            cut_short(limited, handle, "WORKER_LOST")
        return handle

    clean_up(limited, failed())
    assert limited.seen == ["charged", "refunded"]
    limited.app.host.call(DeadLetters(limited.app.engine).drop(f"cleanup:{failed().id}"))
    assert letters(limited) == []


NOTHING_TO_CLEAN_UP = {
    "no handler of errors": f'await Task.run("note", "charged"); {TOO_MUCH}',
    "ended before its first await": 'try { while (true) {} } finally { await Task.run("note", "refunded") }',
    "its end was reached": """
        try { await Task.run("rows", 1) } finally { await Task.run("note", "refunded") }
        return "x".repeat(40000)
    """,
    "an error of its own": """
        try { await Task.run("rows", 1) } finally { await Task.run("note", "refunded") }
        throw "no"
    """,
}


@pytest.mark.parametrize("case", NOTHING_TO_CLEAN_UP)
def test_what_has_nothing_to_clean_up_leaves_no_letter(limited: Stage, case: str) -> None:
    ended = limited.run_script(NOTHING_TO_CLEAN_UP[case])
    assert (ended.state, letters(limited)) == ("FAILED", [])
