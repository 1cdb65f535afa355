"""Train DQN on wildfires with the preset and compare the agent: `python -m benchmarks.wildfire_agent RUN`.

It trains into the folder RUN. If RUN already holds a run, finished or not, it uses that run as it is. It compares the
agent with the baselines on held-out landscapes, and writes docs/benchmarks/wildfire_agent.json and the pictures of
docs/wildfire.md. `python -m benchmarks.wildfire --tables` puts the table into the page.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.tables import ROOT
from benchmarks.wildfire_page import AGENT_RESULTS

IMAGES = ROOT / "docs" / "images"
ENV = "envfleet/Wildfire-v0"
SEED = 1
LANDSCAPES = 50  # held out, as many as the page shows


def trained(folder: Path) -> Any:
    """Load the run in `folder` as it is, or train it if there is none."""
    import envfleet

    if (folder / "config.yaml").exists():
        return envfleet.Run.load(folder)
    return envfleet.train(envfleet.DQN(env=ENV, seed=SEED, output_dir=str(folder)))


def figures_of(run: Any, landscapes: int) -> dict[str, Any]:
    """Return the comparison and the learning curve."""
    from envfleet.training.comparing import compare_run

    comparison = compare_run(run.path, episodes=landscapes)
    assert comparison is not None
    metrics = run.metrics
    returns = [
        (row["step"], row["rollout/ep_rew_mean"]) for row in metrics if row.get("rollout/ep_rew_mean") is not None
    ]
    curve = [(step, round(value, 3)) for step, value in returns[:: max(1, len(returns) // 100)]]
    return {"seed": SEED, "steps": metrics[-1]["step"], "curve": curve, "comparison": comparison.figures}


def draw_curve(figures: dict[str, Any], path: Path) -> None:
    """Plot the mean return of training episodes over the steps."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4), layout="constrained")
    axis = figure.subplots()
    axis.plot(*zip(*figures["curve"], strict=True))
    axis.set_title("training episodes (with exploration), mean of 100")
    axis.set_xlabel("steps")
    axis.set_ylabel("burned area avoided, % of the landscape")
    axis.set_ylim(bottom=0)
    axis.grid(alpha=0.3)
    figure.savefig(path, dpi=110)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="the folder of the run")
    parser.add_argument("--landscapes", type=int, default=LANDSCAPES, help="held-out landscapes to compare on")
    options = parser.parse_args(arguments)
    run = trained(options.run)
    figures = figures_of(run, options.landscapes)
    AGENT_RESULTS.write_text(json.dumps(figures, indent=1) + "\n")
    draw_curve(figures, IMAGES / "wildfire-learning.png")
    shutil.copy(Path(run.path) / "report" / "landscape-0.png", IMAGES / "wildfire-agent.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
