"""Standard streams: a closed reader does not end a run, and an ASCII stream can take everything we print."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from envfleet import cli
from envfleet.runs.checkpoints import Checkpoints
from envfleet.runs.console import Console
from envfleet.streams import error_stream

CHATTY = """
import sys, gymnasium

class Chatty(gymnasium.Wrapper):
    def step(self, action):
        sys.stderr.write("a step\\n")
        return super().step(action)

def make():
    return Chatty(gymnasium.make("CartPole-v1"))
"""


@pytest.fixture
def nobody_reads(monkeypatch: pytest.MonkeyPatch) -> io.TextIOBase:
    """stderr as a pipe without a reader."""
    reader, writer = os.pipe()
    os.close(reader)
    stream = open(writer, "w", buffering=1)  # noqa: SIM115  # closed when the test is over
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


@pytest.mark.parametrize("mode", ["lines", "live"])
def test_the_console_goes_on_when_nobody_reads_it(nobody_reads: io.TextIOBase, mode: str) -> None:
    console = Console("t", budget_steps=100, mode=mode)  # type: ignore[arg-type]
    console.start([("seed", "1", "given")])
    for step in (10, 20):
        console.update(step, {"rollout/ep_rew_mean": 1.0})
        console.say("a line")
    console.finish({"steps": 20}, ["envfleet runs"])
    console.error("stopped")
    nobody_reads.close()  # flushing the rest of the buffer raises no error either


def test_no_stderr_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    console = Console("t", budget_steps=100)
    console.start([("seed", "1", "given")])
    console.finish({"steps": 20})


@pytest.mark.parametrize(
    ("backend", "acting"),
    [("sequential", "worker"), ("processes", "central"), pytest.param("processes", "worker", marks=pytest.mark.proof)],
)
def test_a_closed_pipe_does_not_end_a_training(tmp_path: Path, backend: str, acting: str) -> None:
    """Neither our own output nor that of the environments ends it."""
    (tmp_path / "chatty.py").write_text(CHATTY)
    command = [sys.executable, "-m", "envfleet", "train", "ppo", "--env", "chatty:make", "--backend", backend]
    command += ["--n-envs", "2", "--rollout-steps", "32", "--steps", "256", "--output-dir", "run", "--verbose"]
    command += ["--acting", acting]
    with subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    ) as process:
        assert process.stderr is not None
        process.stderr.readline()
        process.stderr.close()
    assert process.returncode == 0
    assert Checkpoints(tmp_path / "run" / "checkpoints").step_of("final") == 256


def test_a_command_without_stderr_does_not_write_into_its_own_files(tmp_path: Path) -> None:
    """The next opened file does not get the closed descriptor."""
    program = f"exec {sys.executable} -m envfleet runs nowhere 2>&-"
    assert subprocess.run(["sh", "-c", program], cwd=tmp_path, check=False).returncode == 2
    code = "import os\nfrom envfleet.streams import steady_streams\nwith steady_streams():\n    os.fstat(2)\n"
    assert subprocess.run(["sh", "-c", f"exec {sys.executable} -c '{code}' 2>&-"], check=False).returncode == 0


# ---- characters ----


def ascii_stream() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)


def written(stream: io.TextIOWrapper) -> str:
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue().decode("ascii")


def test_reports_and_help_in_plain_ascii(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = ascii_stream()
    monkeypatch.setattr(sys, "stdout", out)
    assert cli.main(["evaluate", str(trained), "--episodes", "2"]) == 0
    assert " +- " in written(out)
    assert cli.main(["runs", str(trained.parent)]) == 0
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    assert "* train " in written(out)
    assert out.errors == "strict"  # unchanged


def test_messages_with_any_character(monkeypatch: pytest.MonkeyPatch) -> None:
    error = ascii_stream()
    monkeypatch.setattr(sys, "stderr", error)
    assert cli.main(["rüns"]) == 2
    assert written(error).startswith("error: unknown command 'r?ns'")
    error_stream().write("± 1\n")  # outside a command
    assert written(error).endswith("\\xb1 1\n")


def test_the_program_in_plain_ascii() -> None:
    program = [sys.executable, "-m", "envfleet", "train", "ppo", "--help"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "--n-envs INT" in done.stdout
