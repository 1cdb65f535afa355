"""SAC: one update against an independent implementation, for every form; the number of updates; random actions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from envfleet import clock
from envfleet.algorithms.sac import SACLearner
from envfleet.algorithms.sac_batch import split_sequences, split_transitions
from envfleet.algorithms.sac_metrics import SACUpdateMetrics
from envfleet.algorithms.sac_targets import TargetNetworks
from envfleet.algorithms.settings import SAC
from envfleet.errors import OutOfTimeError, SettingsError, TrainingError
from envfleet.policies.weights import load_weights
from envfleet.rollout.replay import Experience
from envfleet.rollout.sequences import Sequences
from tests.algorithms.sac_reference import Reference, part_of_even_choice
from tests.rollout.made import rollout_of
from tests.rollout.test_replay import ENVS, GAMMA, World, lost_rollout
from tests.training.test_timed import Clock

SIZE, ROWS, ACTIONS, CHOICES = 6, 16, 2, 4
SPACE = spaces.Box(-np.inf, np.inf, (SIZE,), np.float32)
BOX, DISCRETE = spaces.Box(-2.0, 2.0, (ACTIONS,), np.float32), spaces.Discrete(CHOICES)
PARTS = {"action": ["", 3, 5], "reward": ["", 5, 6]}
TIMES, BATCH = 5, 6
STATISTICS = ("critics.twins.mean_", "critics.twins.variance_")  # of batch normalisation


def learner_of(action_space: Any = BOX, **changes: Any) -> SACLearner:
    base: dict[str, Any] = {
        "n_envs": 3,
        "rollout_steps": 4,
        "replay_size": 200,
        "learning_starts": 8,
        "minibatch_size": ROWS,
        "hidden": (8, 7),
        "seed": 3,
        "temperature": 0.6,
        "learning_rate": 0.01,
        "memory_size": 5,
        "history_parts": PARTS,
        "sampled_seq_len": TIMES,
        "observation_embedding": 4,
        "action_embedding": 3,
        "reward_embedding": 2,
    }
    settings = SAC(**{**base, **changes})
    learner = settings.build_learner(SPACE, action_space, n_envs=3, seed=3, device=torch.device("cpu"))
    with torch.no_grad():
        learner._critic_weights.flat.parameters.mul_(1.7)
        if isinstance(learner._targets, TargetNetworks):  # which differ from the critics
            learner._targets.flat.data.mul_(1.1)
            learner._targets.flat.parameters.mul_(1.3)
    return learner


def target_weights(learner: SACLearner) -> torch.Tensor:
    assert isinstance(learner._targets, TargetNetworks)
    return learner._targets.flat.data


def transitions(*, discrete: bool, masked: bool = False) -> Experience:
    generator = np.random.default_rng(0)
    actions = generator.integers(CHOICES, size=ROWS) if discrete else generator.uniform(-1, 1, (ROWS, ACTIONS))
    masks = (generator.random((2, ROWS, CHOICES)) < 0.5) if masked else [None, None]
    if masked:
        masks[:, 0] = False  # nothing allowed counts as everything
        masks[1, 1:, 0] = True
    return Experience(
        np.arange(ROWS),
        {"": generator.normal(size=(2 * ROWS, SIZE)).astype(np.float32)},
        actions if discrete else actions.astype(np.float32),
        generator.normal(size=ROWS).astype(np.float32),
        np.where(generator.random(ROWS) < 0.3, 0.0, 0.97).astype(np.float32),
        masks[0],
        allowed=masks[1],
    )


def sequences() -> Sequences:
    generator = np.random.default_rng(0)
    mask = np.ones((TIMES, BATCH), np.float32)
    mask[3:, 1] = mask[:2, 4] = 0.0  # padding, and steps that warm up
    return Sequences(
        {"": generator.normal(size=(TIMES + 1, BATCH, SIZE)).astype(np.float32)},
        generator.uniform(-1, 1, (TIMES, BATCH, ACTIONS)).astype(np.float32),
        generator.normal(size=(TIMES, BATCH)).astype(np.float32),
        np.where(generator.random((TIMES, BATCH)) < 0.2, 0.0, 0.97).astype(np.float32),
        mask,
    )


def doubles(found: Any) -> Any:
    if found is None:
        return None
    tensor = torch.from_numpy(np.asarray(found))
    return tensor.double() if tensor.is_floating_point() else tensor


def reference_of(learner: SACLearner, *, discrete: bool) -> Reference:
    settings = learner._settings

    def copied(state: dict[str, Any]) -> dict[str, torch.Tensor]:
        return {name: tensor.detach().double().clone().requires_grad_() for name, tensor in state.items()}

    return Reference(
        copied(learner.policy.state_dict()),
        copied(learner._targets.copies.state_dict()) if isinstance(learner._targets, TargetNetworks) else {},
        discrete=discrete,
        hidden=len(settings.hidden),
        layer_norm=settings.layer_norm,
        batch_norm=settings.batch_norm,
        actor_memory="none" if settings.architecture == "memory-markov" else settings.memory,
        critic_memory=settings.memory,
        action_columns=(3, 5),
        reward_columns=(5, 6),
        action_scale=0.5,  # of actions in [-2, 2]
    )


def batch_of(learner: SACLearner, taken: Any, shares: Any) -> dict[str, Any]:
    """A batch as the reference reads it."""
    with_memory = isinstance(taken, Sequences)
    noise = learner._draw_noise(learner._noise_stream(), (TIMES, BATCH) if with_memory else (ROWS,))
    batch = {
        "actions": doubles(taken.actions),
        "returns": doubles(taken.rewards if with_memory else taken.returns),
        "discounts": doubles(taken.discounts),
        "weights": doubles(shares),
        "noise": [None, None] if noise.actions is None else doubles(noise.actions),
        "dropout": [None] * 3 if noise.dropout is None else doubles(noise.dropout),
        "masks": None if with_memory else doubles(taken.masks),
        "allowed": None if with_memory else doubles(taken.allowed),
    }
    if with_memory:
        return {**batch, "seen": doubles(taken.observations[""])}
    return {**batch, "now": doubles(taken.observations[""]), "following": doubles(taken.following[""])}


def one_update(reference: Reference, batch: dict[str, Any], settings: SAC, target_entropy: Any) -> dict[str, float]:
    """Update the reference with torch's Adam; return its metrics."""
    weights, metrics = reference.weights, {}

    def step(names: list[str], loss: torch.Tensor, rate: float, *, clips: bool = True) -> float:
        chosen = [weights[name] for name in names]
        for tensor, gradient in zip(chosen, torch.autograd.grad(loss, chosen), strict=True):
            tensor.grad = gradient
        largest = settings.max_gradient_norm if clips and settings.max_gradient_norm is not None else 1e9
        norm = float(torch.nn.utils.clip_grad_norm_(chosen, largest))
        remembers = [name for name in names if ".history." in name]
        slow = settings.memory_learning_rate
        groups = [{"params": [weights[name] for name in names if name not in remembers], "lr": rate}]
        if remembers:
            groups.append({"params": [weights[name] for name in remembers], "lr": rate if slow is None else slow})
        torch.optim.Adam(groups, eps=1e-8, betas=(settings.adam_beta if clips else 0.9, 0.999)).step()
        return norm

    trained = [name for name in weights if name != "actor.random" and not name.startswith(STATISTICS)]
    loss, _ = reference.losses(batch, target_entropy)
    metrics["train/critic_loss"] = loss.item()
    critics = [name for name in trained if name.startswith("critics.")]
    metrics["train/critic_gradient_norm"] = step(critics, loss, settings.learning_rate)
    loss, of_temperature = reference.actor_losses(batch, target_entropy)
    metrics["train/actor_loss"] = loss.item()
    actor = [name for name in trained if name.startswith("actor.")]
    metrics["train/actor_gradient_norm"] = step(actor, loss, settings.learning_rate)
    rate = settings.temperature_learning_rate or settings.learning_rate
    step(["temperature.log"], of_temperature, rate, clips=False)
    return {**metrics, **{name: value for name, value in reference.found.items() if name.startswith("train/")}}


