"""Every command line that the documentation shows can be parsed by the program: commands, sub-commands, options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from dalsegno.cli.group import ClickException
from dalsegno.cli.main import app
from scripts.generate_docs import PAGES
from tests.docs.pages import ROOT, blocks, pages

SHELLS = ("console", "bash", "sh", "shell")
WRITTEN = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "examples").rglob("*.md")),
    *(page for page in pages() if page.name not in PAGES and "adr" not in page.parts),
]
"""The generated pages are the program's own words, and decisions are of their time."""
LINE = re.compile(r"^(?:\$ )?(?:[A-Z_]+=\S+ )*(?:exec |\.venv/bin/)?dalsegno(?= |$)")
INLINE = re.compile(r"(?<!`)`(?:[A-Z_]+=\S+ )*dalsegno ([^`]+)`(?!`)")
SUBSTITUTION = re.compile(r"\$\(\s*dalsegno ([^()]*)\)")
SHELL_SIGNS = frozenset(("|", "||", "&&", "&", ";", ">", ">>", "<", "2>", "2>&1", ")"))
PLACEHOLDERS = ("…", "...")


@cache
def program() -> Any:
    return typer.main.get_command(app)


@cache
def benchmarks() -> Any:
    """`dalsegno bench` passes its arguments on to a program of its own."""
    program = typer.Typer(add_completion=False)
    import_module("dalsegno.bench.cli").register(program)
    return typer.main.get_command(program)


def shell_lines(text: str) -> Iterator[str]:
    """Lines of a block, those that end with a backslash together with the next."""
    joined = re.sub(r"\\\n\s*(?:> )?", " ", text)
    for line in joined.splitlines():
        if LINE.match(line):
            yield LINE.sub("", line)
        yield from (found[1] for found in SUBSTITUTION.finditer(line))


def words_of(line: str) -> list[str]:
    """Up to a sign of the shell: what follows is another command's."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>()")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    words = []
    for word in lexer:
        if word in SHELL_SIGNS:
            break
        words.append(word)
    return words


def leaves(command: Any) -> Iterator[Any]:
    inner = getattr(command, "commands", {})
    if not inner:
        yield command
    for each in inner.values():
        yield from leaves(each)


def leaf_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that is meant, and its own arguments. Fails where there is none of that name."""
    command, rest = program(), list(words)
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        name = rest.pop(0)
        assert name in command.commands, f"there is no command '{name}'"
        command = benchmarks() if name == "bench" else command.commands[name]
    return command, rest


def options_of(command: Any) -> set[str]:
    return {name for each in command.params for name in (*each.opts, *each.secondary_opts)} | {"--help", "-h"}


def check_options(line: str) -> None:
    if line.strip().startswith(PLACEHOLDERS):
        return
    command, rest = leaf_of(words_of(line))
    if "--" in rest:
        rest = rest[: rest.index("--")]
    known = options_of(command)
    for word in rest:
        if re.match(r"--?[a-z]", word):
            name = word.partition("=")[0]
            assert name in known, f"'{command.name}' has no option {name}"


def check_whole(line: str) -> None:
    """As the program parses it: every option exists and has its value, every argument that is needed is there."""
    command, rest = leaf_of(words_of(line))
    if not hasattr(command, "commands"):
        try:
            command.make_context(command.name, rest)
        except ClickException as error:
            raise AssertionError(error.format_message()) from None  # type: ignore[attr-defined]
        except typer.Exit:  # --help
            pass


def shown() -> list[tuple[str, str]]:
    """Place and line of every command in a block of shell."""
    return [
        (block.place, line)
        for page in WRITTEN
        for block in blocks(page)
        if block.language in SHELLS
        for line in shell_lines(block.body)
    ]


def mentioned() -> list[tuple[str, str]]:
    """The same of commands in running text."""
    return [
        (str(page.relative_to(ROOT)), found[1].replace("\n", " "))
        for page in WRITTEN
        for found in INLINE.finditer(page.read_text(encoding="utf-8"))
    ]


def failures(lines: list[tuple[str, str]], check: Any) -> list[str]:
    found = []
    for place, line in lines:
        try:
            check(line)
        except (AssertionError, ValueError) as error:
            found.append(f"{place}: dalsegno {line.strip()}: {error}")
    return found


def test_commands_in_blocks_can_be_parsed() -> None:
    lines = shown()
    assert len(lines) > 60
    assert failures([each for each in lines if not _is_sketch(each[1])], check_whole) == []
    assert failures(lines, check_options) == []


def test_commands_in_running_text_exist() -> None:
    lines = mentioned()
    assert len(lines) > 100
    assert failures(lines, check_options) == []


def _is_sketch(line: str) -> bool:
    return any(sign in line for sign in PLACEHOLDERS)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (" shedule ls", "no command 'shedule'"),
        (" schedule drop x", "no command 'drop'"),
        (" ls --status RUNNING", "--status"),
        (" start", "Missing argument"),
        (" ls --limit", "requires an argument"),
    ],
)
def test_a_wrong_command_is_found(line: str, complaint: str) -> None:
    assert complaint in failures([("here", line)], check_whole)[0]


def test_workflows_that_the_readme_names_have_been_run_there() -> None:
    lines = [line for place, line in shown() if place.startswith("README.md")]
    run = {
        yaml.safe_load((ROOT / word).read_text(encoding="utf-8"))["name"]
        for line in lines
        for word in words_of(line)
        if word.endswith(".yaml")
    }
    named = {words[words.index("--workflow") + 1] for words in map(words_of, lines) if "--workflow" in words}
    assert named
    assert named <= run


def test_options_are_written_in_small_letters() -> None:
    """Some versions of typer name an option after its metavar, where both are the same word."""
    names = {name for each in leaves(program()) for name in options_of(each)}
    assert len(names) > 80
    assert [name for name in sorted(names) if name.startswith("--") and name != name.lower()] == []


def test_every_page_is_looked_at() -> None:
    assert Path(ROOT / "docs" / "server.md") in WRITTEN
