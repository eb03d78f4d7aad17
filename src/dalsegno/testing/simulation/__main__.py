"""``python -m dalsegno.testing.simulation --seeds 2000 --start 0 --jobs 2``: the simulator's command line."""

from __future__ import annotations

import argparse
import sys

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from dalsegno.testing.simulation.seeds import KindName, Tally, run_seeds


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    seeds = range(options.start, options.start + options.seeds)
    console = Console()
    tally = Tally()
    with _progress(console) as progress:
        bar = progress.add_task("seeds", total=len(seeds))
        kind: KindName = "scripts" if options.scripts else "graphs"
        for part in run_seeds(seeds, options.jobs, options.shrink, kind):
            tally.add(part)
            progress.update(bar, advance=part.seeds)
            for failure in part.failures:
                console.print(failure, markup=False, highlight=False, soft_wrap=True)
    console.print(_sentence(tally), highlight=False)
    return 1 if tally.failures else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dalsegno.testing.simulation",
        description="Runs random graphs or programs on a simulated system with faults; checks the kernel's promises.",
    )
    parser.add_argument(
        "--scripts", action="store_true", help="scripts and Python workflows instead of graphs"
    )
    parser.add_argument("--seeds", type=int, default=200, metavar="N", help="how many seeds (200)")
    parser.add_argument("--start", type=int, default=0, metavar="S", help="the first seed (0)")
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="processes to spread them over (1)")
    parser.add_argument(
        "--shrink", type=float, default=20.0, metavar="SECONDS", help="time to look for a shorter form (20)"
    )
    return parser


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _sentence(tally: Tally) -> str:
    return (
        f"{tally.seeds} seeds, {len(tally.failures)} failed; {tally.confluent} confluent, {tally.predicted} predicted, "
        f"{tally.faults} faults applied in {tally.steps} steps"
    )


if __name__ == "__main__":
    sys.exit(main())