FORMS: dict[str, dict[str, Any]] = {
    "box": {},
    "box, two threads": {"learner_threads": 2},
    "box, three threads": {"learner_threads": 3},
    "box, clipped": {"max_gradient_norm": 0.3, "temperature_learning_rate": 0.05},
    "box, normalised layers": {"layer_norm": True},
    "box, normalised layers and dropout": {"layer_norm": True, "dropout": 0.3, "learner_threads": 2},
    "box, batch normalisation": {"batch_norm": True, "adam_beta": 0.5},
    "box, batch normalisation, two threads": {"batch_norm": True, "learner_threads": 2},
    "box, target": {"target_entropy": 0.7},
    "discrete": {},
    "discrete, masks": {"learner_threads": 2},
    "discrete, batch normalisation": {"batch_norm": True},
    "gru": {"memory": "gru"},
    "gru, two threads, clipped": {"memory": "gru", "learner_threads": 2, "max_gradient_norm": 0.2},
    "gru, slow": {"memory": "gru", "memory_learning_rate": 0.001},
    "lstm": {"memory": "lstm", "memory_learning_rate": 0.02},
    "memory-markov": {"memory": "gru", "architecture": "memory-markov", "layer_norm": True},
}


@pytest.mark.parametrize("form", FORMS)
def test_one_update_is_that_of_the_formulas(form: str) -> None:
    discrete, masked, remembers = form.startswith("discrete"), "masks" in form, "memory" in FORMS[form]
    learner = learner_of(DISCRETE if discrete else BOX, **FORMS[form])
    settings, count = learner._settings, learner._threads.count
    reference = reference_of(learner, discrete=discrete)
    taken: Any
    if remembers:
        taken = sequences()
        shares = taken.mask / taken.mask.sum()
        noise = learner._draw_noise(learner._noise_stream(), (TIMES, BATCH))
        parts = split_sequences(taken, noise, learner._actor.inputs, count, learner.device)
    else:
        taken, importance = transitions(discrete=discrete, masked=masked), np.linspace(0.2, 1.0, ROWS)
        shares = importance / ROWS
        noise = learner._draw_noise(learner._noise_stream(), (ROWS,))
        importance = importance.astype(np.float32)
        parts = split_transitions(taken, importance, noise, learner._actor.inputs, count, learner.device)
    assert len(parts) == count
    batch = batch_of(learner, taken, shares)
    target_entropy: Any = settings.target_entropy
    if target_entropy is None:
        target_entropy = part_of_even_choice(batch["allowed"], CHOICES) if discrete else -float(ACTIONS)
    metrics = SACUpdateMetrics()
    before = None if settings.batch_norm else target_weights(learner).clone()
    with torch.no_grad():
        learner._update(parts, None if remembers else taken, 1.0, metrics)

    expected = one_update(reference, batch, settings, target_entropy)
    found = metrics.means()
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-4), name
    assert found["train/ent_coef"] == pytest.approx(0.6)
    of_temperature = reference.weights["temperature.log"].grad  # the first step of Adam depends on its sign alone
    assert of_temperature is not None
    assert float(learner._temperature.flat.gradient[0]) == pytest.approx(float(of_temperature), rel=1e-4, abs=1e-6)
    for name, tensor in learner.policy.state_dict().items():
        expect = reference.weights[name].detach()
        if name.startswith(STATISTICS):
            expect = torch.stack([reference.running[name, twin] for twin in (0, 1)]).unsqueeze(1)
        torch.testing.assert_close(tensor.double(), expect, rtol=2e-3, atol=2e-5, msg=name)
    if before is not None:
        torch.testing.assert_close(target_weights(learner), 0.995 * before + 0.005 * learner._critic_weights.flat.data)
    learner.close()


