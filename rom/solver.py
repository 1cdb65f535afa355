"""A bot that plays Lantern Isle by the map, and lower bounds on the length of a solution.

Distances are in frames of walking (2 pixels each) over the positions where the player's feet touch no wall. They ignore
enemies, bushes and the frames in which a new screen is drawn. So a quarter of them, rounded up, is fewer than any
solution takes in decisions of four frames. The fewest screens are found by trying sets of screens.
"""

from __future__ import annotations

from collections import deque
from functools import cache
from itertools import combinations
from typing import Any

from rom.build import BLOCKING, HEIGHT, SIDE, WIDTH, marks, screen_of, world_rows

__all__ = ["Bot", "fewest_screens", "frames_to", "shortest_solutions"]

Place = tuple[int, int, int]  # screen, and the player's position on it in pixels
DOWN, UP, LEFT, RIGHT = range(4)
ACTION_OF = {UP: 1, DOWN: 2, LEFT: 3, RIGHT: 4}  # action numbers of homebrew.yaml
SWORD = 5
SPEED, LAST_X, LAST_Y = 2, 144, 112
FRAMES = 4  # frames per decision
FAR = 1 << 20
DEEP = 4  # decisions that the bot looks ahead, because a decision may overshoot the best position


@cache
def _rows() -> tuple[str, ...]:
    return tuple(world_rows())


