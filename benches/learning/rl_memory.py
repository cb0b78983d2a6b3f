"""Memory of a long PPO run: resident bytes of the process, once per minute.

usage: python benches/learning/rl_memory.py [--minutes N] [--json FILE]
"""

import argparse
import sys
import time
from pathlib import Path

import aktis.rl
from results import Demand, Figure, finish

#: Growth after the first minute that counts as flat.
GROWTH_MEGABYTES_MAX = 10.0


def resident_megabytes() -> float:
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) / 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args()
    minutes = given.minutes
    ppo = aktis.rl.PPO("CartPole-v1", seed=1, target_return=None, total_steps=10**12)
    began = time.monotonic()
    seen: list[float] = []

    def look(ppo: aktis.rl.PPO) -> bool:
        passed = (time.monotonic() - began) / 60
        # Ten looks however long the run is, the first of them when everything is warm.
        if passed >= minutes * (len(seen) + 1) / 10:
            seen.append(resident_megabytes())
            print(f"{passed:5.1f} min, {ppo.steps:12,} steps: {seen[-1]:.1f} MB", flush=True)
        return passed >= minutes

    ppo.train(callback=look)
    figure = Figure(
        f"memory of PPO over {minutes:g} minutes: growth after the first tenth",
        "MB",
        {"aktis": seen[-1] - seen[0]},
        (Demand(GROWTH_MEGABYTES_MAX),),
        less_is_better=True,
        remark=f"{ppo.steps:,} steps; {seen[0]:.1f} MB at first, {max(seen):.1f} MB at most",
        samples={"aktis": seen},
    )
    return finish([figure], given.json)


if __name__ == "__main__":
    sys.exit(main())