@pytest.mark.parametrize(
    "changes",
    [{}, {"max_gradient_norm": 0.3}, {"actor_frequency": 2}, {"target_entropy": 0.7}, {"prioritised": True}],
    ids=str,
)
def test_without_autograd_the_weights_are_bit_identical(changes: dict[str, Any]) -> None:
    found = []
    for plain in (True, False):
        learner = learner_of(learner_threads=1, **changes)
        assert learner._plain is not None
        if not plain:
            learner._plain = None
        with torch.no_grad():  # equal twins, which share the gradient of the actor's loss
            for tensor in learner._critics.twins.layers:
                tensor[1] = tensor[0]
        metrics, priorities = SACUpdateMetrics(), []
        learner.experience.set_priorities = lambda _, errors: priorities.append(errors)  # type: ignore[method-assign]  # noqa: B023
        generator = learner._noise_stream()
        for update in range(4):
            taken, noise = transitions(discrete=False), learner._draw_noise(generator, (ROWS,))
            (part,) = split_transitions(taken, None, noise, learner._actor.inputs, 1, learner.device)
            with torch.no_grad():
                learner._update([part], taken, 1.0, metrics)
                if update == 1:  # and different ones
                    learner._critics.twins.layers[0][1].mul_(1.5)
        weights = [each.flat.data.clone() for each in learner._trained.values()]
        found.append((weights, metrics.means(), priorities))
        learner.close()
    (weights, metrics_found, errors), (others, other_metrics, other_errors) = found
    assert all(torch.equal(one, other) for one, other in zip(weights, others, strict=True))
    assert metrics_found == other_metrics
    assert len(errors) == (4 if changes.get("prioritised") else 0)
    assert all(np.array_equal(one, other) for one, other in zip(errors, other_errors, strict=True))