def _mark(screen: int, x: int, y: int) -> str:
    """The mark of the world at a pixel of a screen."""
    return _rows()[screen // SIDE * HEIGHT + y // 16][screen % SIDE * WIDTH + x // 16]


def _stands(place: Place, shut: str) -> bool:
    """Whether the feet, 8 x 8 pixels, are on free cells and the player is not over a pit."""
    screen, x, y = place
    corners = [(x + 4, y + 8), (x + 11, y + 8), (x + 4, y + 15), (x + 11, y + 15)]
    return all(_mark(screen, *corner) not in shut for corner in corners) and _mark(screen, x + 8, y + 12) != "o"


def _after(place: Place, way: int) -> Place:
    """The position after one frame of walking if nothing blocks."""
    screen, x, y = place
    if way == DOWN:
        return (screen + SIDE, x, 0) if y == LAST_Y else (screen, x, y + SPEED)
    if way == UP:
        return (screen - SIDE, x, LAST_Y) if y == 0 else (screen, x, y - SPEED)
    if way == LEFT:
        return (screen - 1, LAST_X, y) if x == 0 else (screen, x - SPEED, y)
    return (screen + 1, 0, y) if x == LAST_X else (screen, x + SPEED, y)


@cache
def frames_to(mark: str, cell: tuple[int, int], *, door_shut: bool) -> dict[Place, int]:
    """Frames of walking from every position until the player touches the cell: takes its key, opens or lights it."""
    shut = "".join(BLOCKING) + "G" + ("D" if door_shut else "")
    screen = screen_of(cell)
    left, top = cell[0] % WIDTH * 16, cell[1] % HEIGHT * 16
    near = [
        (screen, x, y)
        for x in range(max(0, left - 16), min(LAST_X, left + 16) + 1, SPEED)
        for y in range(max(0, top - 16), min(LAST_Y, top + 16) + 1, SPEED)
        if _touches(mark, x - left, y - top)
    ]
    found = {place: 0 for place in near if _stands(place, shut)}
    queue = deque(found)
    while queue:
        place = queue.popleft()
        for way in range(4):
            # Search backwards from the cell: the walking rules are the same in both directions.
            before = _after(place, way)
            if 0 <= before[0] < SIDE * SIDE and before not in found and _stands(before, shut):
                found[before] = found[place] + 1
                queue.append(before)
    return found


def _touches(mark: str, x: int, y: int) -> bool:
    if mark == "K":
        return abs(x) < 12 and abs(y) < 12
    # The player touches the door and the lamp by walking against them, so the feet stop at their side.
    beside = -4 <= x <= 4 and y in {8, -16}
    return beside or (x in {-12, 12} and -8 <= y <= 0)


def shortest_solutions() -> dict[tuple[int, int], int]:
    """For every position of the key, a lower bound on the decisions that a solution needs from the best start."""
    [goal], [door] = marks(list(_rows()), "G"), marks(list(_rows()), "D")
    screens = {screen_of(cell) for cell in marks(list(_rows()), "S")}
    to_door = frames_to("D", door, door_shut=True)
    behind = min(frames_to("G", goal, door_shut=False)[place] for place, frames in to_door.items() if frames == 0)
    bounds = {}
    for key in marks(list(_rows()), "K"):
        to_key = frames_to("K", key, door_shut=True)
        start = min(frames for place, frames in to_key.items() if place[0] in screens)
        on = min(to_door[place] for place, frames in to_key.items() if frames == 0)
        bounds[key] = -(-(start + on + behind) // FRAMES)
    return bounds


def fewest_screens() -> dict[tuple[int, int], int]:
    """For every position of the key, a lower bound on the screens that a solution sees from the best start.

    Assumes that the player can walk anywhere within a screen and through the door. Only the lamp is behind the door.
    """
    [goal] = marks(list(_rows()), "G")
    places = frames_to("G", goal, door_shut=False)
    joined: dict[int, set[int]] = {screen: set() for screen in range(SIDE * SIDE)}
    for place in places:
        joined[place[0]] |= {following[0] for way in range(4) if (following := _after(place, way)) in places}
    starts = {screen_of(cell) for cell in marks(list(_rows()), "S")}
    fewest = {}
    for key in marks(list(_rows()), "K"):
        ends = {screen_of(key), screen_of(goal)}
        others = sorted(joined.keys() - ends)
        sets = (ends.union(chosen) for count in range(len(others) + 1) for chosen in combinations(others, count))
        fewest[key] = next(len(seen) for seen in sets if seen & starts and _hangs_together(seen, joined))
    return fewest


def _hangs_together(screens: set[int], joined: dict[int, set[int]]) -> bool:
    """Whether these screens are connected without leaving the set."""
    first = min(screens)
    found, queue = {first}, [first]
    while queue:
        further = joined[queue.pop()] & screens - found
        found |= further
        queue += further
    return found == screens


class Bot:
    """Chooses actions from the memory values that homebrew.yaml names."""

    def __init__(self) -> None:
        rows = list(_rows())
        self._keys, [self._door], [self._goal] = marks(rows, "K"), marks(rows, "D"), marks(rows, "G")

    def act(self, values: dict[str, Any]) -> int:
        """Walk towards the compass target; use the sword against bushes and nearby enemies."""
        if values["sword_frames"] > 1:
            return 0
        distance = self._distances(values)
        here = (SIDE * values["screen_y"] + values["screen_x"], values["player_x"], values["player_y"])
        danger = self._danger(values)
        if danger == values["facing"]:
            return SWORD
        best = self._towards(values) if distance.get(here) == 0 else self._best_way(here, distance, DEEP)[1]
        if values["facing"] == best and self._faces_bush(values, best):
            return SWORD
        return ACTION_OF[best]

    def _best_way(self, place: Place, distance: dict[Place, int], deep: int) -> tuple[int, int]:
        """The least distance after `deep` decisions, and the first direction of that path."""
        outcomes = []
        for way in range(4):
            following = self._far(place, way, distance)
            frames = distance.get(following, FAR)
            if deep > 1 and following != place and frames:
                # Sooner counts slightly more, so that the bot does not put off moves that it can make now.
                frames = min(frames, self._best_way(following, distance, deep - 1)[0] + 1)
            outcomes.append((FAR if following == place else frames, way))
        return min(outcomes)

    def _distances(self, values: dict[str, Any]) -> dict[Place, int]:
        if values["has_key"] and values["door_open"]:
            return frames_to("G", self._goal, door_shut=False)
        if values["has_key"]:
            return frames_to("D", self._door, door_shut=True)
        screen = self._target_screen(values)
        [key] = [key for key in self._keys if screen_of(key) == screen]
        return frames_to("K", key, door_shut=True)

    @staticmethod
    def _target_screen(values: dict[str, Any]) -> int:
        return int(SIDE * values["target_screen_y"] + values["target_screen_x"])

    @staticmethod
    def _far(place: Place, way: int, distance: dict[Place, int]) -> Place:
        """The position after one decision of walking. Entering a new screen ends the decision."""
        for _ in range(FRAMES):
            following = _after(place, way)
            if following not in distance:
                break
            if following[0] != place[0]:
                return following
            place = following
        return place

    @staticmethod
    def _towards(values: dict[str, Any]) -> int:
        x, y = values["target_x"] - values["player_x"], values["target_y"] - values["player_y"]
        if abs(x) > abs(y):
            return RIGHT if x > 0 else LEFT
        return DOWN if y > 0 else UP

    @staticmethod
    def _faces_bush(values: dict[str, Any], way: int) -> bool:
        x = values["player_x"] + 8 + {LEFT: -14, RIGHT: 14}.get(way, 0)
        y = values["player_y"] + 12 + {UP: -14, DOWN: 14}.get(way, 0)
        inside = 0 <= x < 160 and 0 <= y < 128
        return inside and values["cells"][y // 16 * WIDTH + x // 16] == 7

    @staticmethod
    def _danger(values: dict[str, Any]) -> int | None:
        """The direction of an enemy within reach of the sword, if any."""
        for kind, enemy_x, enemy_y in zip(values["enemy_kind"], values["enemy_x"], values["enemy_y"], strict=True):
            x, y = enemy_x - values["player_x"], enemy_y - values["player_y"]
            if kind and abs(x) <= 26 and abs(y) <= 26 and min(abs(x), abs(y)) < 14:
                if abs(x) > abs(y):
                    return RIGHT if x > 0 else LEFT
                return DOWN if y > 0 else UP
        return None
