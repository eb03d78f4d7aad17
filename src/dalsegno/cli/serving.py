"""A long-running worker process."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import asdict, dataclass, replace
from functools import partial

from dalsegno.app import App
from dalsegno.cli.opening import unused_store_of
from dalsegno.cli.output import emit, span
from dalsegno.cli.patience import NEVER_OPENED, Awaited, running_patiently
from dalsegno.cli.probing import health_address, health_port
from dalsegno.cli.problems import Refusal
from dalsegno.cli.session import stop_signals
from dalsegno.engine.memory import tune_memory
from dalsegno.engine.settings import EngineSettings
from dalsegno.engine.unfinished_versions import lacking_versions
from dalsegno.engine.warm_up import HTTP_NODE, warm_up
from dalsegno.errors import OperatorError
from dalsegno.nodes.egress import ALLOW_VARIABLE, EgressPolicy, policy_from_environment
from dalsegno.wiring import shown_url


@dataclass(frozen=True, slots=True)
class OperatorLimits:
    """What options of the command line allow workflows at most."""

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
        """The options as they are written."""
        given = asdict(self).items()
        return [f"--{name.replace('_', '-')}={value}" for name, value in given if value is not None]


NO_LIMITS = OperatorLimits()


def configure(
    app: App,
    queues: str | None,
    concurrency: int | None,
    grace: float | None,
    limits: OperatorLimits = NO_LIMITS,
) -> App:
    """The application's own settings, except for what the options say."""
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
    """Timers, schedules and repairs alone, until SIGINT or SIGTERM. ``health``: where to tell how it is."""
    log_lines(quiet=quiet)
    tune_memory()
    say = logging.getLogger("dalsegno.cli").info
    address, awaited = health_address(health), Awaited()
    with stop_signals() as stopping, health_port(address, stopping, awaited) as tell_of:
        block = partial(app.running, worker=False)
        async with running_patiently(app, block, stopping, awaited) as begun:
            if begun is None:
                say(NEVER_OPENED)
                return
            clock = app.engine.stack.clock
            began = clock.now()
            say("scheduler: timers, schedules and repairs of %s; workers run elsewhere", shown_url(app.url))
            say_which_store_is_not_used(app)
            tell_of(app.engine)
            app.engine.when_lost(stopping.lose)
            await stopping.event.wait()
        stopping.raise_loss()
        say("stopped after %s", span(clock.now() - began))
    if as_json:
        emit({"store": shown_url(app.url), "seconds": round(clock.now() - began, 3)})


async def serve(app: App, *, quiet: bool, as_json: bool, health: str | None = None) -> None:
    """Until SIGINT or SIGTERM; then what runs is finished or handed back. ``health``: where to tell how it is."""
    log_lines(quiet=quiet)
    warm_up(app.registry, (HTTP_NODE,))
    tune_memory()
    say = logging.getLogger("dalsegno.cli").info
    address, awaited = health_address(health), Awaited()
    # The port answers before the store is there, and while what runs is finished.
    with stop_signals() as stopping, health_port(address, stopping, awaited) as tell_of:
        async with running_patiently(app, app.running, stopping, awaited) as begun:
            if begun is None:
                say(NEVER_OPENED)
                return
            engine, clock = app.engine, app.engine.stack.clock
            began = clock.now()
            worker = engine.worker
            name = worker.name if worker is not None else ""
            say("worker %s serves %s on %s", name, ", ".join(app.settings.queues), shown_url(app.url))
            say_what_is_known(app)
            await warn_of_lacking_versions(app)
            if app.egress is not None and app.egress.block_private:
                say(egress_words(app.egress))
            tell_of(engine)
            engine.when_lost(stopping.lose)
            await stopping.event.wait()
            say("stopping: running steps may finish within %s", span(app.settings.grace))
        stopping.raise_loss()
        done = worker.steps_done if worker is not None else 0
        say("stopped after %s steps in %s", f"{done:,}", span(clock.now() - began))
    if as_json:
        emit({"worker": name, "steps": done, "seconds": round(clock.now() - began, 3)})


def say_what_is_known(app: App) -> None:
    """Of the program whose tasks and workflows are run here."""
    say = logging.getLogger("dalsegno.cli").info
    say_which_store_is_not_used(app)
    if app.tasks.names():
        say("tasks: %s", ", ".join(app.tasks.names()))
    if app.workflows.names():
        say("Python workflows: %s", ", ".join(app.workflows.names()))


async def warn_of_lacking_versions(app: App) -> None:
    """What executions in flight need of an earlier program, and this one does not have."""
    if not app.workflows.names():
        return
    logger = logging.getLogger("dalsegno.cli")
    try:
        for each in await lacking_versions(app.client, app.workflows):
            logger.warning("%s", each.sentence)
    except OperatorError as error:
        logger.warning("it cannot be looked up what executions in flight need: %s", error)


def say_which_store_is_not_used(app: App) -> None:
    unused = unused_store_of(app)
    if unused is not None:
        logging.getLogger("dalsegno.cli").info("the program's own store %s is not used", shown_url(unused))


def egress_words(policy: EgressPolicy | None) -> str:
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
