"""The simulator: the real core, engine and memory adapters under virtual time, with faults drawn from a seed.

One seed draws a random graph and a schedule of faults. The graph runs without faults and with them, on a simulated
system of two processes (:mod:`world`): messages are dropped, duplicated, delayed and reordered, calls of the store
fail before or after they take effect, processes are killed between any two awaits or stop gracefully, clocks jump,
executions are paused, resumed and cancelled. Then it is judged (:mod:`verdict`):

* the kernel's promises L1 to L8 hold after every commit and at the end (:mod:`invariants`), nothing stays stuck, and
  a second execution beside it ends too (L9);
* where no order matters, the outcome is the one foretold by an independent reading of the graph (:mod:`reference`),
  with faults as without;
* whatever happened, it is what its decisions lead to when they are taken again one by one (:mod:`replay`).

Programs that orchestrate, as scripts and as Python workflows, are drawn and judged in the same way (:mod:`scripts`).
"""

from dalsegno.testing.simulation.report import command, describe
from dalsegno.testing.simulation.scenario import Scenario
from dalsegno.testing.simulation.seeds import Tally, run_chunk, run_seed, run_seeds
from dalsegno.testing.simulation.shrink import shrink
from dalsegno.testing.simulation.verdict import Case, Verdict, draw, judge

__all__ = [
    "Case",
    "Scenario",
    "Tally",
    "Verdict",
    "command",
    "describe",
    "draw",
    "judge",
    "run_chunk",
    "run_seed",
    "run_seeds",
    "shrink",
]
