"""``run`` and its siblings with Python workflows: named by module or file, refused with carets, resumed elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Invoke
from tests.cli.documents import PROGRAM, TWO_WORKFLOWS, UNFIT, write
from tests.cli.programs import Programs
from tests.waiting import until


@pytest.fixture
def waiting(invoke: Invoke, folder: Path) -> str:
    write(folder, shop_py=PROGRAM)
    told = json.loads(
        invoke("run", "shop.py:shop", "--input", '{"cents": 5}', "--timeout", "2s", "--json").stdout
    )
    assert (told["status"], told["kind"]) == ("RUNNING", "python")
    return str(told["execution_id"])


def test_workflow_of_a_file_runs_and_is_resumed_with_its_app(invoke: Invoke, waiting: str) -> None:
    invoke("signal", waiting, "go", "--payload", '{"by": "Ann"}')
    told = json.loads(invoke("resume", waiting, "--app", "shop.py", "--json").stdout)
    assert (told["status"], told["output"]) == ("COMPLETED", "Hello: 5 by Ann")


@pytest.mark.parametrize("target", ["pair.py:two", "pair:two", "./pair.py:two"])
def test_workflow_may_be_named_by_file_or_module(invoke: Invoke, folder: Path, target: str) -> None:
    write(folder, pair_py=TWO_WORKFLOWS)
    assert json.loads(invoke("run", target, "--json").stdout)["output"] == 2
    assert json.loads(invoke("run", target, "--input", "9", "--json").stdout)["output"] == 9


def test_file_with_one_workflow_needs_no_name(invoke: Invoke, folder: Path) -> None:
    write(
        folder,
        plain_py="from dalsegno import App\napp = App()\n\n\n@app.workflow\nasync def only():\n    return 1\n",
    )
    assert json.loads(invoke("run", "plain.py", "--json").stdout)["output"] == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["pair.py"], "has several workflows"),
        (["pair.py:three"], "Its workflows: one, two."),
        (["nowhere.py:one"], "there is no file nowhere.py"),
        (["nowhere:one"], "no module 'nowhere'"),
        (["shop.py:not_a_workflow"], "an ordinary function, not a workflow"),
        (["shop.py:app"], "is a App, not a workflow"),
        (["pair.py:two", "--input", '"nine"'], "'n' does not fit int"),
        (["pair.py:one", "--app", "shop.py"], "has not registered 'one'"),
    ],
)
def test_bad_targets_get_a_readable_sentence(
    invoke: Invoke, folder: Path, arguments: list[str], said: str
) -> None:
    write(folder, pair_py=TWO_WORKFLOWS, shop_py=PROGRAM)
    result = invoke("run", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr.replace("\n", " ")


def test_function_that_cannot_be_a_workflow_shows_every_reason_with_a_caret(
    invoke: Invoke, folder: Path
) -> None:
    write(folder, unfit_py=UNFIT)
    result = invoke("run", "unfit.py")
    assert result.exit_code == 2
    assert "unfit.py has 3 problems" in result.stderr
    assert "unfit.py:12:5" in result.stderr
    assert result.stderr.count("^") == 3
    told = json.loads(invoke("run", "unfit.py", "--json").stdout)
    assert told["error"]["code"] == "DS-185"
    assert [finding["line"] for finding in told["findings"]] == [12, 13, 14]


def test_failure_tells_the_lines_of_the_users_own_files(invoke: Invoke, folder: Path) -> None:
    write(folder, shop_py=PROGRAM)
    arguments = ("run", "shop.py:shop", "--input", '{"cents": 5, "customer": "Bob"}')
    invoke(*arguments, "--timeout", "2s")
    invoke("signal", "last", "go", "--payload", '{"by": "Ann"}')
    result = invoke("resume", "last", "--app", "shop.py")
    assert result.exit_code == 1
    assert "KeyError" in result.stdout
    assert "at greeting  shop.py:19" in result.stdout
    assert 'return {"Ada": "Hello"}[name]' in result.stdout


def test_other_programs_look_at_it_without_its_code_but_cannot_run_it(
    programs: Programs, folder: Path
) -> None:
    write(folder, shop_py=PROGRAM)
    programs.begin("run", "shop.py:shop", "--input", '{"cents": 5}', "--timeout", "2s").finish()
    _, shown, _ = programs.begin("show", "last").finish()
    assert '▶ 26 │     by = (await signal("go"))["by"]' in shown
    assert "--app shop.py" in shown
    _, whole, _ = programs.begin("show", "last", "--app", "shop.py").finish()
    assert "paid   5" in whole
    assert 'order  {"cents": 5, "customer": "Ada"}' in whole
    _, why, _ = programs.begin("why", "last").finish()
    assert "signal 'go' has not arrived" in why
    code, _, err = programs.begin("resume", "last").finish()
    assert code == 2
    assert "--app" in err


def test_workflow_of_a_program_that_was_started_by_python_goes_on_elsewhere(
    programs: Programs, folder: Path
) -> None:
    """There its module is ``__main__``, here it is not."""
    main = '\nif __name__ == "__main__":\n    app.start(shop, Order(3))\n    app.close()\n'
    write(folder, shop_py=PROGRAM + main)
    assert programs.python("shop.py").finish()[0] == 0
    programs.begin("signal", "last", "go", "--payload", '{"by": "Ann"}').finish()
    told = programs.begin("resume", "last", "--app", "shop.py", "--json").result()
    assert told["output"] == "Hello: 3 by Ann"


def test_start_needs_no_code_once_it_is_deployed(programs: Programs, folder: Path) -> None:
    write(folder, pair_py=TWO_WORKFLOWS)
    assert programs.begin("start", "two", "--app", "pair.py").finish()[0] == 2  # there is no store yet
    programs.begin("run", "pair.py:two").finish()
    code, execution, _ = programs.begin("start", "two", "--input", "5").finish()
    assert code == 0
    told = programs.begin("resume", execution.strip(), "--app", "pair.py", "--json").result()
    assert told["output"] == 5


def test_task_alone_may_be_run(invoke: Invoke, folder: Path) -> None:
    write(folder, shop_py=PROGRAM)
    told = json.loads(invoke("run", "shop.py:charge", "--input", '{"cents": 8}', "--json").stdout)
    assert (told["kind"], told["output"]) == ("task", 8)


def test_worker_runs_what_others_start(programs: Programs, folder: Path) -> None:
    write(folder, pair_py=TWO_WORKFLOWS)
    programs.begin("run", "pair.py:one").finish()
    programs.begin("worker", "--app", "pair.py", "--quiet")
    execution = programs.begin("start", "two", "--input", "6").finish()[1].strip()
    told = programs.begin("watch", execution, "--json").result()
    assert (told["status"], told["output"]) == ("COMPLETED", 6)


def test_watch_follows_a_python_workflow_to_its_end(programs: Programs, folder: Path) -> None:
    write(folder, shop_py=PROGRAM)
    running = programs.begin("run", "shop.py:shop", "--input", '{"cents": 5}', "--quiet")
    until(lambda: "signal" in programs.begin("why", "last").finish()[1], "it waits for its signal")
    watching = programs.begin("watch", "last")
    programs.begin("signal", "last", "go", "--payload", '{"by": "Ann"}').finish()
    code, out, err = watching.finish()
    assert code == 0
    assert "Hello: 5 by Ann" in out
    assert "finished" in err
    assert running.finish()[0] == 0
