"""What the documentation says about itself and about the code stays true: links, names, generated files."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer
import yaml

from dalsegno.cli.group import SECTIONS
from dalsegno.cli.main import app
from dalsegno.core.graph.fail import MAX_LOSSES
from dalsegno.engine import committer
from dalsegno.engine.scripts import advance, machine_cache
from dalsegno.engine.settings import EngineSettings
from dalsegno.engine.steps import tasks
from dalsegno.engine.worker import tokens
from dalsegno.error_causes import CAUSES, NODE_CODES
from dalsegno.graph.documents.document import DocumentLimits
from dalsegno.lang.flow.snapshot import write
from dalsegno.lang.flow.syntax.front_matter import MAX_FRONT_MATTER
from dalsegno.lang.python.runtime.machine import MAX_SNAPSHOT
from dalsegno.lang.python.snapshot.format import MOST_PROMISES
from dalsegno.lang.runtime.limits import MAX_NESTING, MAX_SOURCE, Limits
from dalsegno.lang.stdlib import CONSTANTS, FUNCTIONS, arrays, callbacks, orchestration, strings
from scripts.generate_docs import PAGES, outdated
from scripts.pages.errors import error_classes
from tests.docs.pages import DOCS, ROOT, blocks, pages
from tests.rows import rows

LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)")
CODE = re.compile(r"^( *)(`{3,}).*?^\1\2", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(?:`|\$ (?:[A-Z_]+=\S+ )*)dalsegno (?P<command>[a-z]+)")


def prose(page: Path) -> str:
    return CODE.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """As the table of contents names them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {
        re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading.lower())).strip("-") for heading in headings
    }


@rows("page", pages(), ids=lambda page: str(page.relative_to(DOCS)))
def test_links_of_the_page_lead_somewhere(page: Path) -> None:
    for match in LINK.finditer(prose(page)):
        target, _, anchor = match["target"].partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        aim = (page.parent / target).resolve() if target else page
        assert aim.exists(), f"{page.relative_to(DOCS)} links to {match['target']}"
        if anchor:
            assert anchor in anchors(aim), f"{page.relative_to(DOCS)} links to {match['target']}"


def test_every_page_is_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = set(re.findall(r"[\w/.-]+\.md", str(yaml.safe_load(text)["nav"])))
    assert listed == {str(page.relative_to(DOCS)) for page in pages()}


def test_generated_files_are_up_to_date() -> None:
    assert outdated() == [], "run: python -m scripts.generate_docs"


def test_every_error_code_has_a_cause_and_a_cure() -> None:
    assert set(CAUSES) == {error.code for error in error_classes()}
    assert all(cause and cure for cause, cure in CAUSES.values())


def test_every_code_of_nodes_is_explained() -> None:
    folders = [ROOT / "src/dalsegno" / name for name in ("core", "engine", "nodes")]
    sources = "".join(path.read_text(encoding="utf-8") for folder in folders for path in folder.rglob("*.py"))
    codes = re.findall(r'code="([A-Z_]+)"', sources) + re.findall(r'"(HTTP_[A-Z_]+)"', sources)
    assert codes
    assert sorted(set(codes) - set(NODE_CODES)) == []


@rows("page", [page for page in pages() if page.name not in PAGES], ids=lambda page: page.stem)
def test_commands_of_the_page_exist(page: Path) -> None:
    known = {name for names in SECTIONS.values() for name in names}
    named = {match["command"] for match in COMMAND.finditer(page.read_text(encoding="utf-8"))}
    assert named <= known


FIRST_PAGES = [ROOT / "README.md", DOCS / "index.md", *sorted(DOCS.glob("tutorial*.md"))]


def test_programs_of_the_first_pages_start_nothing_when_they_are_imported() -> None:
    running = [
        block
        for page in FIRST_PAGES
        for block in blocks(page)
        if block.language == "python" and re.search(r"\bapp\.(running\(|a?start\()", block.body)
    ]
    assert len(running) >= 4
    for block in running:
        guard = block.body.find('if __name__ == "__main__":')
        assert 0 <= guard < block.body.index("app.running("), block.place


def test_tutorials_do_not_overwrite_files_of_each_other() -> None:
    contents: dict[str, str] = {}
    for block in (block for page in FIRST_PAGES for block in blocks(page) if block.title is not None):
        assert contents.setdefault(str(block.title), block.body) == block.body, block.place


def variables_of_the_source() -> set[str]:
    """Every environment variable of ours that the package reads or names."""
    sources = (path.read_text(encoding="utf-8") for path in (ROOT / "src" / "dalsegno").rglob("*.py"))
    return {found for source in sources for found in re.findall(r"\bDALSEGNO_[A-Z_]+[A-Z]\b", source)}


