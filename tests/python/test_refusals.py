"""What cannot be a workflow is refused when it is defined, with every problem, its place and what to write instead."""

from __future__ import annotations

import functools
import linecache
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from dalsegno.lang.python import DurableTask, DurableWorkflow, UnsupportedPython, compile_workflow
from tests.python.refused import REFUSED
from tests.python.tasks import echo
from tests.rows import rows


@rows(("function", "problems"), REFUSED, ids=[function.__name__ for function, _ in REFUSED])
def test_refusal_lists_every_problem_with_its_place(function, problems):
    with pytest.raises(UnsupportedPython) as caught:
        compile_workflow(function)
    found = caught.value.problems
    assert len(found) == len(problems), str(caught.value)
    for problem, (message, line) in zip(found, problems, strict=True):
        assert message in problem.message
        assert problem.file.endswith("refused.py")
        text = linecache.getline(problem.file, problem.line)
        assert text.strip().startswith(line)
        assert problem.text == text.rstrip("\n")
        assert f"refused.py:{problem.line}:{problem.column}: {problem.message}" in str(caught.value)
        [shown, caret] = problem.excerpt.split("\n")
        assert shown.strip() == text.strip()
        assert caret.strip() == "^"
        assert shown[caret.index("^")] != " "


def test_the_caret_points_at_the_offender():
    function = next(function for function, _ in REFUSED if function.__name__ == "plain_coroutine")
    with pytest.raises(UnsupportedPython) as caught:
        compile_workflow(function)
    assert caught.value.problems[0].excerpt == "    return await tool(x)\n           ^"
    assert caught.value.line == caught.value.problems[0].line
    assert caught.value.code == "DS-185"


def plain(x):
    return x


def test_a_plain_function_is_refused():
    with pytest.raises(UnsupportedPython, match="write 'async def': a workflow awaits its tasks"):
        compile_workflow(plain)


def test_other_objects_are_refused():
    for wrong in (5, DurableTask(plain), functools.partial(plain), compile_workflow):
        with pytest.raises(UnsupportedPython):
            compile_workflow(wrong)


def test_a_refused_definition_is_shown_with_its_line():
    decorated = """import functools
from dalsegno.lang.python import DurableWorkflow

def keep(function):
    @functools.wraps(function)
    async def wrapper(*args):
        return await function(*args)
    return wrapper

def make_plain():
    @DurableWorkflow
    def plain(x):
        return x

def make_wrapped():
    @DurableWorkflow
    @keep
    async def wrapped(x):
        return x
"""
    assert place_of(decorated, "make_plain") == (12, 5, "    def plain(x):\n    ^")
    assert place_of(decorated, "make_wrapped") == (17, 6, "    @keep\n     ^")


def place_of(source, name):
    """Line, column and excerpt of the refusal that a function of this module ends with."""
    file = f"<{name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    space = {"__name__": __name__}
    exec(compile(source, file, "exec"), space)
    with pytest.raises(UnsupportedPython) as caught:
        space[name]()
    (problem,) = caught.value.problems
    assert f"{file}:{problem.line}:{problem.column}: " in str(caught.value)
    return problem.line, problem.column, problem.excerpt


def wrapping(function):
    @functools.wraps(function)
    async def wrapper(*args):
        return await function(*args)

    return wrapper


def bare_wrapping(function):
    async def wrapper(*args):
        return await function(*args)

    wrapper.__name__ = function.__name__
    return wrapper


def test_a_decorator_in_between_is_refused():
    async def inner(x):
        return await echo(x)

    with pytest.raises(UnsupportedPython, match="another decorator stands between"):
        DurableWorkflow(wrapping(inner))
    with pytest.raises(UnsupportedPython, match="directly above a plain 'async def'"):
        DurableWorkflow(bare_wrapping(inner))


def test_code_without_source_is_refused():
    space = {"echo": echo, "__name__": "nowhere"}
    exec("async def made(x):\n    return await echo(x)\n", space)
    with pytest.raises(UnsupportedPython, match="its source text cannot be read"):
        compile_workflow(space["made"])


def test_code_in_the_interactive_prompt_works_where_python_keeps_it_and_is_refused_clearly_elsewhere():
    code = (
        "from dalsegno.lang.python import *\n"
        "async def made(x):\n    return 1\n\n"
        "try:\n    compile_workflow(made)\nexcept UnsupportedPython as error:\n    print('refused:', error)\n\n"
    )
    done = subprocess.run(
        [sys.executable, "-i"], input=code, capture_output=True, text=True, timeout=240, check=False
    )
    assert "not in the interactive prompt" in done.stdout or "<workflow 'made'" in done.stdout


def test_code_in_a_zip_file_works_or_is_refused_clearly(tmp_path):
    archive = tmp_path / "app.pyz"
    main = (
        "from dalsegno.lang.python import *\n"
        "async def made(x):\n    return 1\n"
        "try:\n    print('compiled', compile_workflow(made).name)\n"
        "except UnsupportedPython as error:\n    print('refused:', error)\n"
    )
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("__main__.py", main)
    done = subprocess.run(
        [sys.executable, str(archive)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={"PYTHONPATH": str(Path(__file__).parents[2] / "src")},
    )
    assert "compiled made" in done.stdout or "its source text cannot be read" in done.stdout, done


def test_expressions_nested_too_deep_are_refused(tmp_path, monkeypatch):
    module = tmp_path / "deep_module.py"
    module.write_text(
        "from tests.python.tasks import echo\nasync def deep(x):\n    return await echo(x)"
        + " + 1" * 1_500
        + "\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import deep_module

    with pytest.raises(UnsupportedPython, match=r"nested too deep|cannot be parsed"):
        compile_workflow(deep_module.deep)


def test_changed_files_are_noticed(tmp_path, monkeypatch):
    module = tmp_path / "changing_module.py"
    module.write_text("async def first(x):\n    return x\n")
    monkeypatch.syspath_prepend(tmp_path)
    import changing_module

    module.write_text("async def second(x):\n    return x\n# longer than before\n")
    linecache.clearcache()
    with pytest.raises(UnsupportedPython, match="the file has changed since it was imported"):
        compile_workflow(changing_module.first)