@pytest.mark.parametrize(
    ("space", "changes"),
    [
        (DISCRETE, {}),
        (BOX, {"layer_norm": True}),
        (BOX, {"batch_norm": True}),
        (BOX, {"memory": "gru"}),
        (BOX, {"learner_threads": 2, "schedule": "overlap"}),
    ],
    ids=str,
)
def test_other_forms_use_autograd(space: Any, changes: dict[str, Any]) -> None:
    learner = learner_of(space, **changes)
    assert learner._plain is None
    learner.close()


def worldly(**changes: Any) -> tuple[SACLearner, World]:
    """A learner for the observations of `World`: environment and time."""
    base: dict[str, Any] = {"replay_size": 200, "learning_starts": 8, "minibatch_size": 16, "hidden": (8,)}
    settings = SAC(**{"n_envs": ENVS, "rollout_steps": 4, **base, **changes})
    space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    learner = settings.build_learner(space, DISCRETE, n_envs=ENVS, seed=3, device=torch.device("cpu"))
    return learner, World(0, choices=CHOICES)


@pytest.mark.parametrize("n_step", [1, 3])
def test_transitions_end_with_their_episode_and_never_hold_a_lost_step(n_step: int) -> None:
    """A truncated episode bootstraps from its final observation, which has a negative time in this world."""
    learner, world = worldly(n_step=n_step, gamma=GAMMA, learner_threads=2, layer_norm=True)
    learner.experience.add(world.rollout(60))
    seen: set[str] = set()
    for parts, _ in learner._batches(40):
        assert len(parts) == 2
        for part in parts:
            rows = zip(part.now[0].tolist(), part.following[0].tolist(), strict=True)
            for (env, time), following, total, discount in (
                (*pair, total, discount)
                for pair, total, discount in zip(rows, part.returns.tolist(), part.discounts.tolist(), strict=True)
            ):
                assert world.valid[int(time)][int(env)]
                expected, led_to, factor = world.transition(int(time), int(env), n_step)
                assert (total, discount) == pytest.approx((expected, factor), abs=1e-5)
                if factor:
                    assert following == list(led_to)
                seen.add("terminated" if not factor else "truncated" if following[1] < 0 else "runs on")
    assert seen == {"terminated", "truncated", "runs on"}
    learner.close()


