"""An agent: asks a language model what to do, runs the requested tools, and repeats this until it has an answer.

    dalsegno run examples/agent/agent.py:agent --input '{"question": "How much warmer is Rome than Oslo?"}'

Every answer of the model and of a tool is stored before the next step: kill it at any moment, and no call that was
paid for is made again. The model here is a stand-in that needs no network; put a call of yours into `think`. The same
loop as a script is agent.flow.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypedDict

from dalsegno import App, NodeContext, gather

app = App()

TEMPERATURES = {"Oslo": 4, "Rome": 19}


class Call(TypedDict):
    tool: str
    arguments: dict[str, Any]


class Reply(TypedDict):
    text: str
    calls: list[Call]


@app.task(retries=5, timeout="2m")
async def think(ctx: NodeContext, messages: list[dict[str, Any]]) -> Reply:
    """What a model would say: it looks up what it does not know, reckons, and answers."""
    results = [message["content"] for message in messages if message["role"] == "tool"]
    match len(results):
        case 0:
            calls: list[Call] = [
                {"tool": "temperature", "arguments": {"city": city}} for city in TEMPERATURES
            ]
            reply: Reply = {"text": "I need both temperatures.", "calls": calls}
        case 2:
            reply = {
                "text": "I need the difference.",
                "calls": [{"tool": "subtract", "arguments": {"a": results[1], "b": results[0]}}],
            }
        case _:
            reply = {"text": f"Rome is {results[-1]} degrees warmer than Oslo.", "calls": []}
    ctx.log(reply["text"])
    return reply


@app.task(retries=3)
async def temperature(ctx: NodeContext, city: str, day: str = "today") -> int:
    ctx.log(f"{city}, {day}: {TEMPERATURES[city]} degrees")
    return TEMPERATURES[city]


@app.task
def subtract(a: int, b: int) -> int:
    return a - b


TOOLS: dict[str, Callable[..., Awaitable[Any]]] = {"temperature": temperature, "subtract": subtract}


@app.workflow(timeout="1h")
async def agent(question: str, most_turns: int = 10) -> dict[str, object]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": question}]
    for turn in range(1, most_turns + 1):
        reply = await think(messages)
        messages.append({"role": "assistant", "content": reply["text"]})
        if not reply["calls"]:
            return {"answer": reply["text"], "turns": turn}
        try:
            results = await gather(*[TOOLS[call["tool"]](**call["arguments"]) for call in reply["calls"]])
        except Exception as problem:  # noqa: BLE001 - whatever it was: the model may try something else
            results = [f"failed: {problem}"]
        messages += [{"role": "tool", "content": result} for result in results]
    return {"answer": None, "turns": most_turns}
