"""Long-running worker and scheduler processes, and their options."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import cast

from dalsegno.adapters.urls import shown_url
from dalsegno.app import App
from dalsegno.cli.errors import Refusal
from dalsegno.cli.output import emit, span
from dalsegno.cli.process.health_port import health_address, health_port
from dalsegno.cli.process.startup import NEVER_OPENED, Awaited, running_when_open
from dalsegno.cli.run.session import stop_signals
from dalsegno.cli.target.target import own_program, unused_store_of
from dalsegno.engine.operations.unfinished_versions import lacking_versions, offered_by_others
from dalsegno.engine.process import HTTP_NODE, tune_memory, warm_up
from dalsegno.engine.settings import EngineSettings
from dalsegno.engine.upkeep.reconciler import Retention
from dalsegno.errors import OperatorError, StoreLost
from dalsegno.lang.durations import BadDuration, parse_duration
from dalsegno.model.execution import ENDED, EndState
from dalsegno.nodes.http.egress import ALLOW_VARIABLE, EgressPolicy, policy_from_environment

_HINT = "Write --retention 30d for all, or --retention COMPLETED=7d --retention FAILED=90d."


def with_retention(app: App, written: Sequence[str] | None) -> App:
    """Set ``--retention``, if given; else keep the application's own setting."""
    if written:
        app.settings = replace(app.settings, retention=read_retention_options(written))
    return app


def read_retention_options(written: Sequence[str]) -> Retention:
    """Parse a duration for all states, or one for each state."""
    if len(written) == 1 and "=" not in written[0]:
        return _seconds(written[0])
    by_state: dict[EndState, float] = {}
    for entry in written:
        name, sign, duration = entry.partition("=")
        state = name.strip().upper()
        if not sign or state not in ENDED:
            known = ", ".join(sorted(ENDED))
            raise Refusal(f"--retention {entry!r} names no state in which executions end: {known}", _HINT)
        if state in by_state:
            raise Refusal(f"--retention names {state} twice", _HINT)
        by_state[cast("EndState", state)] = _seconds(duration)
    return by_state


def _seconds(written: str) -> float:
    try:
        return parse_duration(written.strip())
    except BadDuration as error:
        raise Refusal(f"--retention {written!r}: it {error}", _HINT) from None


@dataclass(frozen=True, slots=True)
class LimitOptions:
    """Limits that command-line options set for workflows."""

    workflow_share: float | None = None
    http_timeout: float | None = None
    http_response_bytes: int | None = None

    def within(self, settings: EngineSettings) -> EngineSettings:
        limits = settings.limits
        if self.http_timeout is not None:
            limits = replace(limits, http_timeout=self.http_timeout)
        if self.http_response_bytes is not None:
            limits = replace(limits, http_response_bytes=self.http_response_bytes)
        settings = replace(settings, limits=limits)
        if self.workflow_share is not None:
            settings = replace(settings, workflow_share=self.workflow_share)
        return settings

    def words(self) -> list[str]:
        """Return the options as they are written on the command line."""
        given = asdict(self).items()
        return [f"--{name.replace('_', '-')}={value}" for name, value in given if value is not None]


NO_LIMITS = LimitOptions()


def configure(
    app: App,
    queues: str | None,
    concurrency: int | None,
    grace: float | None,
    limits: LimitOptions = NO_LIMITS,
) -> App:
    """Set the options that are given; else keep the application's own settings."""
    settings = app.settings
    if queues is not None:
        names = tuple(dict.fromkeys(name.strip() for name in queues.split(",") if name.strip()))
        if not names:
            raise Refusal(f"{queues!r} names no queue", "Write --queues default,io.")
        settings = replace(settings, queues=names)
    if concurrency is not None:
        settings = replace(settings, concurrency=concurrency)
    if grace is not None:
        settings = replace(settings, grace=grace)
    app.settings = limits.within(settings)
    if app.egress is None:
        app.egress = policy_from_environment(os.environ)
    return app


