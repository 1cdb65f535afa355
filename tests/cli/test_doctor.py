"""`envfleet doctor`: its findings, its advice, and its exit code."""

from __future__ import annotations

import dataclasses
import json
import sys
import tomllib
from pathlib import Path

import pytest

from envfleet import cli
from envfleet.cli import doctor

PROJECT = Path(__file__).parents[2]
GIB = 2**30
HEALTHY = doctor.Facts(
    physical_cores=4,
    logical_cores=8,
    affinity_cores=8,
    quota_cores=None,
    usable_cores=8,
    memory_total=16 * GIB,
    memory_available=12 * GIB,
    shared_memory="memfd",
    shm_total=8 * GIB,
    shm_free=8 * GIB,
    open_files=10,
    open_file_limit=1024,
    start_methods=("fork", "spawn", "forkserver"),
    threads=dict.fromkeys(doctor.THREAD_VARIABLES),
    torch="2.13.0",
    devices=("cuda", "cpu"),
)


def test_nothing_to_say_of_a_healthy_machine() -> None:
    findings = doctor.diagnose(HEALTHY)
    assert {finding.severity for finding in findings} == {"ok"}
    subjects = [finding.subject for finding in findings]
    assert subjects == [
        "cores",
        "memory",
        "shared memory",
        "/dev/shm",
        "open files",
        "start methods",
        "threads",
        "learner",
    ]
    assert findings[0].text == "8 usable: 8 logical, 4 physical, 8 by affinity, no quota"
    assert findings[1].text == "12.0 GiB available of 16.0 GiB"
    assert findings[-1].text == "torch 2.13.0 on cuda, also cpu; one thread unless batches are large"


@pytest.mark.parametrize(
    ("change", "severity", "subject", "advice"),
    [
        ({"usable_cores": 1, "affinity_cores": 1}, "warn", "cores", "gain no speed"),
        ({"usable_cores": 2, "quota_cores": 1.5, "affinity_cores": 2}, "warn", "cores", "not a whole number"),
        ({"memory_available": GIB // 4}, "warn", "memory", "use few workers"),
        ({"shared_memory": None}, "problem", "shared memory", "TMPDIR"),
        ({"shared_memory": "temporary file"}, "warn", "shared memory", "a RAM disk"),
        ({"shm_free": GIB // 16}, "warn", "/dev/shm", "--shm-size"),
        ({"open_file_limit": 64}, "warn", "open files", "ulimit -n"),
        ({"open_file_limit": 12}, "problem", "open files", "ulimit -n"),
        ({"threads": {"MKL_NUM_THREADS": "16"}}, "warn", "threads", "set OMP_NUM_THREADS=8"),
        ({"usable_cores": 2, "quota_cores": 2.0}, "warn", "threads", "do not see the quota"),
        ({"torch": None, "devices": ()}, "warn", "learner", "pip install torch"),
    ],
)
def test_what_ails_a_machine_is_named_with_advice(
    change: dict[str, object], severity: str, subject: str, advice: str
) -> None:
    findings = doctor.diagnose(dataclasses.replace(HEALTHY, **change))
    ailing = [finding for finding in findings if finding.severity != "ok"]
    assert [(finding.severity, finding.subject) for finding in ailing] == [(severity, subject)]
    assert advice in ailing[0].advice


@pytest.mark.parametrize(
    ("change", "subject", "text"),
    [
        ({"physical_cores": None}, "cores", "8 usable: 8 logical, 8 by affinity, no quota"),
        ({"threads": {"OMP_NUM_THREADS": "1"}}, "threads", "OMP_NUM_THREADS=1"),
        ({"threads": {"OMP_NUM_THREADS": "4,2"}}, "threads", "OMP_NUM_THREADS=4,2"),
        ({"open_file_limit": sys.maxsize}, "open files", "10 open, no limit"),
    ],
)
def test_what_is_well_is_said_too(change: dict[str, object], subject: str, text: str) -> None:
    findings = doctor.diagnose(dataclasses.replace(HEALTHY, **change))
    assert [(each.severity, each.text) for each in findings if each.subject == subject] == [("ok", text)]


def test_a_machine_without_dev_shm() -> None:
    findings = doctor.diagnose(dataclasses.replace(HEALTHY, shm_total=None, shm_free=None))
    assert "/dev/shm" not in [finding.subject for finding in findings]


def test_the_facts_of_this_machine() -> None:
    facts = doctor.gather()
    assert 1 <= facts.usable_cores <= facts.affinity_cores <= facts.logical_cores
    assert 0 < facts.memory_available <= facts.memory_total
    assert 0 < facts.open_files < facts.open_file_limit
    assert "spawn" in facts.start_methods
    assert facts.torch is not None
    assert facts.devices[-1] == "cpu"


def test_the_portable_way_to_share_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ENVFLEET_PORTABLE", "1")
    assert doctor.gather().shared_memory == "temporary file"
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    assert doctor.gather().shared_memory is None


def test_the_doctor_prints_a_table_that_fits(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("OMP_NUM_THREADS", "999")
    assert cli.main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    threads = next(index for index, line in enumerate(lines) if line.startswith("warn") and "threads" in line)
    assert "OMP_NUM_THREADS=999" in lines[threads]
    assert "hint: " in lines[threads + 1]
    assert lines[-1] == "fleets run here; the hints say what could be better"
    assert not any("\x1b" in line for line in lines)


@pytest.mark.parametrize(
    ("change", "code", "summary"),
    [
        ({}, 0, "all is well: fleets run here"),
        ({"shared_memory": None}, 1, "no fleet can run here until the problem is solved"),
    ],
)
def test_the_exit_code_says_whether_fleets_can_run(
    change: dict[str, object],
    code: int,
    summary: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor, "gather", lambda: dataclasses.replace(HEALTHY, **change))
    assert cli.main(["doctor"]) == code
    assert capsys.readouterr().out.splitlines()[-1] == summary


def test_the_doctor_as_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "EXTRAS", {"here": ("numpy",), "absent": ("numpy", "no-such-package")})
    assert cli.main(["doctor", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed.keys() == {"envfleet", "machine", "facts", "findings", "extras"}
    assert printed["findings"][0]["subject"] == "cores"
    assert printed["extras"]["here"]["install"] is None
    assert printed["extras"]["absent"]["packages"]["no-such-package"] is None
    assert printed["extras"]["absent"]["install"] == 'pip install "envfleet[absent]"'


def test_missing_extras_are_shown_with_their_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "EXTRAS", {"here": ("numpy",), "absent": ("no-such-package",)})
    cli.main(["doctor"])
    output = capsys.readouterr().out
    assert 'missing: pip install "envfleet[absent]"' in output
    assert "here    numpy " in output


def test_the_doctor_knows_every_extra_of_the_project() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    declared = {name: needs for name, needs in project["optional-dependencies"].items() if name != "dev"}
    assert doctor.EXTRAS.keys() == declared.keys()
    for name, packages in doctor.EXTRAS.items():
        # gymnasium[mujoco] stands for mujoco itself
        needed = {need.split(">")[0].removeprefix("gymnasium[").rstrip("]") for need in declared[name]}
        assert set(packages) == needed