def test_every_variable_of_the_environment_is_listed() -> None:
    text = (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `(DALSEGNO_[A-Z_]+)` \|", text, re.MULTILINE))
    assert "DALSEGNO_STORE" in listed
    assert listed == variables_of_the_source()


def test_commands_without_a_server_are_named() -> None:
    """`--server` stands beside `--store`, but for those that run or look after a store."""
    text = (DOCS / "tutorial-server.md").read_text(encoding="utf-8")
    [said] = re.findall(r"take only `--store`: (.+?)\.\n", text, re.DOTALL)
    without = {
        name for name, options in options_by_command() if "--store" in options and "--server" not in options
    }
    assert set(re.findall(r"`([a-z]+)`", said)) == without


def options_by_command() -> list[tuple[str, set[str]]]:
    program: Any = typer.main.get_command(app)
    return [
        (name, {option for each in part.params for option in each.opts})
        for name, command in program.commands.items()
        for part in getattr(command, "commands", {"": command}).values()
    ]


def test_modules_that_pages_import_from_are_named_as_public() -> None:
    text = (DOCS / "reference" / "python.md").read_text(encoding="utf-8")
    [table] = re.findall(r"^\| module \| for \|\n(.+?)\n\n", text, re.MULTILINE | re.DOTALL)
    public = {
        name
        for line in table.splitlines()
        for name in re.findall(r"`(dalsegno[a-z_.]*)`", line.split("|")[1])
    }
    code = "".join(block.body for page in pages() for block in blocks(page) if block.language == "python")
    used = set(re.findall(r"^\s*(?:from|import) (dalsegno\.[a-z_.]+)", code, re.MULTILINE))
    assert "dalsegno.remote_worker" in used
    assert [
        name for name in sorted(used) if not any(f"{name}.".startswith(f"{each}.") for each in public)
    ] == []
    assert [name for name in sorted(public) if find_spec(name) is None] == []


def test_library_is_listed_whole() -> None:
    text = (DOCS / "reference" / "expressions.md").read_text(encoding="utf-8")
    names = [
        *FUNCTIONS, *CONSTANTS, *strings.METHODS, *strings.NUMBER_METHODS, *arrays.METHODS, *arrays.MUTATORS,
        *callbacks.CALLBACK_METHODS,
    ]  # fmt: skip
    assert [name for name in names if f"`{name}`" not in text] == []


def test_rules_of_documents_are_listed_whole() -> None:
    text = (DOCS / "reference" / "graphs.md").read_text(encoding="utf-8")
    sources = "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "src/dalsegno/graph").rglob("*.py")
    )
    calls = re.findall(r"(?:report\.(?:error|warn)|Finding|Refused)\((.*?)\)", sources, re.DOTALL)
    rules = {rule for call in calls for rule in re.findall(r'"([a-z]+(?:-[a-z]+)+)"', call)} - {
        "input-schema"
    }
    assert len(rules) > 40
    assert [rule for rule in sorted(rules) if f"`{rule}`" not in text] == []


def test_limits_are_those_of_the_code() -> None:
    text = (DOCS / "limits.md").read_text(encoding="utf-8")
    settings, document, limits = EngineSettings(), DocumentLimits(), Limits()
    for said in (
        f"size of a document | {document.max_bytes:,} bytes",
        f"nesting of a document | {document.max_depth} levels",
        f"instructions | {limits.instructions:,}",
        f"bytes allocated | {limits.allocated_bytes // 2**20} MiB",
        f"one value | {limits.result_bytes // 2**20} MiB",
        f"depth of the stack | {limits.stack_depth}",
        f"are compared | {MAX_NESTING}",
        f"steps at the same time, per process | {settings.concurrency}",
        f"threads for blocking tasks, per process | {settings.threads}",
        f"lease of a worker | {settings.lease_seconds:g} s, renewed every {settings.lease_seconds / 4:g} s",
        f"grace at shutdown | {settings.grace:g} s",
        f"with the same token | {MAX_LOSSES}",
        f"transitions per commit | {committer.MAX_BATCH}",
        f"while others wait | {tokens.MAX_HOPS}, or {tokens.MAX_RUN * 1000:g} ms",
    ):
        assert said in text, said


def test_limits_of_scripts_are_those_of_the_code() -> None:
    text = (DOCS / "limits.md").read_text(encoding="utf-8")
    settings, limits = EngineSettings(), EngineSettings().limits
    scripts = limits.scripts
    kept = (
        f"{machine_cache.CAPACITY:,}, together at most {_mebibytes(machine_cache.MOST_BYTES)},"
        f" each at most {_mebibytes(machine_cache.LARGEST)}"
    )
    for said in (
        f"rounds of loops of a Python workflow | {scripts.instructions:,} ",
        f"{_mebibytes(scripts.allocated_bytes)}, {_mebibytes(scripts.result_bytes)} ",
        f"calls inside each other | {scripts.stack_depth} ",
        f"settled already | {advance.MOST_STOPS:,} ",
        f"snapshot, without values over {write.BLOB // 2**10} KiB | {_mebibytes(limits.snapshot_bytes)} ",
        f"snapshot of a Python workflow, with them | {_mebibytes(MAX_SNAPSHOT)} ",
        f"| {orchestration.MAX_GROUP:,}, at most {orchestration.MAX_GROUP_DEPTH} groups inside each other ",
        f"promises a Python workflow holds at an await | {MOST_PROMISES:,} ",
        f"source; front matter | {MAX_SOURCE:,} and {MAX_FRONT_MATTER:,} characters ",
        f"clean-up after a cancel or timeout | {'none' if settings.cancel_grace is None else settings.cancel_grace} ",
        f"turns of Python workflows at the same time, per process | {tasks.TURN_THREADS} threads ",
        f"machines a worker keeps in memory | {kept} ",
    ):
        assert said in text, said


def _mebibytes(count: int) -> str:
    return f"{count // 2**20} MiB"


def test_settings_are_listed_whole() -> None:
    text = (DOCS / "reference" / "python.md").read_text(encoding="utf-8")
    assert [name for name in EngineSettings.__slots__ if f"`{name}`" not in text] == []


def test_blocks_name_their_language() -> None:
    unnamed = [block.place for page in pages() for block in blocks(page) if not block.language]
    assert unnamed == []


def test_site_builds_without_a_warning(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
