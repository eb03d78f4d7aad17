"""From a scenario to compiled programs, in the language it asks for."""

from __future__ import annotations

from functools import lru_cache

from dalsegno.lang import FlowProgram
from dalsegno.lang import compile as compile_script
from dalsegno.lang.python import PythonProgram
from dalsegno.testing.simulation.scripts.flow_text import flow_sources
from dalsegno.testing.simulation.scripts.scenario import ScriptScenario


def text_of(scenario: ScriptScenario) -> str:
    return "\n".join(flow_sources(scenario.program).values())


def programs_of(scenario: ScriptScenario) -> list[FlowProgram | PythonProgram]:
    return [_compiled(name, source) for name, source in flow_sources(scenario.program).items()]


@lru_cache(maxsize=64)
def _compiled(name: str, source: str) -> FlowProgram:
    return compile_script(source, name)
