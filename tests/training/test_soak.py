"""Two minutes of training with a worker killed every four seconds and environments that raise: nothing leaks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def test_memory_and_descriptors_stay_flat_and_learning_goes_on(tmp_path: Path) -> None:
    """In a process of its own, whose memory is the training's alone."""
    told = tmp_path / "figures.json"
    command = [sys.executable, "-m", "benchmarks.soak", "--json", str(told)]
    # Each worker is killed about four times and an environment raises now and then: more would end the training, since
    # restarts are bounded, and they wait longer each time.
    command += ["--minutes", "2", "--kill-every", "4", "--workers", "8", "--acting", "central"]
    root = Path(__file__).parents[2]
    subprocess.run([*command, "--raise-every", "50000"], check=True, timeout=350, cwd=root, stderr=subprocess.DEVNULL)
    figures = json.loads(told.read_text())["soak"]
    assert figures["kills"] >= 20
    assert figures["restarts"] >= figures["kills"] - 4  # the last ones may not have been noticed
    assert figures["lost_rows"] >= 4 * figures["restarts"]  # a group each, and one for each that raised
    assert figures["growth_mb"] < 4.0
    assert figures["descriptors_after"] <= figures["descriptors_before"] + 2
    assert figures["children_left"] == 0
    assert figures["last_return"] > 3 * figures["first_return"]