@pytest.mark.parametrize(
    ("ratio", "updates"), [(1.0, [0, 12, 24]), (0.25, [0, 3, 6]), (0.2, [0, 2, 4]), (2.0, [0, 24, 48])]
)
def test_updates_are_in_proportion_to_the_collected_steps(ratio: float, updates: list[int]) -> None:
    """A rollout has 12 steps, and the first ends before `learning_starts`. Fractions of an update are carried over."""
    learner, world = worldly(updates_per_step=ratio)
    object.__setattr__(learner._settings, "learning_starts", 13)
    found = []
    for _ in updates:
        learner.learn(world.rollout(4), 0.0)
        found.append(learner.updates)
    assert found == updates
    learner.learn(world.rollout(4), 0.0)
    assert learner.updates == int(36 * ratio)


def test_lost_steps_alone_are_nothing_to_learn_from() -> None:
    learner, world = worldly()
    assert np.isnan(learner.learn(lost_rollout(world), 0.0)["train/critic_loss"]) and learner.updates == 0
    learner.learn(world.rollout(4), 0.0)
    assert learner.updates == 4 * ENVS  # none are due for the lost steps
    learner.close()


def test_updates_can_be_counted_per_rollout() -> None:
    learner, world = worldly(updates_per_rollout=5)
    for expected in (5, 10):
        learner.learn(world.rollout(4), 0.0)
        assert learner.updates == expected


def test_actions_are_random_until_learning_starts() -> None:
    learner, world = worldly()
    assert float(learner.policy.actor.random) == 1.0
    learner.learn(world.rollout(2), 0.0)
    assert float(learner.policy.actor.random) == 1.0  # 6 steps of 8
    learner.learn(world.rollout(4), 0.0)
    assert float(learner.policy.actor.random) == 0.0


def test_a_run_that_starts_from_another_does_not_begin_with_random_actions() -> None:
    learner = learner_of()
    learner.start_from({"normaliser": {}})
    assert float(learner.policy.actor.random) == 0.0
    assert torch.equal(target_weights(learner), learner._critic_weights.flat.data)
    assert learner.state()["random_steps"] == 0


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"temperature": 0.05, "tune_temperature": False}, 0.05),
        ({"temperature": 0.05}, 0.05),
        ({"tune_temperature": False}, 1.0),
        ({}, 0.6),  # the tuned temperature of the other run
    ],
)
def test_a_run_that_starts_from_another_has_its_own_temperature(changes: dict[str, Any], expected: float) -> None:
    first, _ = worldly(temperature=0.6)
    learner, _ = worldly(**changes)
    load_weights(learner.policy, first.policy.state_dict(), "another run")
    learner.start_from(first.state())
    assert float(learner.policy.temperature.alpha) == pytest.approx(expected)


def test_errors_of_the_twins_do_not_cancel_in_the_priorities() -> None:
    learner = learner_of(prioritised=True)
    taken = transitions(discrete=False)
    taken.discounts[...] = taken.returns[...] = 0.0
    noise = learner._draw_noise(learner._noise_stream(), (ROWS,))
    (part,) = split_transitions(taken, None, noise, learner._actor.inputs, 1, learner.device)
    twins = learner._critics.twins
    with torch.no_grad():
        twins.weights[-1].zero_()
        twins.biases[-1].copy_(torch.tensor([3.0, -3.0]).view(2, 1, 1))
        errors = learner._critic_step(part, torch.tensor(0.6), acts=False).errors
    assert errors is not None and errors.tolist() == [3.0] * ROWS


@pytest.mark.parametrize(("space", "largest"), [(DISCRETE, "1.386"), (BOX, "1.386")])
def test_a_target_entropy_that_no_policy_has_is_refused(space: Any, largest: str) -> None:
    with pytest.raises(SettingsError, match=f"target_entropy is 1.4, expected at most {largest}"):
        learner_of(space, target_entropy=1.4)
    learner_of(space, target_entropy=1.4, tune_temperature=False)  # has no effect


