"""Settings from Python, files and mappings: same values, same checks, all problems reported at once."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Literal

import gymnasium
import numpy as np
import pytest

from envfleet.algorithms.settings import PPO
from envfleet.errors import SettingsError
from envfleet.settings import Settings, differences, read_settings_file, reference_table, setting


@dataclass(frozen=True, kw_only=True)
class Toy(Settings):
    aliases: ClassVar[dict[str, str]] = {"training.n_steps": "rollout_steps", "num_workers": "workers"}

    env: str | Callable[..., Any] = setting("CartPole-v1", "which environment")
    learning_rate: float = setting(3e-4, "how far a step goes", above=0, maximum=1)
    rollout_steps: int = setting(128, "steps per rollout", minimum=1)
    minibatch_size: int = setting(64, "rows per update", minimum=1)
    workers: int | None = setting(None, "how many workers", minimum=1)
    device: Literal["auto", "cpu", "cuda"] = setting("auto", "where to learn")
    backend: str = setting("auto", "where to step", choices=("auto", "threads", "processes"))
    hidden: tuple[int, ...] = setting((64, 64), "layer sizes", minimum=1)
    betas: tuple[float, float] = setting((0.9, 0.999), "of Adam", minimum=0, below=1)
    target_kl: float | Literal["off"] = setting("off", "stop early | or not")
    schedule: float | str = setting(1.0, "a number or a name")
    env_kwargs: dict[str, Any] = setting({}, "arguments of the environment")
    anneal: bool = setting(default=True, help="slow down towards the end")
    output_dir: Path | None = setting(None, "folder of the run")

    def problems(self) -> list[str]:
        if self.rollout_steps % self.minibatch_size:
            return [f"minibatch_size: got {self.minibatch_size}, expected a divisor of {self.rollout_steps}"]
        return []


def refused(**values: Any) -> str:
    with pytest.raises(SettingsError) as error:
        Toy(**values)
    return str(error.value)


def refused_mapping(mapping: dict[str, Any]) -> list[str]:
    with pytest.raises(SettingsError) as error:
        Toy.from_mapping(mapping, source="toy.yaml")
    return str(error.value).splitlines()


# ---- given names ----


def test_given_names_are_known_and_survive_copies() -> None:
    toy = Toy(learning_rate=3e-4, workers=2)  # learning_rate has its default value
    assert toy.given == {"learning_rate", "workers"}
    for twin in (copy.copy(toy), copy.deepcopy(toy), pickle.loads(pickle.dumps(toy))):
        assert twin == toy
        assert twin.given == toy.given


def test_given_is_neither_a_field_nor_part_of_equality_or_repr() -> None:
    assert Toy(learning_rate=3e-4) == Toy()
    assert "given" not in repr(Toy(workers=2))
    assert "given" not in {field.name for field in fields(Toy)}


def test_a_changed_copy_adds_to_what_was_given() -> None:
    toy = Toy(workers=2).but(learning_rate=0.5)
    assert (toy.workers, toy.learning_rate) == (2, 0.5)
    assert toy.given == {"workers", "learning_rate"}
    with pytest.raises(SettingsError, match="learning_rate: got 0"):
        toy.but(learning_rate=0)


def test_a_preset_fills_only_what_was_not_given() -> None:
    toy = Toy(workers=2).filled({"workers": 9, "learning_rate": 0.1})
    assert (toy.workers, toy.learning_rate) == (2, 0.1)
    assert toy.given == {"workers"}
    with pytest.raises(SettingsError, match="did you mean learning_rate"):
        toy.filled({"learnin_rate": 1})


def test_a_parser_can_say_what_was_given() -> None:
    assert Toy(workers=2, device="cpu").as_given({"device"}).given == {"device"}


# ---- values ----


def test_a_path_is_taken_for_text() -> None:
    given = PPO(output_dir=Path("runs/x"), checkpoint_dir=Path("elsewhere"), init_from=Path("runs/first"))
    assert (given.output_dir, given.checkpoint_dir, given.init_from) == ("runs/x", "elsewhere", "runs/first")
    assert PPO(output_dir="runs/x") == PPO(output_dir=Path("runs/x"))


@pytest.mark.parametrize(
    ("name", "received", "value"),
    [
        ("learning_rate", 1, 1.0), ("learning_rate", "1e-3", 0.001), ("learning_rate", np.float32(0.5), 0.5),
        ("rollout_steps", 1e5, 100_000), ("rollout_steps", "1e5", 100_000), ("rollout_steps", np.int64(64), 64),
        ("workers", None, None), ("workers", "none", None), ("workers", 3, 3),
        ("hidden", [32], (32,)), ("hidden", [], ()),
        ("betas", [0, 0.5], (0.0, 0.5)), ("target_kl", "1e-2", 0.01), ("target_kl", "off", "off"),
        ("target_kl", False, "off"),
        ("schedule", "linear", "linear"), ("schedule", "2.5e-4", 0.00025), ("anneal", "false", False),
        ("output_dir", "runs/x", Path("runs/x")), ("env", max, max),
        ("env_kwargs", {"a": [1, {"b": (Path("c"), np.int64(2))}]}, {"a": (1, {"b": ("c", 2)})}),
    ],
)  # fmt: skip
def test_values_come_to_the_type_of_their_field(name: str, received: Any, value: Any) -> None:
    rest = {"minibatch_size": 1}
    for toy in (Toy(**rest, **{name: received}), Toy.from_mapping({**rest, name: received}, source="x")):
        assert getattr(toy, name) == value
        assert type(getattr(toy, name)) is type(value)


@pytest.mark.parametrize(
    ("name", "received", "words"),
    [
        ("learning_rate", 0, "got 0, expected a number, above 0, at most 1"),
        ("learning_rate", math.nan, "got nan, expected a number, above 0, at most 1"),
        ("learning_rate", True, "got True, expected a number"),
        ("learning_rate", "fast", "got 'fast', expected a number"),
        ("rollout_steps", 1.5, "got 1.5, expected a whole number, at least 1"),
        ("rollout_steps", math.inf, "got inf, expected a whole number"),
        ("workers", 0, "got 0, expected a whole number or none, at least 1"),
        ("device", "cpuu", "expected one of 'auto', 'cpu', 'cuda'; did you mean 'cpu'?"),
        ("backend", "thread", "expected text, one of 'auto', 'threads', 'processes'; did you mean 'threads'?"),
        ("hidden", [64, 0], "got [64, 0], expected a list of whole numbers, at least 1"),
        ("hidden", 64, "got 64, expected a list of whole numbers"),
        ("betas", [0.9], "expected a list: a number, a number, at least 0, below 1"),
        ("betas", [0.9, 1.0], "got [0.9, 1.0]"),
        ("anneal", 1, "got 1, expected true or false"),
        ("env_kwargs", 3, "got 3, expected a mapping"),
        ("env_kwargs", {3: 4}, "got {3: 4}, expected a mapping with text keys"),
        ("env", 3, "got 3, expected text or a function (module:name)"),
    ],
)
def test_impossible_values_are_refused_with_what_is_expected(name: str, received: Any, words: str) -> None:
    assert f"{name}: " in refused(**{name: received})
    assert words in refused(**{name: received})
    assert any(words in line for line in refused_mapping({name: received}))


def test_all_problems_are_reported_at_once() -> None:
    lines = refused_mapping(
        {"learnin_rate": 3, "training": {"n_steps": 100, "colour": "red"}, "device": "gpu", "zzz": 1}
    )
    assert lines[0] == "toy.yaml has 5 problems:"
    assert lines[1] == "  learnin_rate: there is no such setting; did you mean learning_rate?"
    assert lines[2].startswith("  training.colour: there is no such setting; there are anneal, backend, betas")
    assert lines[3].startswith("  zzz: there is no such setting")
    assert lines[4] == "  device: got 'gpu', expected one of 'auto', 'cpu', 'cuda'; did you mean 'cpu'?"
    assert lines[5] == "  minibatch_size: got 64, expected a divisor of 100"


@pytest.mark.parametrize(
    ("mapping", "names"),
    [
        ({"memory_size": 0, "hidden": [0]}, ["hidden:", "memory_size:"]),
        ({"activation": "than"}, ["activation:"]),
        ({"n_envs": 0, "network": "mpl", "policy": "mlp"}, ["n_envs:", "network", "policy", "both"]),
        ({"initial_log_std": math.nan, "memory": "gru", "shared": False}, ["initial_log_std:", "shared"]),
    ],
)
def test_problems_of_the_policy_are_reported_with_the_others_and_once(
    mapping: dict[str, Any], names: list[str]
) -> None:
    with pytest.raises(SettingsError) as error:
        PPO.from_mapping(mapping, source="ppo.yaml")
    assert [line.split()[0] for line in str(error.value).splitlines()[1:]] == names


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"env_kwargs": {"f": len}}, "env_kwargs.f: got <built-in function len>, expected numbers, text, lists or"),
        ({"env_kwargs": {"f": len}}, "use functools.partial(...) or a function of your own module"),
        ({"env_kwargs": {"a": [{"b": np.zeros(2)}]}}, "env_kwargs.a[0].b: got array([0., 0.]), expected numbers"),
        ({"env_kwargs": {"levels": {1: "a"}}}, "env_kwargs.levels: got the key 1, expected text"),
        ({"wrappers": [len, {"a.b:c": {"f": len}}]}, "wrappers[1].a.b:c.f: got <built-in function len>, expected"),
    ],
)
def test_arguments_that_a_run_cannot_record_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError) as error:
        PPO(**given)
    assert words in str(error.value)


def test_checks_that_cannot_run_on_refused_values_stay_silent() -> None:
    assert refused(minibatch_size=0) == (
        "Toy has a problem:\n  minibatch_size: got 0, expected a whole number, at least 1"
    )


def test_an_error_in_a_check_itself_is_not_hidden() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Broken(Settings):
        def problems(self) -> list[str]:
            raise KeyError("a mistake of ours")

    with pytest.raises(KeyError, match="a mistake of ours"):
        Broken()


def test_unknown_names_from_python_are_refused_with_the_nearest() -> None:
    assert "workrs: there is no such setting; did you mean workers?" in refused(workrs=3)


def test_first_mistakes_of_users_of_other_libraries() -> None:
    env = gymnasium.make("CartPole-v1")
    with pytest.raises(
        SettingsError, match=r"PPO received 'MlpPolicy', <.* without a name\nhint: .* name: PPO\(env=\.{3}"
    ):
        PPO("MlpPolicy", env)  # type: ignore[misc]
    with pytest.raises(SettingsError, match=r"give a function that builds one, e\.g\. lambda: MyEnv\(\)"):
        PPO(env=env)  # type: ignore[arg-type]


# ---- mappings ----


def test_nested_flat_and_older_keys_name_the_same_setting() -> None:
    for mapping in (
        {"rollout_steps": 64}, {"training.n_steps": 64}, {"training": {"n_steps": 64}},
        {"training": {"rollout_steps": 64}}, {"rollout-steps": 64},
    ):  # fmt: skip
        toy = Toy.from_mapping(mapping, source="x")
        assert toy.rollout_steps == 64
        assert toy.given == {"rollout_steps"}


def test_keys_that_disagree_are_refused_and_those_that_agree_are_not() -> None:
    lines = refused_mapping({"rollout_steps": 64, "training": {"n_steps": 128}})
    assert lines[1] == "  training.n_steps: got 128, but rollout_steps says 64"
    assert Toy.from_mapping({"rollout_steps": 64, "training": {"n_steps": 64}}, source="x").rollout_steps == 64


def test_a_setting_in_a_foreign_section_is_not_taken() -> None:
    assert refused_mapping({"evaluation": {"workers": 3}})[1].startswith("  evaluation.workers: there is no such")


def test_a_problem_is_reported_under_the_key_of_the_file() -> None:
    assert refused_mapping({"training": {"n_steps": 0}})[1].startswith("  training.n_steps: got 0, expected")


def test_a_subclass_may_compute_keys_from_others() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Product(Toy):
        @classmethod
        def prepared(cls, values: dict[str, Any]) -> dict[str, Any]:
            return {"workers": values.pop("parallel.rows") * values.pop("parallel.columns"), **values}

    assert Product.from_mapping({"parallel": {"rows": 2, "columns": 3}}, source="x").workers == 6


def test_a_setting_without_default_has_to_be_there() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Needy(Settings):
        rom: str = setting(MISSING, "the game")

    assert Needy.from_mapping({"rom": "a.gb"}, source="x").rom == "a.gb"
    with pytest.raises(SettingsError, match="rom: missing, and it has no default"):
        Needy.from_mapping({}, source="x")
    assert differences(Needy(rom="a.gb")) == {"rom": "a.gb"}


def test_settings_go_to_plain_data_and_come_back() -> None:
    toy = Toy(hidden=(32,), output_dir=Path("runs/x"), env_kwargs={"map": (1, 2)})
    written = toy.to_json()
    assert written["hidden"] == [32]
    assert written["output_dir"] == "runs/x"
    assert Toy.from_mapping(written, source="config.yaml") == toy
    assert Toy(env=Path.cwd).to_json()["env"] == "pathlib:Path.cwd"


def test_defaults_that_can_change_belong_to_one_object() -> None:
    Toy().env_kwargs["a"] = 1
    assert Toy().env_kwargs == {}


# ---- files ----


def test_yaml_and_json_with_comments_hold_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("# a comment\nlearning_rate: 1e-3\ntraining: {n_steps: 64}\nenv: 'a//b'\n")
    (tmp_path / "a.json").write_text(
        '{ // a comment\n "learning_rate": 1e-3, /* two\n lines, } */ "training": {"n_steps": 64,},\n'
        ' "env": "a//b /* \\" ,} */",\n}\n'
    )
    from_yaml, from_json = read_settings_file(tmp_path / "a.yaml"), read_settings_file(str(tmp_path / "a.json"))
    assert from_json.pop("env") == 'a//b /* " ,} */'
    assert from_yaml.pop("env") == "a//b"
    assert Toy.from_mapping(from_yaml, source="x") == Toy.from_mapping(from_json, source="x")


def test_an_empty_file_is_an_empty_mapping(tmp_path: Path) -> None:
    for name in ("a.yml", "a.json"):
        (tmp_path / name).write_text("\n")
        assert read_settings_file(tmp_path / name) == {}


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.yaml", "a: 1\nb: [1, 2\nc: 3\n", "a.yaml, line 3: "),
        ("a.yaml", "a: 1\nb: 2\na: 3\n", "a.yaml, line 3: a is there twice, first in line 1"),
        ("a.yaml", "a: !!python/object/apply:os.system ['true']\n", "a.yaml, line 1: could not determine"),
        ("a.yaml", "- a\n- b\n", "holds a list, expected settings as `name: value`"),
        ("a.json", '{\n// one\n"a": 1\n"b": 2}', "a.json, line 4: expecting ',' delimiter"),
        ("a.json", '{"a": 1, "a": 2}', "a is there twice"),
        ("a.toml", "a = 1", "expected a name that ends in .yaml, .yml, .json"),
        ("a.yaml", "a: \x00", "is not YAML"),
    ],
)
def test_bad_files_are_refused_with_the_line(tmp_path: Path, name: str, text: str, words: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(SettingsError) as error:
        read_settings_file(tmp_path / name)
    assert words in str(error.value)


def test_a_missing_file_names_those_that_are_there(tmp_path: Path) -> None:
    (tmp_path / "experiment.yaml").write_text("a: 1")
    with pytest.raises(SettingsError, match=r"there is no settings file .*\nhint: in .* there are experiment\.yaml"):
        read_settings_file(tmp_path / "experimnt.yaml")
    with pytest.raises(SettingsError, match="cannot be read"):
        (tmp_path / "folder.yaml").mkdir()
        read_settings_file(tmp_path / "folder.yaml")


# ---- descriptions ----


def test_differences_are_those_against_the_defaults() -> None:
    assert differences(Toy()) == {}
    assert differences(Toy(learning_rate=3e-4, workers=2, hidden=[64, 64])) == {"workers": 2}


def test_the_reference_table_has_a_row_for_every_setting() -> None:
    lines = reference_table(Toy).splitlines()
    assert lines[0] == "| setting | type | default | meaning |"
    assert len(lines) == 2 + len(fields(Toy))
    assert "| `learning_rate` | a number, above 0, at most 1 | `0.0003` | how far a step goes |" in lines
    assert "| `target_kl` | a number or 'off' | `\"off\"` | stop early \\| or not |" in lines


def test_the_help_of_a_field_is_the_help_of_its_option(capsys: pytest.CaptureFixture[str]) -> None:
    import tyro

    with pytest.raises(SystemExit):
        tyro.cli(Toy, args=["--help"])
    assert "how far a step goes" in capsys.readouterr().out
    assert tyro.cli(Toy, args=["--learning-rate", "0.5"]).learning_rate == 0.5
