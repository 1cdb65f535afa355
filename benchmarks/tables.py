"""Render the fleet benchmark as Markdown: the table in README.md and the page docs/benchmarks.md.

`python -m benchmarks.tables` writes both from docs/benchmarks/fleet.json; no figure is typed by hand.
`--check` writes nothing and fails if a file is out of date.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.rows import ROWS
from benchmarks.step_time import PIECES, middle
from benchmarks.targets import check_targets, ratio_of_rows
from benchmarks.workloads import WORKLOADS

ROOT = Path(__file__).parent.parent
START, END = "<!-- fleet-benchmark:start -->", "<!-- fleet-benchmark:end -->"

METHOD = """\
The *limit* is {processes} independent processes, one per usable core. Each steps its share of the environments in a
plain loop, with actions drawn in advance. It resets finished environments, stores nothing and does not communicate.

Every measurement takes {seconds:g} s, after {warmup:g} s of warm-up. The limit is measured right before and right
after it ({limit_seconds:g} s each). The *share* of a row is its speed divided by the mean of those two limits. All rows
of a table are measured in turn, {pairs} times, in rotating order. Figures are medians, with quartiles in brackets. The
limit, the plain loop and the fleet are rebuilt every {rounds_per_build} rounds.

On a shared machine each core is slow now and then, and a `step` of all environments waits for the slowest core. One row
shows what that alone costs: the limit in lockstep. Its processes wait for each other after every step, but still store
nothing and have no caller. No `step` of all environments can be expected to be faster.

All libraries step the same environments, in the same versions, built the same way. A registered id is built with
`gymnasium.make(id, disable_env_checker=True)`, as the fleet does, because the fleet checks observations itself. Rows in
which a library only resets an environment do not count as steps. No environment sleeps: the millisecond of Python is a
loop of {python_iterations:,} iterations, and the millisecond without the GIL is SHA-256 over {hashed_bytes:,} bytes.

