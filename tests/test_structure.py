"""The layout of the source tree: folders one can survey, imports without circles, names of the domain."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
PACKAGE = SOURCE / "dalsegno"
MOST_MODULES = 15
LONGEST = 720
"""Lines of one module. The longest hold one idea each; see CONTRIBUTING."""
REFUSED = frozenset(
    (
        "almanac",
        "aside",
        "begun",
        "births",
        "book",
        "desk",
        "doorman",
        "duty",
        "elsewhere",
        "errands",
        "family",
        "foretold",
        "letting",
        "looking",
        "meeting",
        "office",
        "overheard",
        "past",
        "portrait",
        "reaching",
        "reception",
        "riddle",
        "roster",
        "roll",
        "shelf",
        "signalling",
        "tenure",
        "told",
        "ways",
        "whereabouts",
        "helpers",
        "utils",
        "common",
        "misc",
        "manager",
        "base",
    )
)
"""Metaphors, riddles and names that say nothing: none is a word of a module's or a class's name."""
ALLOWED = {
    "dalsegno.client.schedules.ServerSchedules",
    "dalsegno.schedules.Book",
}

Graph = dict[str, set[str]]


@cache
def modules() -> dict[str, ast.Module]:
    found = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(file.relative_to(SOURCE).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = ast.parse(file.read_text(encoding="utf-8"))
    return found


def test_a_folder_holds_at_most_fifteen_modules() -> None:
    counts = {
        str(folder.relative_to(SOURCE)): len([file for file in folder.glob("*.py") if file.name[:2] != "__"])
        for folder in [PACKAGE, *(each for each in PACKAGE.rglob("*") if each.is_dir())]
    }
    assert {folder: count for folder, count in counts.items() if count > MOST_MODULES} == {}


def test_no_module_is_too_long() -> None:
    lines = {
        str(file.relative_to(SOURCE)): file.read_text(encoding="utf-8").count("\n")
        for file in PACKAGE.rglob("*.py")
    }
    assert {file: count for file, count in lines.items() if count > LONGEST} == {}


def test_imports_of_run_time_have_no_circle() -> None:
    assert circles(imports(types=False)) == []


def test_imports_of_types_have_no_circle() -> None:
    assert circles(imports(types=True)) == []


def test_circles_are_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]
    assert circles({"a": {"b", "c"}, "b": {"c"}}) == []


def test_names_are_words_of_the_domain() -> None:
    assert [name for name in names() if REFUSED & set(words(name.rpartition(".")[2]))] == []


def names() -> Iterator[str]:
    """Modules, and the classes that they define."""
    for module, tree in modules().items():
        yield module
        yield from (f"{module}.{each.name}" for each in tree.body if isinstance(each, ast.ClassDef))


def words(name: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)]


def imports(*, types: bool) -> Graph:
    found: Graph = defaultdict(set)
    for module, tree in modules().items():
        for statement in statements(tree, types=types):
            for alias in statement.names:
                inner = f"{statement.module}.{alias.name}"
                target = inner if inner in modules() else statement.module
                if target in modules() and target != module:
                    found[module].add(str(target))
    return found


def statements(tree: ast.Module, *, types: bool) -> Iterator[ast.ImportFrom]:
    """Imports at the top of a module, with those under ``TYPE_CHECKING`` if ``types`` count."""
    for each in tree.body:
        if isinstance(each, ast.ImportFrom):
            yield each
        elif types and isinstance(each, ast.If) and ast.unparse(each.test) == "TYPE_CHECKING":
            yield from (inner for inner in each.body if isinstance(inner, ast.ImportFrom))


def circles(graph: Graph) -> list[list[str]]:
    """Strongly connected groups of more than one module, by Tarjan's algorithm without recursion."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []
    for start in graph:
        if start in index:
            continue
        work = [(start, iter(sorted(graph.get(start, ()))))]
        index[start] = low[start] = len(index)
        stack.append(start)
        while work:
            node, rest = work[-1]
            following = next(rest, None)
            if following is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    cut = stack.index(node)
                    group, stack[cut:] = sorted(stack[cut:]), []
                    found += [group] if len(group) > 1 else []
            elif following not in index:
                index[following] = low[following] = len(index)
                stack.append(following)
                work.append((following, iter(sorted(graph.get(following, ())))))
            elif following in stack:
                low[node] = min(low[node], index[following])
    return found
