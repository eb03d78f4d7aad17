"""Modules of applications: what starts executions while it is imported, unknown options, imports that fail."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dalsegno import App, InvalidInput
from tests.cli.conftest import Invoke
from tests.cli.documents import write
from tests.cli.programs import Programs
from tests.docs.pages import ROOT

APP = """\
from dalsegno import App, Client

app = App()


@app.workflow
async def one():
    return 1


"""
GUARD = 'if __name__ == "__main__":'


def program_of_readme() -> str:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    [program] = re.findall(r"^```python\n(.+?)^```", text, re.MULTILINE | re.DOTALL)
    return str(program).replace("patience: float = 2", "patience: float = 0")


# -- starts while the module is imported ------------------------------------------------------------------------


def test_program_of_the_readme_is_run_once_and_imported_often(programs: Programs, folder: Path) -> None:
    (folder / "orders.py").write_text(program_of_readme())
    code, out, err = programs.python("orders.py").finish()
    assert (code, err) == (0, "")
    assert "'by': 'Ann'" in out
    for _ in range(2):
        code, out, _ = programs.begin("ls", "--app", "orders:app", "--json").finish()
        assert (code, len(json.loads(out)["executions"])) == (0, 1)


def test_program_without_the_guard_is_refused_with_its_line(programs: Programs, folder: Path) -> None:
    text = program_of_readme().replace(GUARD, "if True:")
    write(folder, orders_py=text)
    line = text.splitlines().index("    with app.running():  # worker and timers of this process") + 1
    for arguments in (
        ("worker", "--app", "orders:app"),
        ("run", "orders.py:order"),
        ("ls", "--app", "orders.py"),
    ):
        code, _, err = programs.begin(*arguments).finish()
        assert code == 2
        assert f"orders.py:{line} runs its application while 'orders' is imported" in " ".join(err.split())
        assert GUARD in " ".join(err.split())
    assert not (folder / "orders.db").exists()


@pytest.mark.parametrize(
    ("last", "doing"),
    [
        ("app.start(one)", "starts an execution"),
        ("app.with_options(priority=1).start(one)", "starts an execution"),
        ("app.submit(one)", "starts an execution"),
        ("import asyncio; asyncio.run(app.astart(one))", "starts an execution"),
        ("import asyncio; asyncio.run(app.asubmit(one))", "starts an execution"),
        ("app.running().__enter__()", "runs its application"),
        ("import asyncio; asyncio.run(app.running().__aenter__())", "runs its application"),
        ("Client('http://127.0.0.1:1').start('one')", "starts an execution"),
        ("import asyncio; asyncio.run(Client('http://127.0.0.1:1').asubmit('one'))", "starts an execution"),
    ],
)
def test_every_way_to_start_is_refused_during_the_import(
    invoke: Invoke, folder: Path, last: str, doing: str
) -> None:
    write(folder, begins_py=f"{APP}{last}\n")
    refused = invoke("run", "begins.py:one")
    assert refused.exit_code == 2
    assert f"begins.py:11 {doing} while 'begins' is imported" in refused.stderr


def test_start_in_a_module_that_the_application_imports_is_named_there(invoke: Invoke, folder: Path) -> None:
    write(
        folder,
        begins_py=f"{APP}def go():\n    app.start(one)\n\n\ngo()\n",
        shop_py="from begins import app\n",
    )
    assert (
        "begins.py:15 starts an execution while 'shop' is imported"
        in invoke("ls", "--app", "shop:app").stderr
    )


def test_start_with_a_key_is_made_once_by_all_imports(invoke: Invoke, folder: Path) -> None:
    write(folder, begins_py=f"{APP}app.with_options(idempotency_key='once').start(one)\n")
    assert invoke("run", "begins.py:one", "--json").exit_code == 0
    del sys.modules["begins"]
    assert len(json.loads(invoke("ls", "--app", "begins.py", "--json").stdout)["executions"]) == 2


def test_deploy_during_the_import_is_no_start(invoke: Invoke, folder: Path) -> None:
    write(folder, begins_py=f"{APP}app.deploy_script('return 2', 'two')\n")
    assert invoke("run", "begins.py:one").exit_code == 0


# -- unknown options --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("@app.task(retires=3)\ndef a(): ...\n", "@app.task has no option 'retires'; did you mean 'retries'?"),
        ("@app.workflow(timout=3)\nasync def b(): ...\n", "has no option 'timout'; did you mean 'timeout'?"),
        ("other = App(setings=None)\n", "App has no option 'setings'; did you mean 'settings'?"),
        ("app.remote_task('a', queue='q', retrie=1)\n", "has no option 'retrie'; did you mean 'retries'?"),
        ("app.with_options(key='a')\n", "app.with_options has no option 'key'"),
    ],
)  # fmt: skip
def test_unknown_option_is_named_with_its_line(invoke: Invoke, folder: Path, text: str, said: str) -> None:
    write(folder, begins_py=APP + text)
    refused = invoke("run", "begins.py:one")
    assert refused.exit_code == 2
    assert refused.stderr.startswith("error: begins.py:11: ")
    assert said in refused.stderr
    assert "Its options: " in refused.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("@app.task('a')\ndef a(): ...\n", "@app.task decorates a function, not 'a'; options have names"),
        ("@app.task(retries='3')\ndef a(): ...\n", "the option 'retries' is not valid: '3'"),
        (
            "@app.task(timeout='3 parsecs')\ndef a(): ...\n",
            "the option 'timeout': '3 parsecs' has the unknown unit",
        ),
        ("@app.workflow('a')\nasync def a(): ...\n", "@app.workflow decorates a function, not 'a'"),
    ],
)
def test_unusable_option_is_shown_with_its_line(invoke: Invoke, folder: Path, text: str, said: str) -> None:
    write(folder, begins_py=APP + text)
    refused = invoke("run", "begins.py:one")
    assert refused.exit_code == 2
    assert said in refused.stderr
    assert "Raised at begins.py:11." in refused.stderr


def test_unknown_option_is_an_error_of_ours_in_any_program() -> None:
    app = App("memory:")
    with pytest.raises(InvalidInput, match=r"test_app_modules\.py:\d+: @app\.task has no option 'retires'"):
        app.task(retires=3)  # type: ignore[call-overload]
    with pytest.raises(InvalidInput, match="App has no option 'ulr'; did you mean 'url'"):
        App(ulr="memory:")  # type: ignore[call-arg]


# -- imports that fail ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "said", "cure"),
    [
        ("import msgspecc", "imports 'msgspecc', and there is no module of that name; did you mean 'msgspec'", ""),
        ("import shop_taks", "did you mean 'shop_tasks'?", "Correct the name there"),
        ("import json.encoders", "did you mean 'json.encoder'?", "Correct the name there."),
        ("import quite_unheard_of", "'quite_unheard_of', and there is no module", "pip install quite_unheard_of"),
        ("from dalsegno import signall", "which has no such name; did you mean 'signal'?", "'dalsegno' is "),
        ("{}['k']", "importing 'broken' raised KeyError at broken.py:1: 'k'", "DALSEGNO_DEBUG=1"),
        ("import json; json.loads('{')", "importing 'broken' raised JSONDecodeError at broken.py:1:", ""),
    ],
)  # fmt: skip
def test_failed_import_names_line_and_module(
    invoke: Invoke, folder: Path, line: str, said: str, cure: str
) -> None:
    write(folder, broken_py=f"{line}\n{APP}", shop_tasks_py="")
    refused = invoke("run", "broken.py:one")
    assert refused.exit_code == 2
    assert "broken.py:1" in refused.stderr
    assert said in refused.stderr
    assert cure in refused.stderr


def test_failed_import_further_inside_is_named_where_it_stands(invoke: Invoke, folder: Path) -> None:
    write(folder, shop_py="from inner import app\n", inner_py=f"\nimport quite_unheard_of\n{APP}")
    assert "inner.py:2 imports 'quite_unheard_of'" in invoke("worker", "--app", "shop:app").stderr


def test_modules_that_import_each_other_are_called_that(invoke: Invoke, folder: Path) -> None:
    write(
        folder,
        shop_py="import inner\nfrom dalsegno import App\napp = App()\n",
        inner_py="from shop import app\n",
    )
    said = invoke("worker", "--app", "shop:app").stderr
    assert "inner.py:1 imports 'app' from 'shop', which itself is still being imported" in said


def test_misspelt_module_of_the_command_is_suggested(invoke: Invoke, folder: Path) -> None:
    write(folder, back_office_py=APP)
    said = invoke("worker", "--app", "back_ofice:app").stderr
    assert "cannot import 'back_ofice': there is no module 'back_ofice'; did you mean 'back_office'?" in said
    assert "did you mean" not in invoke("worker", "--app", "zqx:app").stderr


def test_command_of_the_package_shows_the_same(folder: Path) -> None:
    write(folder, broken_py=f"import msgspecc\n{APP}")
    done = subprocess.run(
        [sys.executable, "-m", "dalsegno", "run", "broken.py:one"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "broken.py:1 imports 'msgspecc'" in done.stderr
