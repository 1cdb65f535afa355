"""An independent SAC update in float64: plain formulas with autograd, one twin and one time step after the other."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

Weights = dict[str, Tensor]


@dataclass
class Reference:
    """The weights of a policy and of its target critics, and what the settings say."""

    weights: Weights
    target: Weights
    discrete: bool
    hidden: int  # number of hidden layers
    dropout: bool = False
    layer_norm: bool = False
    batch_norm: bool = False
    actor_memory: str = "none"
    critic_memory: str = "none"
    action_columns: tuple[int, int] = (0, 0)
    reward_columns: tuple[int, int] = (0, 0)
    action_scale: float = 1.0
    found: dict[str, float] = field(default_factory=dict)
    running: dict[tuple[str, int], Tensor] = field(default_factory=dict)  # statistics of batch normalisation, by twin

    # --- networks

    def encode(self, weights: Weights, prefix: str, seen: Tensor, memory: str) -> list[Tensor]:
        """Features of sequences [time, batch, n] or transitions [batch, n], as a list of what the heads read."""
        if memory == "none":
            return [seen]
        history = {name.removeprefix(f"{prefix}.history."): tensor for name, tensor in weights.items()}
        first, last = self.action_columns
        reward = self.reward_columns[0]
        others = [column for column in range(seen.shape[-1]) if not first <= column < last and column != reward]
        observed = seen[..., others]
        parts = [
            seen[..., first:last] * self.action_scale @ history["action.weight"].T + history["action.bias"],
            seen[..., reward : reward + 1] @ history["reward.weight"].T + history["reward.bias"],
            observed @ history["observation.weight"].T + history["observation.bias"],
        ]
        inputs = torch.cat(parts, -1).clamp(min=0.0)
        units = history["memory.weight_state"].shape[1]
        h = c = torch.zeros(seen.shape[1], units, dtype=torch.float64)
        outputs = []
        for rows in inputs:
            x = rows @ history["memory.weight_input"].T + history["memory.bias_input"]
            y = h @ history["memory.weight_state"].T + history["memory.bias_state"]
            if memory == "gru":
                r, z, n = x.chunk(3, 1)
                hr, hz, hn = y.chunk(3, 1)
                z = torch.sigmoid(z + hz)
                h = (1 - z) * torch.tanh(n + torch.sigmoid(r + hr) * hn) + z * h
            else:
                i, f, g, o = (x + y).chunk(4, 1)
                c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
                h = torch.sigmoid(o) * torch.tanh(c)
            outputs.append(h)
        return [torch.stack(outputs), observed]

    def actor(self, encoded: list[Tensor]) -> Tensor:
        weights, rows = self.weights, encoded[0]
        if len(encoded) == 2:
            embedded = encoded[1] @ weights["actor.join.embedding.weight"].T + weights["actor.join.embedding.bias"]
            rows = torch.cat([rows, embedded.clamp(min=0.0)], -1)
        for depth in range(self.hidden):
            name = f"actor.mlp.layers.{depth}"
            rows = (rows @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]).clamp(min=0.0)
        return rows @ weights["actor.head.weight"].T + weights["actor.head.bias"]

    def critics(
        self, weights: Weights, encoded: list[Tensor], actions: Tensor | None, dropout: Tensor | None
    ) -> list[Tensor]:
        with_action = encoded[-1] if actions is None else torch.cat([encoded[-1], actions], -1)
        rows = with_action
        if len(encoded) == 2:
            embedded = with_action @ weights["join.embedding.weight"].T + weights["join.embedding.bias"]
            rows = torch.cat([encoded[0], embedded.clamp(min=0.0)], -1)
        if self.batch_norm:
            return [self._twin_by_running_statistics(weights, twin, rows) for twin in (0, 1)]
        return [self._twin(weights, twin, rows, dropout) for twin in (0, 1)]

    def joint_critics(self, weights: Weights, rows: Tensor) -> list[Tensor]:
        """Both critics on a whole batch, normalised by its statistics; `found` gets the running ones after it."""
        outputs = []
        for twin in (0, 1):
            values = rows
            for depth in range(self.hidden + 1):
                values = values.clamp(min=0.0) if depth else values
                mean, variance = values.mean(0), values.var(0, correction=0)
                for name, new in (("mean", mean), ("variance", values.var(0, correction=1))):
                    old = weights[f"twins.{name}_{depth}"][twin, 0].detach()
                    self.running[f"critics.twins.{name}_{depth}", twin] = 0.99 * old + 0.01 * new.detach()
                values = self._normalised_layer(weights, twin, depth, values, mean, variance)
            outputs.append(values)
        return outputs

    def _normalised_layer(
        self, weights: Weights, twin: int, depth: int, rows: Tensor, mean: Tensor, variance: Tensor
    ) -> Tensor:
        rows = (rows - mean) / (variance + 1e-5).sqrt()
        rows = rows * weights[f"twins.gains.{depth}"][twin, 0] + weights[f"twins.shifts.{depth}"][twin, 0]
        return rows @ weights[f"twins.weights.{depth}"][twin].T + weights[f"twins.biases.{depth}"][twin, 0]

    def _twin_by_running_statistics(self, weights: Weights, twin: int, rows: Tensor) -> Tensor:
        for depth in range(self.hidden + 1):
            mean, variance = (self.running[f"critics.twins.{name}_{depth}", twin] for name in ("mean", "variance"))
            rows = rows.clamp(min=0.0) if depth else rows
            rows = self._normalised_layer(weights, twin, depth, rows, mean, variance)
        return rows

    def _twin(self, weights: Weights, twin: int, rows: Tensor, dropout: Tensor | None) -> Tensor:
        used = 0
        for depth in range(self.hidden):
            rows = rows @ weights[f"twins.weights.{depth}"][twin].T + weights[f"twins.biases.{depth}"][twin, 0]
            width = rows.shape[-1]
            if dropout is not None:
                rows = rows * dropout[..., used + twin * width : used + (twin + 1) * width]
                used += 2 * width
            if self.layer_norm:
                centred = rows - rows.mean(-1, keepdim=True)
                rows = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
                rows = rows * weights[f"twins.gains.{depth}"][twin, 0] + weights[f"twins.shifts.{depth}"][twin, 0]
            rows = rows.clamp(min=0.0)
        last = self.hidden
        return rows @ weights[f"twins.weights.{last}"][twin].T + weights[f"twins.biases.{last}"][twin, 0]

    # --- expectations over actions

    def expected(self, parameters: Tensor, noise: Tensor | None, mask: Tensor | None) -> tuple[Any, Tensor, Tensor]:
        """Actions, probabilities and log-probabilities, [..., choice] each."""
        if self.discrete:
            if mask is not None:
                mask = mask | ~mask.any(-1, keepdim=True)
                parameters = parameters.masked_fill(~mask, -1e300)
            probs = torch.softmax(parameters, -1)
            log_probs = torch.where(probs > 0, probs, torch.ones_like(probs)).log()
            return None, probs, log_probs
        assert noise is not None
        mean, log_std = parameters.chunk(2, -1)
        normal = torch.distributions.Normal(mean, log_std.clamp(-20, 2).exp())
        drawn = mean + normal.scale * noise
        log_probs = normal.log_prob(drawn) - torch.log(1 - torch.tanh(drawn) ** 2)
        return torch.tanh(drawn), torch.ones(1, dtype=torch.float64), log_probs.sum(-1, keepdim=True)

    def of_critics(self, weights: Weights) -> Weights:
        prefix = "critics."
        return {name.removeprefix(prefix): tensor for name, tensor in weights.items() if name.startswith(prefix)}

    # --- losses

    def losses(self, batch: Mapping[str, Any], target_entropy: Tensor | float) -> tuple[Tensor, Tensor]:
        """The critics' loss and what the temperature is judged by; `batch` holds float64 tensors."""
        alpha, critics = self.weights["temperature.log"].detach().exp(), self.of_critics(self.weights)
        with torch.no_grad():
            features = self._following(batch, self.weights, "actor.encoder", self.actor_memory)
            actions, probs, log_probs = self.expected(self.actor(features), batch["noise"][1], batch["masks"])
        stored = None if self.discrete else batch["actions"]
        if self.batch_norm:
            inputs, rows = torch.cat([batch["now"], batch["following"]]), len(batch["now"])
            if stored is not None:
                inputs = torch.cat([inputs, torch.cat([stored, actions])], 1)
            joint = self.joint_critics(critics, inputs)
            of_stored, led_to = [values[:rows] for values in joint], [values[rows:].detach() for values in joint]
        else:
            now = self._now(batch, critics, "encoder", self.critic_memory)
            of_stored = self.critics(critics, now, stored, batch["dropout"][0])
            features = self._following(batch, self.target, "encoder", self.critic_memory)
            led_to = self.critics(self.target, features, actions, batch["dropout"][1])
        with torch.no_grad():
            values = torch.minimum(*led_to)
            soft = (probs * (values - alpha * log_probs)).sum(-1)
            targets = batch["returns"] + batch["discounts"] * soft
        self.found["targets"] = float(targets.mean())
        loss: Tensor = torch.zeros(())
        self.found["train/q_value"] = 0.0
        for values in of_stored:
            chosen = values.gather(-1, batch["actions"].unsqueeze(-1)) if self.discrete else values
            loss = loss + 0.5 * (batch["weights"] * (chosen.squeeze(-1) - targets) ** 2).sum()
            self.found["train/q_value"] += 0.5 * self._mean(chosen.squeeze(-1), batch)
        return loss, targets

    def actor_losses(self, batch: Mapping[str, Any], target_entropy: Tensor | float) -> tuple[Tensor, Tensor]:
        """The actor's loss, with the critics after their step, and the temperature's loss."""
        log_alpha, critics = self.weights["temperature.log"], self.of_critics(self.weights)
        alpha = log_alpha.detach().exp()
        features = self._now(batch, self.weights, "actor.encoder", self.actor_memory)
        actions, probs, log_probs = self.expected(self.actor(features), batch["noise"][0], batch["allowed"])
        now = self._now(batch, critics, "encoder", self.critic_memory)
        values = torch.minimum(*self.critics(critics, now, actions, batch["dropout"][2]))
        loss = (batch["weights"] * (probs * (alpha * log_probs - values)).sum(-1)).sum()
        entropies = (probs * log_probs).sum(-1).detach()
        self.found["train/entropy"] = -self._mean(entropies, batch)
        return loss, -log_alpha * (batch["weights"] * (entropies + target_entropy)).sum()

    def _mean(self, values: Tensor, batch: Mapping[str, Any]) -> float:
        return float((values.detach() * batch["weights"]).sum() / batch["weights"].sum())

    def _now(self, batch: Mapping[str, Any], weights: Weights, prefix: str, memory: str) -> list[Tensor]:
        if "seen" not in batch:
            return self.encode(weights, prefix, batch["now"], memory)
        return [part[:-1] for part in self.encode(weights, prefix, batch["seen"], memory)]

    def _following(self, batch: Mapping[str, Any], weights: Weights, prefix: str, memory: str) -> list[Tensor]:
        if "seen" not in batch:
            return self.encode(weights, prefix, batch["following"], memory)
        return [part[1:] for part in self.encode(weights, prefix, batch["seen"], memory)]


def part_of_even_choice(mask: Tensor | None, actions: int) -> Tensor | float:
    """The default target entropy of Discrete actions."""
    if mask is None:
        return 0.7 * math.log(actions)
    count = mask.sum(-1)
    return 0.7 * torch.where(count > 0, count, actions).double().log()