@pytest.mark.parametrize(
    ("changes", "in_torch", "parts"),
    [
        ({}, 2, 1),
        ({"schedule": "overlap"}, 1, 2),  # somebody may act at the same time, which needs one thread
        ({"layer_norm": True}, 1, 2),
        ({"batch_norm": True}, 2, 1),  # a batch cannot be split
    ],
)
def test_torch_uses_several_threads_only_in_updates(
    changes: dict[str, Any], in_torch: int, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = learner_of(learner_threads=2, **changes)
    seen = []
    batch = split_transitions(
        transitions(discrete=False),
        None,
        learner._draw_noise(learner._noise_stream(), (ROWS,)),
        learner._actor.inputs,
        learner._threads.count,
        learner.device,
    )

    def update(parts: list[Any], *_: Any) -> None:
        seen.append((torch.get_num_threads(), len(parts)))

    monkeypatch.setattr(learner, "_batches", lambda count, shown: [(batch, None)] * count)
    monkeypatch.setattr(learner, "_update", update)
    before = torch.get_num_threads()
    learner._make_updates(2, 1.0, SACUpdateMetrics())
    learner.close()
    assert seen == [(in_torch, parts)] * 2 and torch.get_num_threads() == before


def test_the_actor_can_wait_for_several_updates_of_the_critics() -> None:
    learner = learner_of(actor_frequency=3)
    moved = []
    for number in range(6):
        before = [each.flat.data.clone() for each in learner._trained.values()]
        noise = learner._draw_noise(learner._noise_stream(), (ROWS,))
        taken = transitions(discrete=False)
        parts = split_transitions(taken, None, noise, learner._actor.inputs, 1, learner.device)
        with torch.no_grad():
            learner._update(parts, taken, 1.0, SACUpdateMetrics())
        changed = [not torch.equal(a, b.flat.data) for a, b in zip(before, learner._trained.values(), strict=True)]
        moved.append(changed)
        assert learner.updates == number + 1
    assert moved == [[number % 3 == 0, True, number % 3 == 0] for number in range(6)]


def test_a_fixed_temperature_stays() -> None:
    learner, world = worldly(tune_temperature=False, temperature=0.3)
    for _ in range(3):
        metrics = learner.learn(world.rollout(4), 0.0)
    assert metrics["train/ent_coef"] == pytest.approx(0.3)
    assert float(learner.policy.temperature.alpha) == pytest.approx(0.3)


def test_the_temperature_rises_if_there_is_too_little_entropy() -> None:
    low, high = (worldly(target_entropy=target)[0] for target in (0.0, 1.3))  # log 4 is the largest entropy
    with torch.no_grad():
        high.policy.actor.head.bias[0] = 10.0  # a clear favourite
    for learner in (low, high):
        world = World(0, choices=CHOICES)
        for _ in range(4):
            learner.learn(world.rollout(4), 0.0)
    assert float(low.policy.temperature.alpha) < 1.0 < float(high.policy.temperature.alpha)


def test_weights_that_are_no_longer_numbers_stop_the_run() -> None:
    learner, world = worldly()
    with torch.no_grad():
        learner._critic_weights.flat.data[0] = torch.nan
    with pytest.raises(TrainingError, match="no longer numbers"):
        learner.learn(world.rollout(8), 0.0)


def test_demonstrated_actions_are_scaled_to_one(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = learner_of(demonstrations="file.npz", demonstration_share=0.5, pretrain_steps=2)
    given = np.array([[-2.0, 2.0], [0.0, 1.0], [-3.0, 0.5]], np.float32)
    flags = {"terminated": np.zeros((3, 1), np.bool_), "truncated": np.zeros((3, 1), np.bool_)}
    flags["terminated"][-1] = True
    observations = np.random.default_rng(0).normal(size=(4, 1, SIZE)).astype(np.float32)
    rollout = rollout_of(
        observations,
        observations[:0],
        given[:, None],
        None,
        rewards=np.zeros((3, 1), np.float32),
        **flags,
        valid=np.ones((3, 1), np.bool_),
    )
    learner.show(rollout)
    assert learner.updates == 2
    monkeypatch.setattr(clock, "time", Clock(1))
    with pytest.raises(OutOfTimeError):
        learner.show(replace(rollout, columns={"actions": given[:, None]}), until=1.0)
    assert learner.updates == 3
    monkeypatch.undo()
    for parts, _ in learner._batches(1, shown=1.0):
        found = {tuple(row) for row in parts[0].actions.tolist()}
    assert found <= {(-1.0, 1.0), (0.0, 0.5), (-1.0, 0.25)} and len(found) == 3


def test_a_memory_learns_from_demonstrations_before_the_first_rollout() -> None:
    learner = learner_of(memory="gru", demonstrations="file.npz", demonstration_share=0.5, pretrain_steps=3)
    before = learner.weights().copy(), learner._critic_weights.flat.data.clone()
    given = np.random.default_rng(1).uniform(-2, 2, (7, 1, ACTIONS)).astype(np.float32)
    ends = {"terminated": np.zeros((7, 1), np.bool_), "truncated": np.zeros((7, 1), np.bool_)}
    ends["terminated"][[2, 6]] = True
    observations = np.random.default_rng(0).normal(size=(8, 1, SIZE)).astype(np.float32)
    rewards, valid = np.ones((7, 1), np.float32), np.ones((7, 1), np.bool_)
    learner.show(rollout_of(observations, observations[:0], given, None, rewards=rewards, **ends, valid=valid))
    assert learner.updates == 3 and "replay" not in vars(learner.experience), "the replay is not needed yet"
    assert not np.array_equal(learner.weights(), before[0])
    assert not torch.equal(learner._critic_weights.flat.data, before[1])


def test_updates_are_owed_while_no_whole_episode_is_stored() -> None:
    """The replay keeps six steps of each environment. The first episodes have twelve, the next ones four."""
    changes: dict[str, Any] = {"memory": "gru", "sampled_seq_len": -1, "updates_per_step": 0.25}
    learner, world = worldly(**changes, replay_size=6 * ENVS)
    made = []
    for number in range(4):
        rollout = world.rollout(4)
        none, ends = np.zeros_like(rollout.valid), np.zeros_like(rollout.valid)
        ends[-1] = number == 2
        rollout = replace(rollout, terminated=ends, truncated=none, valid=np.ones_like(none))
        metrics = learner.learn(rollout, 0.0)
        made.append((learner.updates, metrics.get("replay/episode_too_long", 0.0)))
    assert made == [(3, 0.0), (3, 1.0), (3, 0.0), (12, 0.0)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architecture": "memory"}, "architecture is 'memory' with memory 'none', expected markov"),
        ({"architecture": "markov", "memory": "gru"}, "architecture is 'markov' with memory 'gru'"),
        ({"memory": "gru", "n_step": 3}, "n_step does not work with memory"),
        ({"memory": "lstm", "prioritised": True}, "prioritised does not work with memory"),
        ({"sampled_seq_len": 0}, "sampled_seq_len is 0"),
        ({"memory": "gru", "sampled_seq_len": -1, "burn_in": 2}, "burn_in is 2, expected 0 with whole episodes"),
        ({"network": "cnn"}, "network is 'cnn'"),
        ({"batch_norm": True, "layer_norm": True}, "layer_norm does not work with batch_norm"),
        ({"batch_norm": True, "memory": "gru"}, "memory does not work with batch_norm"),
        ({"batch_norm": True, "target_rate": 0.01}, "target_rate does not work with batch_norm"),
        ({"batch_norm": True, "schedule": "overlap", "learner_threads": 2}, "learner_threads is 2, expected 1 with b"),
    ],
)
def test_contradictions_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        SAC(**changes)


@pytest.mark.parametrize(
    ("changes", "threads"),
    [
        ({}, 2),
        ({"schedule": "overlap"}, 1),
        ({"hidden": (64, 64)}, 1),
        ({"learner_threads": 3}, 3),
        ({"minibatch_size": 64}, 1),
        ({"memory": "gru", "hidden": (32, 32), "minibatch_size": 4}, 1),
        ({"memory": "gru", "hidden": (32, 32), "minibatch_size": 4, "sampled_seq_len": -1}, 2),
    ],
)
def test_threads_follow_from_the_settings_alone(changes: dict[str, Any], threads: int) -> None:
    assert SAC(**changes).threads == threads
