"""The simulator: the real core, engine and memory adapters under virtual time, with faults drawn from a seed.

One seed draws a random graph and a schedule of faults. The graph runs without faults and with them, on a simulated
system of two processes (:mod:`environment`). Messages are dropped, duplicated, delayed and reordered. Store calls
fail before or after they take effect. Processes are killed between any two awaits or stop gracefully. Clocks jump.
Executions are paused, resumed and cancelled. Then the run is judged (:mod:`judge`):

* the kernel's guarantees L1 to L8 hold after every commit and at the end (:mod:`invariants`), nothing stays stuck,
  and a second execution beside it ends too (L9);
* where the order does not matter, the outcome equals the prediction of an independent reading of the graph
  (:mod:`reference`), with and without faults;
* in any case the outcome equals that of a serial replay of the run's decisions (:mod:`replay`).

Programs, as scripts and as Python workflows, are drawn and judged in the same way (:mod:`programs`).
"""

from dalsegno.testing.simulation.judge import Case, Verdict, draw, judge
from dalsegno.testing.simulation.scenario import Scenario
from dalsegno.testing.simulation.seeds import Tally, command, describe, run_chunk, run_seed, run_seeds
from dalsegno.testing.simulation.shrink import shrink

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
