"""A second run of tests that failed: alone, in a process of its own, when all others are through.

A build is red because of its change, never because the host withheld its processors. Tests of real processes, servers
and clocks are therefore run once more if they fail. One that passes then is named in the summary as unsteady and does
not fail the run; one that fails again fails it. More than ``MOST`` of them in one run are no noise and fail it, as do
the tests that need nothing but their own thread (``PURE``).

pytest-rerunfailures repeats a test in its place, beside the load that disturbed it, so the second run is our own. A
report of a failure is withheld until then: it carries the outcome ``rerun``, which the other plugins know from there.

There is no second run where it would hide what is looked for: for tests that are named by their node ids, with ``-x``
or ``--pdb``, and with ``DALSEGNO_RERUNS=no``, as `make chaos` and `make soak` have it.
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

PURE = (
    "tests/core/",
    "tests/docs/test_architecture.py",
    "tests/docs/test_commands.py",
    "tests/docs/test_deploy_numbers.py",
    "tests/docs/test_pages.py",
    "tests/graph/",
    "tests/lang/",
    "tests/model/",
    "tests/peers/",
    "tests/python/",
    "tests/simulation/",
    "tests/test_collecting.py",
    "tests/test_structure.py",
)
"""Folders and files whose tests need no server, no second process that takes turns with them, and no clock."""

MOST = 10
PATIENCE = 900.0
"""Seconds for the second run."""
RERUN = "rerun"
OUTCOMES = "outcomes.jsonl"


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput") and takes_place(config):
        config.pluginmanager.register(Reruns(config), "reruns")


def takes_place(config: pytest.Config) -> bool:
    """Say whether tests that fail in this run are run again."""
    option = config.option
    if option.collectonly or option.usepdb or option.maxfail:
        return False
    return os.environ.get("DALSEGNO_RERUNS") != "no" and not any("::" in name for name in config.args)


class Reruns:
    """Withholds reports of failures, runs their tests again, and announces those that failed twice."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.withheld: dict[str, list[pytest.TestReport]] = {}
        self.unsteady: set[str] = set()
        self.output = ""
        self._open = True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Iterator[None]:
        try:
            found = yield
            if 0 < len(self.withheld) <= MOST:
                self._run_again()
        finally:
            self._open = False
            for test in self.withheld.keys() - self.unsteady:
                self._announce(test)
        return found

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Iterator[None]:
        if report.failed and self._withholds(report.nodeid):
            self.withheld.setdefault(report.nodeid, []).append(copy.copy(report))
            report.outcome = RERUN
        return (yield)

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[object, ...] | None:
        return (RERUN, "R", ("RERUN", {"yellow": True})) if report.outcome == RERUN else None

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.output:
            terminalreporter.section("second run")
            terminalreporter.write_line(self.output)
        if not self.unsteady:
            return
        terminalreporter.section("unsteady tests: failed, and passed when they ran alone", yellow=True)
        for test in sorted(self.unsteady):
            for report in self.withheld[test]:
                terminalreporter.write_sep("_", test)
                terminalreporter.write_line(report.longreprtext)
        for test in sorted(self.unsteady):
            terminalreporter.write_line(f"UNSTEADY {test}", yellow=True)

    def _withholds(self, test: str) -> bool:
        if not self._open or test.startswith(PURE):
            return False
        return test in self.withheld or len(self.withheld) <= MOST

    def _announce(self, test: str) -> None:
        for report in self.withheld[test]:
            self.config.hook.pytest_runtest_logreport(report=report)

    def _run_again(self) -> None:
        tests = list(self.withheld)
        terminal = self.config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None:
            terminal.ensure_newline()
            terminal.write_line(f"{len(tests)} failed and run again, alone: {', '.join(tests)}")
        passed, output = second_run(self.config, tests)
        self.unsteady = passed.intersection(tests)
        if len(self.unsteady) < len(tests):
            self.output = output


def second_run(config: pytest.Config, tests: Sequence[str]) -> tuple[set[str], str]:
    """Run the tests in a process of its own; give the node ids of those that passed, and what it printed."""
    with tempfile.TemporaryDirectory() as folder:
        outcomes, printed = Path(folder, OUTCOMES), Path(folder, "printed")
        options = [f"--rootdir={config.rootpath}", "-m", config.option.markexpr, "-p", "no:cacheprovider"]
        if config.inipath is not None:
            options.append(f"--config-file={config.inipath}")
        options += [f"--override-ini={each}" for each in config.option.override_ini or ()]
        command = [sys.executable, "-P", __file__, str(outcomes), *options, *tests]
        with printed.open("wb") as output:
            process = subprocess.Popen(command, cwd=config.rootpath, stdout=output, stderr=subprocess.STDOUT)
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                output.write(f"\nnot through after {PATIENCE:g} s\n".encode())
            finally:
                process.kill()
                process.wait()
        return passed_tests(outcomes), printed.read_text(errors="replace")


def passed_tests(outcomes: Path) -> set[str]:
    """The node ids of tests that ran, and of which no part failed."""
    if not outcomes.exists():
        return set()
    found = [json.loads(line) for line in outcomes.read_text().splitlines()]
    return {test for test, passed in found if passed}


class Recorder:
    """Writes each test's outcome when it is through: the process may not live until the last one."""

    def __init__(self, into: Path) -> None:
        self.into = into
        self.outcomes: dict[str, str] = {}

    def pytest_configure(self) -> None:
        from tests.servers.process import die_with_parent  # pytest has set the path to it by now

        die_with_parent()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.outcomes[report.when] = report.outcome

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        passed = set(self.outcomes.values()) == {"passed"}
        self.outcomes = {}
        with self.into.open("a") as output:
            output.write(json.dumps([nodeid, passed]) + "\n")


if __name__ == "__main__":
    sys.exit(pytest.main(sys.argv[2:], plugins=[Recorder(Path(sys.argv[1]))]))
