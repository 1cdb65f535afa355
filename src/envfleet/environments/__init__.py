"""The environments that ship with Envfleet, and their ids in Gymnasium's registry.

`import envfleet` registers the ids without importing the classes. They are imported when an env is made.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["PROCGEN_GAMES", "REGISTERED", "register", "register_with_gymnasium"]

_PROCGEN = "envfleet.environments.procgen.environment:ProcgenEnv"
PROCGEN_GAMES = (
    "bigfish", "bossfight", "caveflyer", "chaser", "climber", "coinrun", "dodgeball", "fruitbot",
    "heist", "jumper", "leaper", "maze", "miner", "ninja", "plunder", "starpilot",
)  # fmt: skip
# Environments with tasks, whose episodes are trials: name -> module of `meta` and class.
_META = {
    "Bandit": "bandit:Bandit",
    "TabularMDP": "tabular:TabularMDP",
    "PointRobot": "point_robot:PointRobot",
    "PointRobotSparse": "point_robot:PointRobotSparse",
    "Wind": "point_robot:Wind",
    "HalfCheetahVel": "locomotion:HalfCheetahVel",
    "HalfCheetahDir": "locomotion:HalfCheetahDir",
    "AntDir": "locomotion:AntDir",
    "AntGoal": "locomotion:AntGoal",
    "HumanoidDir": "locomotion:HumanoidDir",
}
# Ids of pomdp-baselines, without a namespace.
_BARE = {
    **{name: _META[name] for name in ("PointRobot", "PointRobotSparse", "Wind", "HalfCheetahVel", "AntDir")},
    "CheetahDir": _META["HalfCheetahDir"],
    "HumanoidDir": _META["HumanoidDir"],
}
_METAWORLD = "envfleet.environments.meta.metaworld:MetaWorld"
_METAWORLD_TASKS = (
    "assembly", "basketball", "bin-picking", "box-close", "button-press-topdown", "button-press-topdown-wall",
    "button-press", "button-press-wall", "coffee-button", "coffee-pull", "coffee-push", "dial-turn", "disassemble",
    "door-close", "door-lock", "door-open", "door-unlock", "hand-insert", "drawer-close", "drawer-open", "faucet-open",
    "faucet-close", "hammer", "handle-press-side", "handle-press", "handle-pull-side", "handle-pull", "lever-pull",
    "pick-place-wall", "pick-out-of-hole", "pick-place", "plate-slide", "plate-slide-side", "plate-slide-back",
    "plate-slide-back-side", "peg-insert-side", "peg-unplug-side", "soccer", "stick-push", "stick-pull", "push",
    "push-wall", "push-back", "reach", "reach-wall", "shelf-place", "sweep-into", "sweep", "window-open",
    "window-close",
)  # fmt: skip
# id -> entry point and keyword arguments
REGISTERED: dict[str, tuple[str, dict[str, str]]] = {
    "envfleet/GameBoy-v0": ("envfleet.environments.gameboy.environment:GameBoyEnv", {}),
    "envfleet/Wildfire-v0": ("envfleet.environments.wildfire.environment:WildfireEnv", {}),
    **{f"procgen/{game}": (_PROCGEN, {"game": game}) for game in PROCGEN_GAMES},
    **{f"envfleet/{name}-v0": (f"envfleet.environments.meta.{where}", {}) for name, where in _META.items()},
    "metaworld/ML10": (_METAWORLD, {"benchmark": "ML10"}),
    **{f"metaworld/ML1-{name}-v3": (_METAWORLD, {"benchmark": f"ML1-{name}-v3"}) for name in _METAWORLD_TASKS},
    **{f"{name}-v0": (f"envfleet.environments.meta.{where}", {}) for name, where in _BARE.items()},
}


def register() -> None:
    """Register every id that is not registered yet. Imports Gymnasium."""
    import gymnasium
    from gymnasium.envs.registration import WrapperSpec

    trial = WrapperSpec("Trial", "envfleet.environments.meta.trial:Trial", {"settings": None})
    for env_id, (entry_point, kwargs) in REGISTERED.items():
        if env_id not in gymnasium.registry:
            around = (trial,) if entry_point.startswith("envfleet.environments.meta.") else ()
            gymnasium.register(env_id, entry_point=entry_point, kwargs=kwargs, additional_wrappers=around)


def register_with_gymnasium() -> None:
    """Register now if Gymnasium is loaded, otherwise as soon as it is imported.

    Gymnasium has no plugin discovery, and importing it takes longer than the whole of `import envfleet`.
    """
    if "gymnasium" in sys.modules:
        register()
    elif not any(isinstance(finder, _OnceGymnasiumLoads) for finder in sys.meta_path):
        sys.meta_path.insert(0, _OnceGymnasiumLoads())


class _OnceGymnasiumLoads(MetaPathFinder):
    """Import hook that registers after the normal import of Gymnasium, then removes itself."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "gymnasium":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _ThenRegister(spec.loader)
        return spec


class _ThenRegister(Loader):
    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        register()
