"""The files of the web UI: fixed paths, public, kept by browsers; and what a server without them says."""

from __future__ import annotations

import gzip
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from dalsegno.server.http.request import UI_FILES, UI_PAGES, is_public
from dalsegno.server.http.static_files import PAGES, POLICY, install

SCRIPT = "const answer = 42\n" * 100


@pytest.fixture
def built(tmp_path: Path) -> Path:
    (tmp_path / "index.html").write_text("<!doctype html><title>Dal Segno</title>")
    for name in UI_FILES:
        (tmp_path / name.strip("/")).write_text("/* */")
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "index-1a2b.js").write_text(SCRIPT)
    (tmp_path / "assets" / "secret.txt").write_text("not of a type that is served")
    (tmp_path / "outside.js").write_text("not served")
    return tmp_path


def client(folder: Path) -> httpx.AsyncClient:
    application = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    install(application, folder)
    return httpx.AsyncClient(transport=httpx.ASGITransport(application), base_url="http://127.0.0.1")


@pytest.mark.parametrize("path", ["/", *UI_PAGES, "/executions/01a1f6", "/workflows/team/report"])
async def test_every_page_is_the_same_file_under_a_strict_policy(built: Path, path: str) -> None:
    async with client(built) as http:
        page = await http.get(path)
    assert page.status_code == 200
    assert "<title>Dal Segno" in page.text
    assert page.headers["content-security-policy"] == POLICY
    assert "unsafe" not in POLICY
    assert "http" not in POLICY
    assert page.headers["cache-control"] == "no-cache"
    assert is_public("GET", path)


async def test_files_with_a_hash_in_their_name_are_kept_and_sent_packed(built: Path) -> None:
    async with client(built) as http:
        packed = await http.get("/assets/index-1a2b.js", headers={"Accept-Encoding": "gzip"})
        plain = await http.get("/assets/index-1a2b.js", headers={"Accept-Encoding": "identity"})
        again = await http.get("/assets/index-1a2b.js", headers={"If-None-Match": packed.headers["etag"]})
    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) == len(gzip.compress(SCRIPT.encode(), 6, mtime=0))
    assert packed.text == plain.text == SCRIPT
    assert "immutable" in packed.headers["cache-control"]
    assert packed.headers["content-type"].startswith("text/javascript")
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    "path",
    [
        "/assets/secret.txt",
        "/assets/../outside.js",
        "/assets/%2e%2e/outside.js",
        "/outside.js",
        "/index.html",
        "/assets/",
    ],
)
async def test_no_other_file_can_be_asked_for(built: Path, path: str) -> None:
    async with client(built) as http:
        assert (await http.get(path)).status_code == 404


async def test_a_server_without_a_built_ui_says_how_to_build_it(tmp_path: Path) -> None:
    async with client(tmp_path) as http:
        for path in PAGES:
            page = await http.get(path.replace("{rest:path}", "x"))
            assert page.status_code == 200
            assert "make web" in page.text
