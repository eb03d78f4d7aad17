"""Definitions that stay loaded are bounded by the memory they take, not only by their number."""

from __future__ import annotations

import gc
import json

from dalsegno import App
from dalsegno.engine.definitions import Definitions, Kept, Program, memory_of
from dalsegno.model.definition import Definition
from tests.peak_memory import reset_peak

SUM = "+".join(["1"] * 20_000)


def program(name: str, source: bytes) -> Program:
    return Program(Definition(name, 1, name, "graph", source), None)  # type: ignore[arg-type]  # nobody runs it


def test_the_least_recently_used_go_when_memory_is_used_up() -> None:
    kept: Kept[Program] = Kept(100, most_bytes=3 * memory_of(program("", b"x" * 1000).definition))
    for name in "abc":
        kept.put(name, program(name, b"x" * 1000))
    assert kept.get("a") is not None
    kept.put("d", program("d", b"x" * 1000))
    assert [name for name in "abcd" if kept.get(name)] == ["a", "c", "d"]
    kept.put("e", program("e", b"x" * 10_000))
    assert [name for name in "acde" if kept.get(name)] == ["e"]
    kept.put("f", program("f", b"x"))
    assert [name for name in "ef" if kept.get(name)] == ["f"]
    assert kept.bytes == memory_of(program("f", b"x").definition)


async def test_many_large_definitions_take_bounded_memory() -> None:
    app = App("memory:")
    async with app.running(worker=False, scheduler=False):
        definitions = Definitions(app.client.stack.archive, app.registry, app.client.stack.clock)
        gc.collect()
        before = reset_peak()
        for number in range(12):
            node = {"id": "a", "type": "log", "parameters": {"message": f"{{{{ {SUM} }}}}"}}
            source = json.dumps({"name": f"n{number}", "nodes": [node]}).encode()
            definitions.add(Definition(f"n{number}", 1, f"h{number}", "graph", source))
        gc.collect()
        assert definitions._programs.bytes <= 24 * 1024 * 1024
        assert (reset_peak() - before) / 1024 < 48


async def test_names_that_were_asked_for_once_are_not_remembered() -> None:
    app = App("memory:")
    async with app.running(worker=False, scheduler=False):
        definitions = app.client.definitions
        for number in range(5):
            name = f"n{number}"
            await app.client.deploy(
                {"name": name, "nodes": [{"id": "a", "type": "log", "parameters": {"message": name}}]}
            )
            await definitions.by_name(name)
            definitions._current[name] = (definitions._current[name][0], 0.0)  # its time is over
        await definitions.by_name("n4")
        assert list(definitions._current) == ["n4"]