The fleet runs with `backend="processes"` and default settings. In the row with `trusted=True`, the calling process also
hosts a share of the environments, without isolation. Other libraries run in their own virtual environments, with the
settings that their documentation shows. Stable-Baselines3 starts its workers with fork, because its default imports
torch once per environment. PufferLib has one worker per core. It is built without its own C games, and with the same
Gymnasium and NumPy as all others."""


def render_readme(results: dict[str, Any]) -> str:
    """Return the README table: steps per second and share of the limit with 64 environments."""
    tables = [table for table in results.get("tables", []) if table["n_envs"] == 64]
    machine = results["machine"]
    introduction = (
        f"Environment steps per second with 64 environments on {machine['cores']} cores ({machine['cpu']}). "
        "The second number is the share of the limit, the speed of independent processes without any communication "
        f"(medians of {results['settings']['pairs']} interleaved rounds; "
        "[method and full results](docs/benchmarks.md)):"
    )
    return "\n".join([introduction, "", *_table(tables, brief=True)])


def render_page(results: dict[str, Any]) -> str:
    """Return the page with all results."""
    sections = ["# Benchmarks of the fleet", "<!-- made by python -m benchmarks.tables; do not edit -->"]
    sections.append("`make bench` runs these benchmarks and writes the results to `docs/benchmarks/fleet.json`.")
    sections.append(machine_line(results))
    sections += [
        "## How it is measured",
        METHOD.format(processes=results["machine"]["cores"], **results["settings"]),
    ]
    for n_envs in dict.fromkeys(table["n_envs"] for table in results.get("tables", [])):
        tables = [table for table in results["tables"] if table["n_envs"] == n_envs]
        sections += [f"## {n_envs} environments", "Steps per second · share of the limit (quartiles)."]
        sections += ["\n".join(_table(tables, brief=False)), *_absences(tables)]
        sections += ["How many times as fast the fleet's `step` is:", "\n".join(_times_table(tables))]
    if "step_time" in results:
        sections += ["## Where the time of a `step` goes", "\n".join(_step_time(results["step_time"]))]
    if "growth" in results:
        sections += ["## Overhead by number of environments", "\n".join(_growth(results["growth"]))]
    if "speedup" in results.get("threads", {}):
        sections += ["## Threads", _threads(results["threads"])]
    if "startup" in results:
        sections += ["## Start-up", "\n".join(_startup(results["startup"]))]
    if targets := check_targets(results):
        sections += ["## Targets", "\n".join(targets_table(targets))]
    return "\n\n".join(sections) + "\n"


def _table(tables: list[dict[str, Any]], *, brief: bool) -> Iterator[str]:
    """Rows of the benchmark down, workloads across."""
    yield table_line("", *(WORKLOADS[table["workload"]].title for table in tables))
    yield table_line("---", *("---:" for _ in tables))
    yield table_line("**the limit**", *(f"{rounded(table['limit']['median'])}/s" for table in tables))
    for name in dict.fromkeys(name for table in tables for name in table["rows"]):
        title = f"**{ROWS[name].title}**" if name.startswith("fleet") else ROWS[name].title
        yield table_line(title, *(_cell(table["rows"].get(name), brief) for table in tables))


def _cell(row: dict[str, Any] | None, brief: bool) -> str:
    if row is None:
        return "–"
    if "absent" in row:
        return "absent"
    speed, share = f"{rounded(row['steps_per_second']['median'])}/s", row["share"]
    if brief:
        return f"{speed} · {share['median']:.2f}"
    return f"{speed} · {share['median']:.2f} ({share['lower']:.2f}–{share['upper']:.2f})"


def _times_table(tables: list[dict[str, Any]]) -> Iterator[str]:
    yield table_line("compared with", *(WORKLOADS[table["workload"]].title for table in tables))
    yield table_line("---", *("---:" for _ in tables))
    for name in dict.fromkeys(name for table in tables for name in table["rows"]):
        if not name.startswith("fleet"):
            times = [ratio_of_rows(table, "fleet-step", name) for table in tables]
            yield table_line(ROWS[name].title, *("–" if value is None else f"{value['median']:.2f}" for value in times))


def _absences(tables: list[dict[str, Any]]) -> Iterator[str]:
    for table in tables:
        for name, row in table["rows"].items():
            if "absent" in row:
                yield f"{ROWS[name].title}, {WORKLOADS[table['workload']].title}: absent ({row['absent']})."


def _growth(growth: list[dict[str, Any]]) -> Iterator[str]:
    yield "CartPole-v1 with `step`: wall-clock microseconds that the fleet adds to each environment step."
    yield ""
    yield table_line("environments", "processes", "the limit, µs", "added by the fleet, µs", "share of the limit")
    yield table_line(*["---:"] * 5)
    for point in growth:
        if "absent" in point:
            yield table_line(f"{point['n_envs']:,}", "", "", f"absent ({point['absent']})", "")
            continue
        limit, overhead, share = point["limit_microseconds"], point["overhead_microseconds"], point["share"]
        spread = f"{share['median']:.2f} ({share['lower']:.2f}–{share['upper']:.2f})"
        yield table_line(f"{point['n_envs']:,}", point["processes"], f"{limit:.2f}", f"{overhead:.2f}", spread)


def _step_time(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield (
        "Microseconds of one `step` of all environments, medians. The environments take as long as in the limit in "
        "lockstep. The workers' own work is checking, copying and counting. The caller's own work is writing actions "
        "and copying results; no environment steps meanwhile. The rest passes while one process notices that another "
        "has finished, or waits for the slower core."
    )
    yield ""
    yield table_line("", "environments", "whole step", *PIECES.values())
    yield table_line("---", *["---:"] * (2 + len(PIECES)))
    for row in rows:
        pieces = [middle(row, piece) for piece in ("step", *PIECES)]
        yield table_line(WORKLOADS[row["workload"]].title, f"{row['n_envs']:,}", *pieces)


def _threads(threads: dict[str, Any]) -> str:
    speedup, ratio = threads["speedup"], threads["speedup"]["ratio"]
    return (
        f"The step of these {threads['n_envs']} environments releases the GIL. "
        f"{threads['processes']} independent processes are {speedup['processes']:.2f} times as fast as one "
        f'plain loop. The fleet with `backend="threads"` is {speedup["threads"]:.2f} times as fast, which is '
        f"{ratio['median']:.2f} ({ratio['lower']:.2f}–{ratio['upper']:.2f}) of that speed-up."
    )


def _startup(startup: dict[str, Any]) -> Iterator[str]:
    imports, memory = startup["import_seconds"], startup["memory_mb"]
    yield table_line("", "median", "quartiles")
    yield table_line("---", "---:", "---:")
    for statement, seconds in imports.items():
        yield table_line(f"`{statement}`", *_seconds(seconds))
    yield table_line("`from envfleet import make` minus `import gymnasium`", *_seconds(startup["import_seconds_more"]))
    for script, seconds in startup["ready_seconds"].items():
        yield table_line(f"make and reset 64 CartPole-v1 on 2 worker processes, {script}", *_seconds(seconds))
    yield ""
    yield (
        "Private memory (USS). The memory of the environments is the growth of a process that has already "
        "imported Gymnasium, while it builds and steps the 32 environments of one worker."
    )
    yield ""
    yield table_line("stepping worker", "total", "minus its environments", "minus a plain loop with the same")
    yield table_line("---", "---:", "---:", "---:")
    for script, figures in memory["workers"].items():
        keys = ("worker", "beyond_environments", "beyond_plain_loop")
        yield table_line(script, *(f"{figures[key]:.1f} MB" for key in keys))


def targets_table(targets: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a table of targets, measured values and whether each target is reached; missed ones first."""
    yield table_line("target", "wanted", "measured", "reached")
    yield table_line("---", "---:", "---:", "---")
    for target in sorted(targets, key=lambda target: bool(target["reached"])):
        why = f": {target['why']}" if target.get("why") else ""
        reached = "yes" if target["reached"] else f"**no**{why}"
        yield table_line(target["target"], target["wanted"], _measured(target["measured"]), reached)


