"""The fleet as a Stable-Baselines3 `VecEnv`.

    fleet = envfleet.make("CartPole-v1", 64, autoreset="same_step")
    model = PPO("MlpPolicy", VecMonitor(as_sb3(fleet))).learn(200_000)

Stable-Baselines3 cannot represent a lost step. If a fault cuts an episode short, its row ends the episode as a
time limit would, with the last observation before the fault as `terminal_observation`, reward 0, and
`info["restarted"]` set.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode

from envfleet.adapters.infos import info_rows
from envfleet.errors import MissingExtraError, SettingsError
from envfleet.fleet.fleet import Fleet

try:
    from stable_baselines3.common.vec_env.base_vec_env import (
        VecEnv,
        VecEnvIndices,
        VecEnvObs,
        VecEnvStepReturn,
    )
except ModuleNotFoundError as error:
    if str(error.name).split(".")[0] != "stable_baselines3":  # it is installed, but one of its dependencies is not
        raise
    raise MissingExtraError("stable-baselines3 is not installed", hint='pip install "envfleet[sb3]"') from error

__all__ = ["FleetVecEnv", "as_sb3"]

Array = np.ndarray[Any, Any]
Info = dict[str, Any]


def as_sb3(fleet: Fleet) -> FleetVecEnv:
    """Wrap the fleet as a Stable-Baselines3 `VecEnv`; closing it closes the fleet."""
    return FleetVecEnv(fleet)


class FleetVecEnv(VecEnv):
    """A `VecEnv` over the environments of `fleet`."""

    def __init__(self, fleet: Fleet) -> None:
        mode = fleet.autoreset_mode
        if mode is not AutoresetMode.SAME_STEP:
            raise SettingsError(
                f"the fleet resets its environments as {mode}, expected {AutoresetMode.SAME_STEP}: "
                "Stable-Baselines3 wants the first observation of the next episode in the step that ends one",
                hint='make the fleet with autoreset="same_step"',
            )
        self.fleet = fleet
        self._stepping = False
        self._binary = isinstance(fleet.single_action_space, gymnasium.spaces.MultiBinary)
        super().__init__(fleet.num_envs, fleet.single_observation_space, fleet.single_action_space)

    # --- stepping

    def reset(self) -> VecEnvObs:
        """Reset all environments, with the seeds and options given since the last reset."""
        if self._stepping:  # drop the pending step, as the VecEnv contract says
            self.step_wait()
        seeds = None if all(seed is None for seed in self._seeds) else list(self._seeds)
        (options, _), *others = self._options_by_rows()
        observations, infos = self.fleet.reset(seed=seeds, options=options or None)
        self.reset_infos = info_rows(infos, self.num_envs)
        for options, rows in others:  # the fleet takes one set of options at a time
            observations, infos = self.fleet.reset(seed=seeds, options={**options, "reset_mask": rows})
            for row, info in enumerate(info_rows(infos, self.num_envs)):
                if rows[row]:
                    self.reset_infos[row] = info
        self._reset_seeds()
        self._reset_options()
        owned: VecEnvObs = _own(observations)
        return owned

    def _options_by_rows(self) -> Iterator[tuple[Info, Array]]:
        """Yield each distinct set of options with the mask of its environments."""
        different: list[tuple[Info, Array]] = []
        for row, options in enumerate(self._options):
            equal = (rows for known, rows in different if data_equivalence(known, options, exact=True))
            rows = next(equal, None)
            if rows is None:
                rows = np.zeros(len(self._options), np.bool_)
                different.append((options, rows))
            rows[row] = True
        yield from different

    def step_async(self, actions: Array) -> None:
        """Send the actions; the environments step in the background."""
        if self._binary:  # sampled from Bernoulli distributions, as floats
            actions = np.asarray(actions).astype(np.int8)
        self.fleet.step_async(actions)
        self._stepping = True

    def step_wait(self) -> VecEnvStepReturn:
        """Observations, rewards, dones and one info per environment."""
        self._stepping = False
        observations, rewards, terminations, truncations, infos = self.fleet.step_wait()
        dones = terminations | truncations
        rows = info_rows(infos, self.num_envs)
        for row in np.flatnonzero(dones).tolist():  # the row's info is the reset's; the step's is in final_info
            last_observation, last_info = rows[row].pop("final_obs"), rows[row].pop("final_info", {})
            if "restarted" in rows[row]:
                last_info["restarted"] = rows[row].pop("restarted")
            self.reset_infos[row] = rows[row]
            rows[row] = {**last_info, "terminal_observation": _own(last_observation)}
        for row, time_limit in enumerate((truncations & ~terminations).tolist()):
            rows[row]["TimeLimit.truncated"] = time_limit
        return _own(observations), rewards.astype(np.float32), dones, rows

    def close(self) -> None:
        """Close the fleet."""
        self.fleet.close()

    # --- the environments themselves

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """The attribute of the chosen environments."""
        values = self.fleet.get_attr(attr_name)
        return [values[index] for index in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Set the attribute of the chosen environments; the others keep theirs."""
        chosen = set(self._get_indices(indices))
        values = [value] * self.num_envs if len(chosen) == self.num_envs else self.get_attr(attr_name)
        self.fleet.set_attr(attr_name, [value if i in chosen else old for i, old in enumerate(values)])

    def env_method(
        self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any
    ) -> list[Any]:
        """Call the method of the chosen environments only, and return the results."""
        chosen = list(self._get_indices(indices))
        results = self.fleet.call_at(chosen, method_name, *method_args, **method_kwargs)
        by_env = dict(zip(sorted(set(chosen)), results, strict=True))
        return [by_env[index] for index in chosen]

    def env_is_wrapped(
        self, wrapper_class: type[gymnasium.Wrapper[Any, Any, Any, Any]], indices: VecEnvIndices = None
    ) -> list[bool]:
        """Whether the chosen environments have the wrapper or a subclass of it; compares class names."""
        names = {kind.__name__ for kind in _with_subclasses(wrapper_class)}
        chains = self.env_method("__str__", indices=indices)  # '<TimeLimit<OrderEnforcing<...>>>'
        return [not names.isdisjoint(chain.replace(">", "").split("<")) for chain in chains]

    def get_images(self) -> Sequence[Array | None]:
        """Rendered frame of every environment."""
        return list(self.fleet.render())


def _own(value: Any) -> Any:
    """A copy, because Stable-Baselines3 still reads an observation after the next step."""
    if isinstance(value, dict):
        return {key: _own(part) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(_own(part) for part in value)
    return np.array(value)


def _with_subclasses(kind: type[Any]) -> Iterator[type[Any]]:
    yield kind
    for derived in kind.__subclasses__():
        yield from _with_subclasses(derived)
