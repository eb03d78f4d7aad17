"""Fixtures of the http node's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp.test_utils import TestServer

from dalsegno.nodes.http.client import HttpClients
from tests.nodes.http_service import service


@pytest.fixture
async def server() -> AsyncIterator[TestServer]:
    running = TestServer(service(), host="127.0.0.1")
    await running.start_server()
    yield running
    await running.close()


@pytest.fixture
async def clients() -> AsyncIterator[HttpClients]:
    provider = HttpClients()
    yield provider
    await provider.close()