def _measured(figure: float | None) -> str:
    if figure is None:
        return "absent"
    return rounded(figure) if abs(figure) >= 1000 else f"{figure:.3g}"


def machine_line(results: dict[str, Any]) -> str:
    """Return a line with the machine, the versions and the time that the measurements took."""
    machine = results["machine"]
    others = [f"{part} ({cpu})" for part, cpu in results.get("cpu_of", {}).items() if cpu != machine["cpu"]]
    libraries = machine["libraries"] | {
        name: version for name, version in results["libraries"].items() if name not in machine["libraries"]
    }
    return (
        f"Machine: {machine['cores']} usable cores ({machine['cpu']}), "
        f"{machine['memory_bytes'] / 2**30:.0f} GiB, {machine['platform']}, {machine['python']}; "
        f"{', '.join(f'{name} {version}' for name, version in libraries.items())}. "
        f"Measured in {results['minutes']:.0f} minutes."
        + (f" Measured on another machine: {', '.join(others)}." if others else "")
    )


def _seconds(figures: dict[str, float]) -> tuple[str, str]:
    return f"{figures['median']:.2f} s", f"{figures['lower']:.2f}–{figures['upper']:.2f} s"


def rounded(speed: float) -> str:
    """Round to three significant digits: more would be noise."""
    return f"{float(f'{speed:.3g}'):,.0f}"


def table_line(*cells: object) -> str:
    """One row of a Markdown table."""
    return f"| {' | '.join(map(str, cells))} |"


def with_block(text: str, block: str, start: str = START, end: str = END) -> str:
    """Return `text` with the part between the markers replaced by `block`."""
    before, marker, rest = text.partition(start)
    _, end_marker, after = rest.partition(end)
    if not marker or not end_marker:
        raise SystemExit(f"the README has no place for the table\nhint: add the lines {start} and {end}")
    return f"{before}{start}\n{block}\n{end}{after}"


def write_or_check(wanted: dict[Path, str], results: Path, module: str, *, check: bool) -> int:
    """Write the files that are out of date, or with `check` only report them; return the exit code."""
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    for path in stale:
        if check:
            print(f"{path.name} differs from {results.name}\nhint: python -m {module}", file=sys.stderr)
        else:
            path.write_text(wanted[path])
    return 1 if check and stale else 0


def publish(results: dict[str, Any], text: str, output: Path | None, results_path: Path, page: Path) -> None:
    """Print the page; write the results to `output`, and the page too if those are the results it is made from."""
    print(text)
    if output is not None:
        write_results(results, output)
        if output.resolve() == results_path.resolve():
            page.write_text(text)


def write_results(results: dict[str, Any], output: Path) -> None:
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")


def render_main(
    arguments: Sequence[str] | None, module: str, results: Path, page: Path, pages: Callable[[Any], dict[Path, str]]
) -> int:
    """Run the command that writes pages from a results file, or reports which are out of date."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=f"Render {results.name} as Markdown.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page is out of date")
    options = parser.parse_args(arguments)
    if options.check and not results.exists() and not page.exists():
        return 0  # not measured yet, and there is no page about it
    if not results.exists():
        raise SystemExit(f"there is no {results}\nhint: python -m {module.rpartition('.')[0]} --output {results}")
    return write_or_check(pages(json.loads(results.read_text())), results, module, check=options.check)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=ROOT / "docs" / "benchmarks" / "fleet.json")
    parser.add_argument("--readme", type=Path, default=ROOT / "README.md")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "benchmarks.md")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is out of date")
    options = parser.parse_args(arguments)
    results = json.loads(options.results.read_text())
    readme = options.readme.read_text()
    wanted = {options.readme: with_block(readme, render_readme(results)), options.page: render_page(results)}
    return write_or_check(wanted, options.results, "benchmarks.tables", check=options.check)


if __name__ == "__main__":
    sys.exit(main())
