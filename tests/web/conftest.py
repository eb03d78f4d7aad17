"""A server with a few workflows, and a browser that reports what no page may do."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.cli.programs import PATIENCE, Program, Programs

BUILT = Path(__file__).parents[2] / "src" / "dalsegno" / "server" / "static" / "web" / "index.html"
GRAPHS: tuple[dict[str, Any], ...] = (
    {
        "name": "parcels",
        "input_schema": {
            "type": "object",
            "required": ["weight"],
            "properties": {
                "weight": {"type": "number", "description": "In kilograms."},
                "fragile": {"type": "boolean"},
            },
        },
        "nodes": [
            {"id": "pack", "type": "task", "parameters": {"task": "gate", "input": "packed"}},
            {"id": "label", "type": "log", "parameters": {"message": "labelled"}},
        ],
        "edges": [{"src": "pack", "dst": "label"}],
        "output": "{{ $trigger.weight * 2 }}",
    },
    {
        "name": "expense",
        "nodes": [
            {
                "id": "approve",
                "type": "approval",
                "parameters": {
                    "message": "80 EUR for Ada",
                    "form": {
                        "type": "object",
                        "required": ["amount"],
                        "properties": {"amount": {"type": "integer"}},
                    },
                },
            },
            {"id": "pay", "type": "log", "parameters": {"message": "{{ $approve.data.amount }} EUR"}},
        ],
        "edges": [{"src": "approve", "dst": "pay"}],
        "output": "{{ $approve.decision }}",
    },
)


class Site:
    """A server on a store, in a folder with its application. It can be killed and started again at the same port."""

    def __init__(self, folder: Path, store: str) -> None:
        self.folder = folder
        self.store = store
        self.port = "0"
        self._running: list[Program] = []
        shutil.copy(Path(__file__).with_name("shop.py"), folder / "shop.py")

    def start(self) -> None:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(self.folder), os.environ.get("PYTHONPATH", ""))),
        }
        program = Programs(self.folder, environment, self._running).begin(
            "dev", "--app", "shop.py", "--store", self.store, "--port", self.port, "--json"
        )
        assert program.process.stdout is not None
        self.port = json.loads(program.process.stdout.readline())["url"].rpartition(":")[2]
        self.http = httpx.Client(base_url=self.url, timeout=PATIENCE)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def kill(self) -> None:
        self.http.close()
        for program in self._running:
            program.end()
        self._running.clear()

    def begin(self, workflow: str, value: Any = None) -> str:
        reply = self.http.post("/v1/executions", json={"workflow": workflow, "input": value})
        assert reply.status_code == 201, reply.text
        return str(reply.json()["id"])

    def state(self, execution: str) -> str:
        return str(self.http.get(f"/v1/executions/{execution}").json()["state"])

    def let_go(self, name: str) -> None:
        (self.folder / name).touch()


@pytest.fixture
def store(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """A fresh SQLite file, or the parameter's store: "postgres"."""
    if getattr(request, "param", "sqlite") == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return f"sqlite:///{tmp_path}/ui.db"


@pytest.fixture
def site(tmp_path: Path, store: str) -> Iterator[Site]:
    assert BUILT.exists(), "the web UI is not built; run: make web"
    made = Site(tmp_path, store)
    made.start()
    try:
        for graph in GRAPHS:
            reply = made.http.post("/v1/definitions", json={"document": graph})
            assert reply.status_code in (200, 201), reply.text
        yield made
    finally:
        made.kill()


@pytest.fixture
def browser() -> Iterator[Browser]:
    """A browser for one test. Playwright keeps an event loop running in its thread, in which no other test could run
    one of its own."""
    path = shutil.which("chromium")
    assert path is not None, "chromium is missing; tests/servers/ensure installs it"
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield launched
        launched.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    made = browser.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
    made.set_default_timeout(PATIENCE * 1000)
    yield made
    made.close()


@pytest.fixture
def page(context: BrowserContext, site: Site) -> Iterator[Page]:
    """A page. It fails the test if it asks another origin, throws an error, or complains on the console about
    anything but refusals of the server, which the page shows."""
    opened = context.new_page()
    complaints: list[str] = []
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("console", lambda said: _note(complaints, said.type, said.text))
    opened.on("request", lambda asked: _note_origin(complaints, site, asked.url))
    yield opened
    assert complaints == []


def _note(complaints: list[str], kind: str, text: str) -> None:
    if kind in ("error", "warning") and not text.startswith("Failed to load resource"):
        complaints.append(f"{kind}: {text}")


def _note_origin(complaints: list[str], site: Site, url: str) -> None:
    if not url.startswith((site.url, "data:", "blob:")):
        complaints.append(f"asked {url}")
