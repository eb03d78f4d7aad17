"""``import dalsegno as ds``: the verbs of workflows as attributes of the package, and under names of one's own."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import dalsegno
import dalsegno as ds
from dalsegno import gather as together
from dalsegno import sleep as pause
from dalsegno.lang.python import DurableTask, PythonMachine, UnsupportedPython, compile_workflow
from dalsegno.lang.runtime.effects import StartTimer, StartWorkflow
from tests.python.driving import MODES, Driver, Mode, drive, started
from tests.python.tasks import double, echo


@dataclasses.dataclass
class Decision:
    approved: bool


@DurableTask
async def breaks(x: Any) -> None:
    raise ds.InvalidInput(f"{x} is too much")


async def all_verbs(signal: str, sleep: float, gather: int) -> list[Any]:
    """Its parameters have the names of verbs."""
    await ds.sleep(sleep)
    decision = await ds.signal(signal, "1h", type=Decision)
    both = await ds.gather(double(gather), echo("a"), limit=1)
    found = await ds.first(double(1), ds.sleep("1d"))
    name, value = await ds.race(late=ds.sleep("2d"), early=double(2))
    ds.log("here")
    ds.set_tags(stage="x")
    try:
        with ds.timeout(5) as limit:
            await ds.sleep("1h")
    except TimeoutError:
        both.append(limit.expired())
    timer = ds.sleep("1h")
    ds.cancel(timer)
    child = ds.start("child", 1)
    return [decision.approved, both, found, name, value, ds.now().year, child != ""]


@pytest.mark.parametrize("mode", MODES)
def test_every_verb_works_as_an_attribute_of_the_package(mode: Mode) -> None:
    driver = Driver(compile_workflow(all_verbs), mode, signals={"go": [{"approved": True}]})
    machine = driver.run({"signal": "go", "sleep": 60, "gather": 4})
    assert machine.error is None
    assert machine.result == [True, [8, "a", True], 2, "early", 4, 1970, True]
    assert [effect.name for effect in driver.effects if isinstance(effect, StartWorkflow)] == ["child"]


async def own_names(x: int) -> list[Any]:
    await pause(5)
    wait = ds.sleep
    every = (ds.cancel, ds.now, ds.set_tags, ds.run, ds.approval)
    module = ds
    await pause(5)
    await wait(5)
    await module.sleep(5)
    assert every == (dalsegno.cancel, dalsegno.now, dalsegno.set_tags, dalsegno.run, dalsegno.approval)
    return list(await together(double(x), dalsegno.first(double(x))))


@pytest.mark.parametrize("mode", MODES)
def test_verbs_have_the_names_that_a_program_gives_them_also_across_awaits(mode: Mode) -> None:
    driver = Driver(compile_workflow(own_names), mode)
    machine = driver.run(3)
    assert machine.error is None
    assert machine.result == [6, 6]
    assert len([effect for effect in driver.effects if isinstance(effect, StartTimer)]) == 4


async def imported_inside(x: int) -> int:
    import dalsegno as local
    from dalsegno import sleep as doze

    await doze(1)
    await local.sleep(1)
    await doze(1)
    return x


@pytest.mark.parametrize("mode", MODES)
def test_the_package_may_be_imported_in_the_workflow(mode: Mode) -> None:
    machine = drive(imported_inside, 3, mode)
    assert machine.error is None
    assert machine.result == 3


async def catches(x: int) -> str:
    try:
        await breaks(x)
    except ds.InvalidInput as error:
        await ds.sleep(1)
        return f"{type(error).__name__}: {error}"
    except ds.TaskError:
        return "a task's error"
    return "no error"


@pytest.mark.parametrize("mode", MODES)
def test_errors_are_caught_by_the_package_s_names(mode: Mode) -> None:
    machine = drive(catches, 3, mode)
    assert machine.error is None
    assert machine.result == "InvalidInput: 3 is too much"


async def misspelt(x: int) -> None:
    await ds.slep(x)  # type: ignore[attr-defined]


def test_a_misspelt_verb_is_named() -> None:
    machine = started(misspelt, 3)
    assert isinstance(machine, PythonMachine)
    assert machine.error is not None
    assert machine.error.type == "AttributeError"
    assert machine.error.message == "module 'dalsegno' has no attribute 'slep'"


async def forgets(x: int) -> None:
    ds.sleep(x)
    dalsegno.signal("go")
    pause(1)


def test_what_is_forgotten_to_be_awaited_is_refused_under_every_name() -> None:
    with pytest.raises(UnsupportedPython) as caught:
        compile_workflow(forgets)
    said = [problem.message.partition(":")[0] for problem in caught.value.problems]
    assert said == [
        "nothing waits for this 'sleep()'",
        "nothing waits for this 'signal()'",
        "nothing waits for this 'sleep()'",
    ]


def test_outside_of_a_workflow_the_verbs_say_so() -> None:
    with pytest.raises(ds.OutsideWorkflow, match=r"sleep\(\) works only inside a running workflow"):
        pause(1)
