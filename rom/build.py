"""Build the homebrew ROM from its C source, world and graphics. The build is byte-for-byte reproducible.

    python rom/build.py [--output FILE] [--keep FOLDER]

Needs Debian's package `sdcc` (the compiler and `makebin`). The header carries no logo of the console's maker.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections import deque
from pathlib import Path

HERE = Path(__file__).resolve().parent
BINARY = HERE.parent / "src/envfleet/environments/gameboy/lantern_isle.gb"
SOURCES = ("main.c", "play.c", "world.c", "draw.c")
GENERATED = "generated.c"
ROM_BYTES = 32768
TITLE = b"LANTERN ISLE"

WIDTH, HEIGHT, SIDE = 10, 8, 4  # cells per screen; screens per row and column of the world
SHADES = ".-+#"
# The order gives their numbers in memory. The player can walk on those before "rock".
CELLS = ("grass", "path", "pit", "opened", "rock", "tree", "water", "bush", "door", "lamp", "lit")
CELL_OF = {".": 0, "S": 0, "K": 0, ",": 1, "o": 2, "#": 4, "T": 5, "~": 6, "*": 7, "D": 8, "G": 9}
BLOCKING = set("#T~")
SHORTEST_ALLOWED = 100  # cells; at half a cell per decision, 200 decisions
Cell = tuple[int, int]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=BINARY, help="path of the ROM to write")
    parser.add_argument("--keep", type=Path, help="folder for the intermediate files")
    arguments = parser.parse_args()
    if missing := [tool for tool in ("sdcc", "makebin") if shutil.which(tool) is None]:
        sys.exit(f"error: {' and '.join(missing)} not found\nhint: apt-get install sdcc")
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        _generate(folder)
        arguments.output.write_bytes(_with_header(_compile(folder)))


# ---- compiling ----


def _compile(folder: Path) -> bytes:
    for name in [*SOURCES, *(path.name for path in HERE.glob("*.h"))]:
        shutil.copy(HERE / name, folder / name)
    shutil.copy(HERE / "start.s", folder / "start.s")
    _run(folder, "sdasgb", "-o", "start.rel", "start.s")
    for name in [*SOURCES, GENERATED]:
        _run(folder, "sdcc", "-msm83", "--opt-code-speed", "--max-allocs-per-node", "3000", "-I.", "-c", name)
    objects = [Path(name).with_suffix(".rel").name for name in [*SOURCES, GENERATED]]
    places = ("--code-loc", "0x0200", "--data-loc", "0xC300")
    _run(folder, "sdcc", "-msm83", "--no-std-crt0", *places, "-o", "rom.ihx", "start.rel", *objects)
    _run(folder, "makebin", "-s", str(ROM_BYTES), "rom.ihx", "rom.bin")
    return (folder / "rom.bin").read_bytes()


def _run(folder: Path, *command: str) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"error: {' '.join(command)} failed\n{done.stdout}{done.stderr}")


def _with_header(rom: bytes) -> bytes:
    """Return the ROM with a cartridge header: title, plain 32 KB without a memory controller, and both checksums."""
    image = bytearray(rom)
    image[0x104:0x150] = bytes(0x4C)
    image[0x134 : 0x134 + len(TITLE)] = TITLE
    checksum = 0
    for byte in image[0x134:0x14D]:
        checksum = (checksum - byte - 1) & 0xFF
    image[0x14D] = checksum
    image[0x14E:0x150] = (sum(image) & 0xFFFF).to_bytes(2, "big")
    return bytes(image)


# ---- generated.h and generated.c: graphics and the world ----


def _generate(folder: Path) -> None:
    numbers, tables = _pictures()
    world_numbers, world_tables = _world()
    numbers, tables = numbers | world_numbers, tables | world_tables
    declared = [f"extern const u8 {name}[{len(values)}];" for name, values in tables.items()]
    defined = [f"const u8 {name}[] = {{{', '.join(map(str, values))}}};" for name, values in tables.items()]
    named = [f"#define {name} {number}" for name, number in numbers.items()]
    begin = ["/* Made by build.py from graphics.txt and world.txt. */", '#include "hardware.h"']
    (folder / "generated.h").write_text("\n".join([*begin, *named, *declared, ""]), encoding="utf-8")
    (folder / "generated.c").write_text("\n".join([*begin, *defined, ""]), encoding="utf-8")


def _pictures() -> tuple[dict[str, int], dict[str, list[int]]]:
    """Tiles in the order of the file. Sprites come first because pairs of them must begin at even numbers."""
    blocks = _blocks((HERE / "graphics.txt").read_text(encoding="utf-8"))
    order = {"sprite": [(0, 0), (0, 1), (1, 0), (1, 1)], "item": [(0, 0), (0, 1)], "sign": [(0, 0)]}
    order["cell"] = [(0, 0), (1, 0), (0, 1), (1, 1)]  # columns and rows of 8 x 8 tiles, in memory order
    data: list[int] = []
    numbers: dict[str, int] = {}
    for kind in ("sprite", "item", "cell", "sign"):
        for name, rows in ((name, rows) for (block_kind, name), rows in blocks.items() if block_kind == kind):
            numbers["FIRST_CELL_TILE" if name == CELLS[0] else f"{kind}_{name}".upper()] = len(data) // 16
            for column, row in order[kind]:
                data += _tile([line[8 * column : 8 * column + 8] for line in rows[8 * row : 8 * row + 8]])
    if len(data) > 256 * 16:
        sys.exit(f"error: {len(data) // 16} tiles, and the console has 256")
    numbers |= {f"CELL_{name.upper()}": number for number, name in enumerate(CELLS)}  # the kind of a cell, not its tile
    letters = [numbers.get(f"SIGN_LETTER_{chr(code)}", 0) for code in range(ord("A"), ord("Z") + 1)]
    return numbers, {"tile_data": data, "letter_tiles": letters}


def _blocks(text: str) -> dict[tuple[str, str], list[str]]:
    blocks: dict[tuple[str, str], list[str]] = {}
    rows: list[str] = []
    for line in text.splitlines():
        words = line.split()
        if len(words) == 2 and words[0] in {"cell", "sprite", "item", "sign"}:
            rows = blocks[words[0], words[1]] = []
        elif line and not line.startswith("# ") and set(line) <= set(SHADES):
            rows.append(line)
    sizes = {"cell": (16, 16), "sprite": (16, 16), "item": (8, 16), "sign": (8, 8)}
    for (kind, name), rows in blocks.items():
        width, height = sizes[kind]
        if len(rows) != height or any(len(row) != width for row in rows):
            sys.exit(f"error: {kind} {name} is not {width} x {height}")
    return blocks


def _tile(rows: list[str]) -> list[int]:
    """Encode a tile, two bytes per row: the low bits of the eight shades, then the high bits."""
    data = []
    for row in rows:
        shades = [SHADES.index(mark) for mark in row]
        data += [sum((shade >> bit & 1) << (7 - place) for place, shade in enumerate(shades)) for bit in (0, 1)]
    return data


def _world() -> tuple[dict[str, int], dict[str, list[int]]]:
    rows = world_rows()
    _check_world(rows)
    [goal], [door] = marks(rows, "G"), marks(rows, "D")
    keys, starts = marks(rows, "K"), sorted({screen_of(cell) for cell in marks(rows, "S")})
    to_goal = _screen_distances(rows, goal, through_door=True)
    to_key = [distance for key in keys for distance in _screen_distances(rows, key, through_door=False)]
    screens = [
        CELL_OF[rows[HEIGHT * (screen // SIDE) + row][WIDTH * (screen % SIDE) + column]]
        for screen in range(SIDE * SIDE)
        for row in range(HEIGHT)
        for column in range(WIDTH)
    ]
    numbers = {
        "KEY_PLACES": len(keys),
        "START_SCREENS": len(starts),
        "DOOR_SCREEN": screen_of(door),
        "DOOR_CELL": within(door),
        "GOAL_SCREEN": screen_of(goal),
        "GOAL_CELL": within(goal),
    }
    goal_steps = _distances(rows, goal, through_door=True)
    key_steps = [_distances(rows, key, through_door=False) for key in keys]
    tables = {
        "steps_to_goal": _by_screen(goal_steps),
        "steps_to_key": [steps for distances in key_steps for steps in _by_screen(distances)],
        "key_steps": [goal_steps[key] for key in keys],
        "world": screens,
        "start_screens": starts,
        "key_screens": [screen_of(key) for key in keys],
        "key_cells": [within(key) for key in keys],
        "screens_to_goal": to_goal,
        "screens_to_key": to_key,
    }
    return numbers, tables


def world_rows() -> list[str]:
    lines = [line.split() for line in (HERE / "world.txt").read_text(encoding="utf-8").splitlines()]
    rows = ["".join(parts) for parts in lines if [len(part) for part in parts] == [WIDTH] * SIDE]
    if len(rows) != HEIGHT * SIDE:
        sys.exit(f"error: world.txt has {len(rows)} rows of {SIDE} screens, expected {HEIGHT * SIDE}")
    return rows


def marks(rows: list[str], mark: str) -> list[Cell]:
    return [(x, y) for y, row in enumerate(rows) for x, other in enumerate(row) if other == mark]


def screen_of(cell: Cell) -> int:
    return cell[1] // HEIGHT * SIDE + cell[0] // WIDTH


def within(cell: Cell) -> int:
    return cell[1] % HEIGHT * WIDTH + cell[0] % WIDTH


def _distances(rows: list[str], start: Cell, *, through_door: bool, within: int | None = None) -> dict[Cell, int]:
    """Shortest distance in cells from `start` to every reachable cell, around walls, water and pits."""
    blocking = BLOCKING | {"o"} | (set() if through_door else {"D"})
    found = {start: 0}
    queue = deque([start])
    while queue:
        x, y = queue.popleft()
        for cell in ((x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)):
            inside = 0 <= cell[0] < WIDTH * SIDE and 0 <= cell[1] < HEIGHT * SIDE
            if not inside or cell in found or rows[cell[1]][cell[0]] in blocking:
                continue
            if within is None or screen_of(cell) == within:
                found[cell] = found[x, y] + 1
                queue.append(cell)
    return found


def _by_screen(distances: dict[Cell, int]) -> list[int]:
    """Distances in the console's memory order: screen by screen, 10 x 8 cells each.

    An unreachable cell (over a pit, behind the door) gets the distance of its nearest neighbour plus one.
    """
    steps = []
    for screen in range(SIDE * SIDE):
        for row in range(HEIGHT):
            for column in range(WIDTH):
                x, y = screen % SIDE * WIDTH + column, screen // SIDE * HEIGHT + row
                beside = [distances.get(cell, 99) for cell in ((x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1))]
                steps.append(distances.get((x, y), min(beside) + 1))
    return steps


def _screen_distances(rows: list[str], target: Cell, *, through_door: bool) -> list[int]:
    """For every screen, the number of screen borders on the way to the target; 99 if it cannot be reached."""
    near = {screen_of(target): 0}
    queue = deque(near)
    cells = _distances(rows, target, through_door=through_door)
    while queue:
        screen = queue.popleft()
        for x, y in (cell for cell in cells if screen_of(cell) == screen):
            for cell in ((x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)):
                if cell in cells and screen_of(cell) not in near:
                    near[screen_of(cell)] = near[screen] + 1
                    queue.append(screen_of(cell))
    return [near.get(screen, 99) for screen in range(SIDE * SIDE)]


def _check_world(rows: list[str]) -> None:
    free = [(x, y) for y, row in enumerate(rows) for x, mark in enumerate(row) if mark not in BLOCKING | {"o"}]
    reached = _distances(rows, free[0], through_door=True)
    if unreached := [cell for cell in free if cell not in reached]:
        sys.exit(f"error: these cells of the world cannot be reached: {unreached}")
    for screen in range(SIDE * SIDE):
        cells = [cell for cell in free if screen_of(cell) == screen]
        if len(_distances(rows, cells[0], through_door=True, within=screen)) != len(cells):
            sys.exit(f"error: screen {screen} falls into parts")
    for x, y in free:
        for other in ((x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)):
            if screen_of(other) != screen_of((x, y)) and rows[other[1]][other[0]] in BLOCKING | {"o"}:
                sys.exit(f"error: the border at cell {(x, y)} is free on one side only")
    _check_lengths(rows)


def _check_lengths(rows: list[str]) -> None:
    [goal] = marks(rows, "G")
    to_goal = _distances(rows, goal, through_door=True)
    screens = {screen_of(cell) for cell in marks(rows, "S")}
    starts = [cell for cell in to_goal if screen_of(cell) in screens]
    for key in marks(rows, "K"):
        to_key = _distances(rows, key, through_door=False)
        shortest = min(to_key[cell] for cell in starts) + to_goal[key]
        if shortest < SHORTEST_ALLOWED:
            sys.exit(f"error: with the key at {key} a solution has only {shortest} cells")


if __name__ == "__main__":
    main()