async def schedule(app: App, *, quiet: bool, as_json: bool, health: str | None = None) -> None:
    """Run timers, schedules and repairs until SIGINT or SIGTERM. ``health``: address of the health port."""
    log_lines(quiet=quiet)
    tune_memory()
    say = logging.getLogger("dalsegno.cli").info
    address, awaited = health_address(health), Awaited()
    with stop_signals() as stopping, health_port(address, stopping, awaited) as report_on:
        block = partial(app.running, worker=False)
        async with running_when_open(app, block, stopping, awaited) as begun:
            if begun is None:
                say(NEVER_OPENED)
                return
            clock = app.engine.stack.clock
            began = clock.now()
            say("scheduler: timers, schedules and repairs of %s; workers run elsewhere", shown_url(app.url))
            log_unused_store(app)
            log_servers(app)
            report_on(app.engine)
            app.engine.when_lost(stopping.lose)
            await stopping.event.wait()
        stopping.raise_loss()
        say("stopped after %s", span(clock.now() - began))
    if as_json:
        emit({"store": shown_url(app.url), "seconds": round(clock.now() - began, 3)})


async def serve(app: App, *, quiet: bool, as_json: bool, health: str | None = None) -> None:
    """Run a worker until SIGINT or SIGTERM; then running steps are finished or released. ``health``: address of the
    health port."""
    log_lines(quiet=quiet)
    warm_up(app.registry, (HTTP_NODE,))
    tune_memory()
    say = logging.getLogger("dalsegno.cli").info
    address, awaited = health_address(health), Awaited()
    # The port answers before the store is available, and while running steps finish.
    with stop_signals() as stopping, health_port(address, stopping, awaited) as report_on:
        async with running_when_open(app, app.running, stopping, awaited) as begun:
            if begun is None:
                say(NEVER_OPENED)
                return
            engine, clock = app.engine, app.engine.stack.clock
            began = clock.now()
            worker = engine.worker
            name = worker.name if worker is not None else ""
            say("worker %s serves %s on %s", name, ", ".join(app.settings.queues), shown_url(app.url))
            log_servers(app)
            log_registered(app)
            await warn_of_lacking_versions(app)
            if app.egress is not None and app.egress.block_private:
                say(egress_text(app.egress))
            report_on(engine)
            engine.when_lost(stopping.lose)
            await stopping.event.wait()
            say("stopping: running steps may finish within %s", span(app.settings.grace))
        stopping.raise_loss()
        done = worker.steps_done if worker is not None else 0
        say("stopped after %s steps in %s", f"{done:,}", span(clock.now() - began))
    if as_json:
        emit({"worker": name, "steps": done, "seconds": round(clock.now() - began, 3)})


def log_registered(app: App) -> None:
    """Log the tasks and workflows of the program."""
    say = logging.getLogger("dalsegno.cli").info
    log_unused_store(app)
    if app.tasks.names():
        say("tasks: %s", ", ".join(app.tasks.names()))
    if app.workflows.names():
        say("Python workflows: %s", ", ".join(app.workflows.names()))


def log_servers(app: App) -> None:
    """Log the servers besides the store's."""
    say = logging.getLogger("dalsegno.cli").info
    for server in app.engine.stack.servers:
        say("%s: %s%s", server.name, server.url, "" if server.connected() else ", not connected yet")


async def warn_of_lacking_versions(app: App) -> None:
    """Warn of what executions in flight need of an earlier program and this one lacks."""
    logger = logging.getLogger("dalsegno.cli")
    try:
        offered = await offered_by_others(app.client)
        for each in await lacking_versions(app.client, own_program(app), offered):
            logger.warning("%s", each.sentence)
    except StoreLost:
        return  # the process is ending because of it, and reports it once
    except OperatorError as error:
        logger.warning("the needs of executions in flight cannot be determined: %s", error)


def log_unused_store(app: App) -> None:
    unused = unused_store_of(app)
    if unused is not None:
        logging.getLogger("dalsegno.cli").info("the program's own store %s is not used", shown_url(unused))


def egress_text(policy: EgressPolicy | None) -> str:
    if policy is None or not policy.block_private:
        return "HTTP nodes reach every address"
    allowed = [*map(str, policy.networks), *policy.host_patterns]
    more = f", and {', '.join(allowed)}" if allowed else f"; {ALLOW_VARIABLE} lists more"
    return f"HTTP nodes reach public addresses only{more}"


def log_lines(*, quiet: bool) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s"))
    for name, level in (
        ("dalsegno", logging.WARNING if quiet else logging.INFO),
        ("uvicorn", logging.WARNING),
    ):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False
        logger.setLevel(level)
