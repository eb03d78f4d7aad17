"""A user's own application under the kit: as it is, on memory, and left alone afterwards."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from dalsegno import App, UsageError
from dalsegno.testing import TestKit
from tests.testing import shop

FLOW = 'workflow greet(inputs) {\n  return await Task.run("count_words", inputs.text)\n}\n'
STORE = Path("a-store-that-no-test-may-touch.db")


@pytest.fixture
def kit() -> TestKit:
    return TestKit(shop.app)


def test_code_under_test_that_uses_the_application_meets_the_kit(kit: TestKit) -> None:
    with kit:
        kit.mock("charge", returns="paid")
        kit.mock("ship", returns="parcel")
        execution = shop.place_order(shop.Order(7, 100))
        assert shop.app.handle(execution).result() == {"receipt": "paid", "parcel": "parcel"}
    assert not STORE.exists()


def test_running_and_closing_the_application_change_nothing_inside(kit: TestKit) -> None:
    with kit:
        with shop.app.running():
            assert shop.app.start(shop.count_all, ["a b", "c"]).result() == 3
        shop.app.close()
        assert kit.run(shop.count_all, ["a b c"]) == 3
    assert not STORE.exists()


def test_one_kit_after_another_starts_from_nothing(kit: TestKit) -> None:
    with kit:
        first = kit.start(shop.count_all, ["a"]).id
    with TestKit(shop.app) as other:
        assert other.run(shop.count_all, ["a b"]) == 2
        assert first not in {handle.id for handle in shop.app.executions()}


def test_a_task_alone_and_a_workflow_by_name(kit: TestKit) -> None:
    with kit:
        assert kit.run(shop.count_words, "one two") == 2
        assert kit.run("count_all", ["one two"]) == 2


def test_scripts_and_graphs_from_files(kit: TestKit, tmp_path: Path) -> None:
    (tmp_path / "greet.flow").write_text(FLOW)
    (tmp_path / "nap.yaml").write_text(
        "{name: nap, nodes: [{id: w, type: wait, parameters: {amount: 3, unit: days}}], edges: []}"
    )
    with kit:
        assert kit.run(tmp_path / "greet.flow", text="one two three") == 3
        assert kit.run(str(tmp_path / "greet.flow"), {"text": "one"}) == 1
        assert kit.start(tmp_path / "nap.yaml").wait().state == "COMPLETED"


def test_async_tests_use_the_twins_on_their_own_loop() -> None:
    async def scenario() -> None:
        app = App("memory:")
        loops = []

        @app.task
        async def remember(_: object) -> str:
            loops.append(asyncio.get_running_loop())
            return "done"

        async with TestKit(app) as kit:
            source = 'await Timer.delay("1d"); await Signal.next("go"); return await Task.run("remember", 1)'
            handle = await kit.astart(source)
            await kit.aadvance("1d")
            await kit.asignal(handle, "go")
            assert await handle.aresult() == "done"
            assert loops == [asyncio.get_running_loop()]
            await kit.aassert_resumable(source, signals={"go": None})
            with pytest.raises(UsageError, match="prefix 'a'"):
                kit.run(source)

    asyncio.run(scenario())


async def test_async_tests_use_the_fixture_too(workflows: TestKit) -> None:
    workflows.mock("charge", returns=1)
    assert await workflows.arun('await Timer.delay("1d"); return await Task.run("charge", 1)') == 1


def test_a_kit_that_is_not_open_says_so(kit: TestKit) -> None:
    with pytest.raises(UsageError, match="with TestKit"):
        kit.run(shop.count_all, [])
    with pytest.raises(UsageError, match="with TestKit"):
        kit.advance(1)


def test_the_package_needs_no_pytest() -> None:
    program = "import sys, dalsegno.testing as t; t.TestKit; assert 'pytest' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_the_fixtures_come_with_the_installed_package(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "import pytest\nfrom tests.testing import shop\n\n\n@pytest.fixture\ndef dalsegno_app():\n    return shop.app\n"
    )
    (tmp_path / "test_it.py").write_text(
        "def test_it(workflows):\n    assert workflows.run('count_all', ['a b']) == 2\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        env={"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": "/usr/bin:/bin"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr
