"""A marker stands in every field of every credential. Workflows leak it in every way we could think of; then everything
that was stored, logged and answered is searched. Only ciphertext may be found."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from aiohttp.test_utils import TestServer

from dalsegno import App
from dalsegno.nodes.http.egress import ALLOW_EVERYTHING
from dalsegno.ports.node import FanOut, NodeContext, NodeError
from dalsegno.server.application import create_application
from tests.secrets.hunting import dump, traces
from tests.secrets.services import service

MARKER = "M4rk3r"
CREDENTIALS: dict[str, dict[str, Any]] = {
    "bearer": {
        "type": "bearer",
        "fields": {"token": f"{MARKER}-of-bearer"},
        "hosts": ["http://127.0.0.1:*"],
        "workflows": ["*"],
    },
    "basic": {
        "type": "basic",
        "fields": {"username": f"{MARKER}-of-user", "password": f'{MARKER}/of+"word&é='},
        "hosts": ["http://127.0.0.1:*"],
        "workflows": ["*"],
    },
    "header": {
        "type": "header",
        "fields": {"value": f"{MARKER}-of-header"},
        "hosts": ["http://127.0.0.1:*"],
        "workflows": ["*"],
        "sent_as": "X-Key",
    },
    "query": {
        "type": "query",
        "fields": {"value": f"{MARKER}/of query?&"},
        "hosts": ["http://127.0.0.1:*"],
        "workflows": ["*"],
        "sent_as": "key",
    },
    "custom": {
        "type": "custom",
        "fields": {"a": f"{MARKER}-of-a", "pem": f"{MARKER}-line-one\n{MARKER}-line-two"},
        "workflows": ["*"],
    },
}


@dataclass
class Holder:
    value: str


class OddError(Exception):
    """Carries what it is given in every way an exception can."""

    def __init__(self, value: str) -> None:
        super().__init__(f"odd {value}", value, {value: [value]}, value.encode(), Holder(value))
        self.code = f"ODD_{value}"
        self.value = value
        self.add_note(f"a note about {value}")


def returns(value: str) -> dict[str, Any]:
    raw = value.encode()
    return {
        "plain": value,
        value: "key",
        "nested": [{"deep": {"er": [value, f"x{value}y"]}}],
        "bytes": raw,
        "object": Holder(value),
        "base64": [base64.b64encode(b"z" * shift + raw + b"z").decode() for shift in range(4)],
        "urlsafe": base64.urlsafe_b64encode(raw).decode(),
        "url": f"https://x/?k={quote(value, safe='')}&j={quote(value)}",
        "json": json.dumps(json.dumps({"k": value})),
        "hex": raw.hex(),
        "upper": value.upper(),
        "html": value.replace("&", "&amp;").replace('"', "&quot;"),
    }


def raises(way: str, value: str) -> Any:
    if way == "message":
        raise ValueError(f"wrong: {value}")
    if way == "cut":
        raise ValueError("x" * (10_000 - 4) + value)
    if way == "odd":
        raise OddError(value)
    if way == "node-error":
        raise NodeError(value, code=f"C_{value}", details={"d": [value], value: 1})
    if way == "details":
        raise NodeError("details", details={"d": Holder(value), "o": object()})
    if way == "cause":
        raise RuntimeError("outer") from ValueError(value)
    if way == "class":
        raise type(value, (Exception,), {})("named after it")
    if way == "repr":
        raise RuntimeError({"headers": value, "bytes": value.encode()})
    raise KeyError(value)


RAISED = ("message", "cut", "odd", "node-error", "details", "cause", "class", "repr", "key")


def build(url: str) -> App:
    app = App(url, egress=ALLOW_EVERYTHING)
    app.makes_secret_key = True

    async def opened(ctx: NodeContext, name: str) -> list[str]:
        return list((await ctx.acredential(name)).values())

    @app.task
    async def leak(ctx: NodeContext, name: str, way: str) -> Any:
        values = await opened(ctx, name)
        for value in values:
            ctx.log(f"the value is {value!r}", "warning")
            ctx.log(base64.b64encode(b"-" + value.encode()).decode())
        if way == "return":
            return [returns(value) for value in values]
        return raises(way, values[-1])

    @app.task
    def leak_in_a_thread(ctx: NodeContext, name: str, way: str) -> Any:
        values = list(ctx.credential(name).values())
        ctx.log(" ".join(values))
        return [returns(value) for value in values] if way == "return" else raises(way, values[0])

    @app.task
    async def leak_a_lot(ctx: NodeContext, name: str) -> Any:
        return {"large": ["." * 300_000 + value for value in await opened(ctx, name)]}

    @app.task(retries=2)
    async def leak_and_retry(ctx: NodeContext, name: str) -> Any:
        raise ConnectionError(f"attempt {ctx.attempt} with {await opened(ctx, name)}")

    @app.task
    async def leak_what_is_no_json(ctx: NodeContext, name: str) -> Any:
        return {value: object() for value in await opened(ctx, name)}

    @app.node("fanning")
    async def fanning(ctx: NodeContext, parameters: dict[str, Any]) -> FanOut:
        return FanOut([returns(value) for value in await opened(ctx, "custom")], 10)

    @app.workflow
    async def in_python(name: str, way: str) -> Any:
        kept = await leak_in_a_thread(name, "return")
        try:
            await leak(name, way)
        except Exception as error:  # noqa: BLE001 - whatever the task raised
            again = str(error)
            try:
                await leak_and_retry(name)
            except ConnectionError as failed:
                raise ValueError(f"{again} and {failed} and {kept}") from failed
        return kept

    return app


SCRIPT = """
workflow in_script(i) {
  const told = []
  try { await Node.run("http", {url: i.url + "/page", credential: i.name, raise_on_status: "5xx"}) }
  catch (e) { told.push(e); log(e.message) }
  try { await Task.run("leak", {name: i.name, way: i.way}) } catch (e) { told.push(e); log(JSON.stringify(e)) }
  told.push(await Node.run("http", {url: i.url + "/echo", credential: i.name}))
  told.push(await Task.run("leak_in_a_thread", {name: "custom", way: "return"}))
  throw {code: "LEAK", message: JSON.stringify(told), told}
}
"""


def http_graph(name: str, path: str, credential: str, url: str, **parameters: Any) -> dict[str, Any]:
    node = {
        "id": "call",
        "type": "http",
        "credentials": {"ref": credential},
        "parameters": {"url": f"{url}{path}", **parameters},
        "retry": {"max_attempts": 2, "initial_delay": 0.01},
        "error": {"type": "ignore"},
    }
    say = {"id": "say", "type": "log", "parameters": {"message": "{{ $call }}"}}
    return {"name": name, "nodes": [node, say], "edges": [{"src": "call", "dst": "say"}]}


def task_graph(name: str, task: str, given: Any) -> dict[str, Any]:
    node = {"id": "leak", "type": "task", "parameters": {"task": task, "input": given}}
    return {"name": name, "nodes": [node]}


@pytest.fixture
async def target() -> AsyncIterator[str]:
    running = TestServer(service(), host="127.0.0.1")
    await running.start_server(access_log=None)  # its log is not ours
    yield str(running.make_url("")).rstrip("/")
    await running.close()


class Search:
    """Where something came out."""

    def __init__(self) -> None:
        self.found: dict[str, list[bytes]] = {}

    def look(self, where: str, text: str | bytes, depth: int = 2) -> None:
        hits = traces(text, MARKER.encode(), depth)
        if hits:
            self.found.setdefault(where, []).extend(hits)


async def test_no_marker_leaves_a_run(
    tmp_path: Path, target: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    path, search = tmp_path / "leaks.db", Search()
    application = create_application(build(f"sqlite:///{path}"))
    async with application.router.lifespan_context(application):
        transport = httpx.ASGITransport(application, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8700") as http:
            await _set(http, search)
            executions = await _leak_everywhere(http, target)
            states = [await _read(http, search, each) for each in executions]
            await _look_around(http, search)
            files = _files(tmp_path)
    assert states.count("FAILED") > 10
    assert states.count("COMPLETED") > 20
    for record in caplog.records:
        search.look(
            f"log {record.name}", f"{record.getMessage()} {record.exc_text} {record.exc_info} {record.args}"
        )
    search.look("log text", caplog.text, depth=0)  # the same lines again, as they are written
    search.look("stdout and stderr", "".join(capfd.readouterr()))
    text, blobs = dump(path)
    search.look("database dump", text)
    for blob in blobs:
        search.look("blob in the dump", blob)
    for name, content in files.items():
        search.look(
            f"file {name}", content, depth=0
        )  # the dump's content, and what was left behind by changes
    assert search.found == {}
    assert any(b"[secret custom]" in blob for blob in blobs)
    assert "[secret bearer]" in caplog.text


def _files(folder: Path) -> dict[str, bytes]:
    """As they are while the server runs: the database, and its journal."""
    return {each.name: each.read_bytes() for each in folder.iterdir() if each.suffix != ".key"}


async def _set(http: httpx.AsyncClient, search: Search) -> None:
    for name, setting in CREDENTIALS.items():
        answer = await http.put(f"/v1/credentials/{name}", json=setting)
        assert answer.status_code == 201, answer.text
        search.look("reply to put", answer.text)
        bad = await http.put(f"/v1/credentials/{name}", json={**setting, "hosts": ["bad host"]})
        assert bad.status_code == 422
        search.look("refusal", bad.text)
        odd = await http.put(f"/v1/credentials/{name}", json={**setting, "type": 5, "more": f"{MARKER}-more"})
        search.look("refusal", odd.text)


async def _leak_everywhere(http: httpx.AsyncClient, target: str) -> list[str]:
    documents = [
        http_graph(f"{path.strip('/')}-{name}", path, name, target, **extra)
        for name in ("bearer", "basic", "header", "query")
        for path, extra in (
            ("/echo", {}),
            ("/binary", {}),
            ("/encoded", {}),
            ("/refused", {"raise_on_status": "4xx"}),
            ("/page", {"raise_on_status": "5xx", "query": {"padding": 1900}}),
        )
    ]
    for task in ("leak", "leak_in_a_thread"):
        ways = ("return", *RAISED)
        documents += [task_graph(f"{task}-{way}", task, {"name": "custom", "way": way}) for way in ways]
    documents.append(task_graph("large", "leak_a_lot", "basic"))
    documents.append(task_graph("retry", "leak_and_retry", "basic"))
    documents.append(task_graph("no-json", "leak_what_is_no_json", "basic"))
    fan = [{"id": "fan", "type": "fanning"}, {"id": "say", "type": "log", "parameters": {"message": "$fan"}}]
    documents.append({"name": "fan", "nodes": fan, "edges": [{"src": "fan", "dst": "say"}]})
    started = []
    for document in documents:
        answer = await http.post("/v1/executions", json={"definition": document})
        assert answer.status_code == 201, answer.text
        started.append(answer.json()["id"])
    await http.post("/v1/definitions", json={"source": SCRIPT, "kind": "script"})
    for way in ("return", *RAISED):
        given = {"url": target, "name": "basic", "way": way}
        started.append(await _start(http, "in_script", given))
        started.append(await _start(http, "in_python", {"name": "custom", "way": way}))
    return started


async def _start(http: httpx.AsyncClient, workflow: str, given: Any) -> str:
    answer = await http.post("/v1/executions", json={"workflow": workflow, "input": given})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


async def _read(http: httpx.AsyncClient, search: Search, execution: str) -> str:
    for _ in range(2000):
        found = (await http.get(f"/v1/executions/{execution}")).json()
        if found["ended_at"] is not None:
            break
        await asyncio.sleep(0.01)
    search.look("execution", json.dumps(found, ensure_ascii=False))
    for part in ("events", "nodes", "results", "why", "picture"):
        search.look(part, (await http.get(f"/v1/executions/{execution}/{part}")).text)
    return str(found["state"])


async def _look_around(http: httpx.AsyncClient, search: Search) -> None:
    for path in (
        "/v1/credentials",
        "/v1/executions?limit=500",
        "/v1/definitions",
        "/v1/openapi.json",
        "/metrics",
    ):
        search.look(path, (await http.get(path)).text)
    for name in CREDENTIALS:
        search.look("credential", (await http.get(f"/v1/credentials/{name}")).text)
    search.look("rotation", (await http.post("/v1/credentials/rotate")).text)


def test_the_search_finds_what_is_hidden() -> None:
    """A search that finds nothing would prove nothing."""
    value = f'{MARKER}/of+"word&é='
    for name, hidden in returns(value).items():
        shown = f"{name} {hidden}"
        assert traces(shown, MARKER.encode()), name
    assert not traces(zlib.compress(value.encode()), b"not here")
