"""`envfleet/Wildfire-v0`: place fuel breaks, block by block, to reduce the burned area."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.random import PCG64
from numpy.typing import NDArray

from envfleet.capabilities import Comparison, Demonstration
from envfleet.environments.wildfire.fire import Fire, FireModel, SurfaceFire, draw_fires
from envfleet.environments.wildfire.landscape import Landscape
from envfleet.environments.wildfire.lookahead import Lookahead
from envfleet.environments.wildfire.observation import BREAKS, CHANNELS, FIRE_CHANNELS, fires_as_seen, layers_as_seen
from envfleet.environments.wildfire.settings import WildfireSettings
from envfleet.environments.wildfire.sources import ANY_LANDSCAPE, landscape_source
from envfleet.environments.wildfire.weather import Weather
from envfleet.errors import ProtocolError, SettingsError, StateError
from envfleet.seeding import derive_seed, stream

__all__ = ["WildfireEnv"]

_FIRES_IN_A_PICTURE = 100
_HELD_OUT = 0xE7A1  # separates the evaluation landscapes from the other streams of a landscape seed


class WildfireEnv(gymnasium.Env[NDArray[np.float32], np.int64]):
    """Places one block of fuel breaks per step, until the budget is spent.

    Observation: float32 [9, rows, columns], the eight layers and the breaks so far (see `observation.SCALES`). With
    `fire_channels`, two more show where simulated fires burn (see `observation.fires_as_seen`).

    Action: the number of a block, row by row. `info["action_mask"]` is 1 for blocks that still have burnable cells. A
    masked action uses up a step of the budget and does nothing.

    Reward: the decrease of the mean burned area over the episode's fires, in percent of the landscape. The
    `memory_simulations` fires are drawn at reset from the landscape's ignition map and climate. The agent does not see
    them, so it has to place breaks that help against the fires to expect.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}
    settings_class = WildfireSettings

    def __init__(
        self,
        *,
        landscapes: Sequence[Landscape] | None = None,
        fire_model: FireModel | None = None,
        render_mode: str | None = None,
        **settings: Any,
    ) -> None:
        """Take the settings of `WildfireSettings`. `landscapes` replace its first group of settings.

        With n landscapes, an environment with seed s starts with landscape s % n and moves to the next one with each
        episode, so a fleet covers all of them. `reset(options={"landscape": number})` selects one.
        """
        if render_mode not in {None, *self.metadata["render_modes"]}:
            raise SettingsError(f"render_mode is {render_mode!r}, expected rgb_array or None")
        self.render_mode = render_mode
        self.settings = WildfireSettings(**settings)
        self._given = None if landscapes is None else tuple(landscapes)
        self._source = landscape_source(self.settings, self._given)
        self._fire_model: FireModel = SurfaceFire() if fire_model is None else fire_model
        size = self.settings.grid_size
        fixed = landscapes is not None or self.settings.whole_rasters
        rows, columns = self._source.landscape(0).shape if fixed else (size, size)
        block = self.settings.block_size
        if rows % block or columns % block:
            raise SettingsError(f"block_size is {block}, expected a divisor of {rows} rows and {columns} columns")
        self._blocks = rows // block, columns // block
        self._steps_of_budget = self.steps_of(self.settings.budget_percent)
        self._channels = len(CHANNELS) + (len(FIRE_CHANNELS) if self.settings.fire_channels else 0)
        self.observation_space = spaces.Box(0.0, 1.0, (self._channels, rows, columns), np.float32)
        self.action_space = spaces.Discrete(self._blocks[0] * self._blocks[1])
        self._limit = self.settings.steps_per_episode
        self._landscape: Landscape | None = None
        self._rewarding: Lookahead | None = None  # the fires of the reward
        self._ahead: Lookahead | None = None  # fires to plan with
        self._number = -1
        self._open = np.zeros(self._blocks, np.bool_)  # blocks that can still become breaks

    # ---- Gymnasium ----

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begin an episode without breaks.

        `options` may set the `landscape` by number and the `budget_percent`, which also lifts the step limit.
        """
        super().reset(seed=seed)
        asked = options or {}
        landscape = self._enter(self._next_number(seed, asked.get("landscape")))
        self._begin_budget(asked.get("budget_percent"))
        self._fires = draw_fires(landscape, self.np_random, self.settings.memory_simulations)
        self._steps = 0
        self._breaks = np.zeros(landscape.shape, np.bool_)
        self._look(landscape)
        self._burned = self._burned_cells(landscape)
        return self._observed(), self._info(landscape)

    def step(self, action: np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Turn a block into breaks."""
        landscape = self._begun()
        block = self.settings.block_size
        row, column = divmod(int(action), self._blocks[1])
        here = np.s_[row * block : (row + 1) * block, column * block : (column + 1) * block]
        self._steps += 1
        before = self._burned
        if self._open[row, column]:
            self._breaks[here] = landscape.burnable[here]
            self._seen[BREAKS][here] = self._breaks[here]
            self._open[row, column] = False
            self._burned = self._burned_cells(landscape)
        reward = 100.0 * (before - self._burned) / self._breaks.size
        terminated = self._steps >= self._steps_of_budget or not self._open.any()
        truncated = not terminated and self._limit is not None and self._steps >= self._limit
        return self._observed(), reward, terminated, truncated, self._info(landscape)

    def render(self) -> NDArray[np.uint8] | None:
        """Draw terrain, fuels and burn probability side by side, with the breaks: [height, width, 3]."""
        if self.render_mode is None:
            return None
        from envfleet.environments.wildfire.pictures import picture

        landscape = self._begun()
        return picture(landscape, self._breaks, self.burn_probability())

    # ---- demonstrations, comparisons, rendering ----

    def demonstrations(self, seed: int) -> Iterator[Demonstration]:
        """Breaks by fire-path centrality, on ridges and at random, on `percentage_increment` to 20 % of the blocks."""
        from envfleet.environments.wildfire.memories import memories

        return memories(self.settings, self._source, self._fire_model, self._blocks, seed)

    def compare(self, agent: Any, folder: Path, *, episodes: int, seed: int, search: int | None = None) -> Comparison:
        """Compare the agent with no breaks, random, centrality and greedy breaks, on the landscapes of `held_out`.

        With `search`, also compare the search of simulated fires among this many candidates of the agent.
        """
        from envfleet.environments.wildfire.comparison import compare

        return compare(self, agent, folder, episodes=episodes, seed=seed, search=search)

    def simulated_gains(self, actions: Sequence[int]) -> NDArray[np.float64]:
        """Reward that each action would bring if the planning fires were those of the episode: [action].

        A fire does not count for a break in its own ignition cell (see `Lookahead.saved`).
        """
        landscape, block = self._begun(), self.settings.block_size
        rows, columns = np.divmod(np.asarray(actions, np.int64), self._blocks[1])
        within_rows, within_columns = (part.ravel() for part in np.indices((block, block)))
        cells = (rows[:, None] * block + within_rows) * landscape.shape[1] + columns[:, None] * block + within_columns
        saved = self._looked_ahead().saved(cells).astype(np.float64)
        gains: NDArray[np.float64] = 100.0 * saved / self.settings.planning_simulations / self._breaks.size
        return gains

    @property
    def planning_fires(self) -> tuple[Fire, ...]:
        """The fires that this episode may be planned with. They are never those of a reward."""
        return self._looked_ahead().fires

    def held_out(self, **changes: Any) -> WildfireEnv:
        """Return the same environment with landscapes that training does not use. Given landscapes stay the same.

        `changes` replace other settings.

        Generated landscapes are new. Crops are drawn again from the same rasters, so they may overlap those of
        training.
        """
        settings = self.settings.to_json() | changes
        if self._given is None:
            settings |= {"landscape_seed": derive_seed(self.settings.landscape_seed, _HELD_OUT), "num_landscapes": 0}
        return WildfireEnv(landscapes=self._given, fire_model=self._fire_model, **settings)

    def landscape_number(self, number: int) -> int:
        """Map any number to an existing landscape: a finite set of landscapes wraps around."""
        return number % (self._source.count or ANY_LANDSCAPE)

    @property
    def landscapes_are_given(self) -> bool:
        """Whether the landscapes were passed in, so that there are no others."""
        return self._given is not None

    @property
    def landscapes_are_crops(self) -> bool:
        """Whether the landscapes are crops of rasters, so that others may overlap them."""
        return self._given is None and self.settings.raster_dir is not None and not self.settings.whole_rasters

    @property
    def fire_model(self) -> FireModel:
        """The model that spreads the fires."""
        return self._fire_model

    def steps_of(self, budget_percent: float) -> int:
        """Number of steps that a budget allows."""
        return max(1, int(self._blocks[0] * self._blocks[1] * budget_percent / 100))

    @property
    def landscape(self) -> Landscape:
        """The landscape of this episode."""
        return self._begun()

    @property
    def breaks(self) -> NDArray[np.bool_]:
        """A copy of the breaks so far: [row, column]."""
        self._begun()
        return self._breaks.copy()

    def burn_probability(self, fires: int = _FIRES_IN_A_PICTURE, seed: int = 0) -> NDArray[np.float64]:
        """Share of fires that burn each cell, with the current breaks. Does not use the episode's generator."""
        landscape = self._begun()
        drawn = draw_fires(landscape, stream(seed, self._number), fires)
        # A separate model: the episode's model caches the rates of the episode's fires.
        model = SurfaceFire() if isinstance(self._fire_model, SurfaceFire) else self._fire_model
        arrival = model(landscape, drawn, self._breaks, self.settings.spread_minutes)
        probability: NDArray[np.float64] = np.isfinite(arrival).mean(axis=0)
        return probability

    # ---- state ----

    def get_state(self) -> dict[str, Any]:
        """Return everything that determines how the episode continues, as plain data."""
        state: dict[str, Any] = {"generator": self.np_random.bit_generator.state, "landscape": self._number}
        if self._landscape is not None:
            state |= {
                "steps": self._steps,
                "steps_of_budget": self._steps_of_budget,
                "limit": self._limit,
                "breaks": self._breaks.copy(),
                "open": self._open.copy(),
                "ignitions": [fire.ignition for fire in self._fires],
                "weathers": [list(astuple(fire.weather)) for fire in self._fires],
            }
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore a state from an environment with the same settings."""
        self.np_random.bit_generator.state = state["generator"]
        self._number = int(state["landscape"])
        if "breaks" not in state:
            self._landscape = None
            return
        landscape = self._enter(self._number)
        if state["breaks"].shape != landscape.shape:
            raise StateError(
                f"the state is of a landscape of {state['breaks'].shape} cells, and this one has {landscape.shape}",
                hint="build the environment with the same settings and landscapes",
            )
        self._steps, self._steps_of_budget, self._limit = state["steps"], state["steps_of_budget"], state["limit"]
        self._breaks = np.array(state["breaks"], np.bool_)
        fires = zip(state["ignitions"], state["weathers"], strict=True)
        self._fires = tuple(Fire(int(ignition), Weather(*weather)) for ignition, weather in fires)
        self._look(landscape)
        self._open = np.array(state["open"], np.bool_)
        self._seen[BREAKS] = self._breaks
        self._burned = self._burned_cells(landscape)

    # ---- inside ----

    def _begin_budget(self, asked: Any) -> None:
        """Set the budget of the episode: `asked`, or that of the settings."""
        self._limit = self.settings.steps_per_episode if asked is None else None
        self._steps_of_budget = self.steps_of(self.settings.budget_percent if asked is None else float(asked))

    def _next_number(self, seed: int | None, asked: Any) -> int:
        count = self._source.count
        if asked is not None:
            if not 0 <= int(asked) < (count or ANY_LANDSCAPE):
                raise SettingsError(f"landscape is {asked}, expected 0 to {(count or ANY_LANDSCAPE) - 1}")
            return int(asked)
        if count == 0:
            return int(self.np_random.integers(ANY_LANDSCAPE))
        if seed is not None or self._number < 0:
            return (seed or 0) % count
        return (self._number + 1) % count

    def _enter(self, number: int) -> Landscape:
        self._number = number
        self._landscape = self._source.landscape(number)
        self._rewarding = self._ahead = None
        return self._landscape

    def _begun(self) -> Landscape:
        if self._landscape is None:
            raise ProtocolError("no episode has begun", hint="call reset first")
        return self._landscape

    def _look(self, landscape: Landscape) -> None:
        """Set the observation and the open blocks, without breaks."""
        block = self.settings.block_size
        self._seen = layers_as_seen(landscape, self._channels)
        parts = landscape.burnable.reshape(self._blocks[0], block, self._blocks[1], block)
        self._open = np.any(parts, axis=(1, 3))  # [block row, block column]

    def _observed(self) -> NDArray[np.float32]:
        """A copy of the observation, with up-to-date fire channels."""
        if self.settings.fire_channels:
            self._seen[-len(FIRE_CHANNELS) :] = fires_as_seen(self._looked_ahead())
        return self._seen.copy()

    def _looked_ahead(self) -> Lookahead:
        """The planning fires of this episode, around the breaks so far.

        They come from a stream far ahead of the episode's generator, which an episode does not use after its reset. So
        they are never the fires of a reward, and a restored state gives the same ones.
        """
        if self._ahead is None:
            landscape, count = self._begun(), self.settings.planning_simulations
            far_ahead = np.random.Generator(cast(PCG64, self.np_random.bit_generator).jumped())
            fires = draw_fires(landscape, far_ahead, count)
            self._ahead = Lookahead(landscape, fires, self._fire_model, self.settings.spread_minutes)
        self._ahead.place(self._breaks)
        return self._ahead

    def _burned_cells(self, landscape: Landscape) -> float:
        """Mean number of cells that the episode's fires burn."""
        if self._rewarding is None:
            self._rewarding = Lookahead(landscape, self._fires, self._fire_model, self.settings.spread_minutes)
        self._rewarding.place(self._breaks)
        return float(self._rewarding.burned_cells.sum()) / len(self._fires)

    def _info(self, landscape: Landscape) -> dict[str, Any]:
        return {
            "action_mask": self._open.ravel().astype(np.int8),
            "burned_hectares": self._burned * landscape.hectares_per_cell,
        }
