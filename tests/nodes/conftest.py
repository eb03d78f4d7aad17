"""Fixtures of the http node's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp.test_utils import TestServer

from dalsegno.nodes.http_client import HttpClients
from tests.nodes.http_service import service


@pytest.fixture
async def server() -> AsyncIterator[TestServer]:
    async with TestServer(service(), host="127.0.0.1") as running:
        yield running


@pytest.fixture
async def clients() -> AsyncIterator[HttpClients]:
    provider = HttpClients()
    yield provider
    await provider.close()
