"""SRNN with amortized variational filtering (K = 1) in PyTorch, with the weights of ours.

The algorithm is that of `varfilter.learning`: q starts at the prior, is revised once by the
highway network from dF/dq, the z that is passed on is cut from the graph, theta learns from F at
the final q, and phi from F at the revised q. Two ways to learn from it are written:

- `Loop`: one tape through the loop over time, as a user of PyTorch would write it first, and as
  the paper's code does. One step of phi in an update.
- `Parallel`: the filter without a tape, cuDNN's LSTM over all steps at once, and all else of
  theta and phi for all steps and sequences together. Any number of steps of phi.

The noise is drawn in one call before the loop, or given. Where the peer could be given an
advantage it has it: the probability of a quantised value is a short series, right where a bin is
narrow beside the standard deviation (ours has three forms, for all cases), no gradient is tested
for being finite, and Adam is one fused kernel.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import varfilter as vf
from varfilter.experiments import Adam
from varfilter.inference import Gradients, Highway, LayerNorm
from varfilter.models.heads import BernoulliHead, VaryingNormalHead

LOG_2PI = math.log(2.0 * math.pi)
Normal = tuple[Tensor, Tensor]  # mean and log-variance


class Theta(nn.Module):
    """The model: prior, decoder, and the LSTM over the observations."""

    def __init__(self, model: vf.SRNN):
        super().__init__()
        lstm = model.lstm
        self.lstm = nn.LSTM(lstm.in_size, lstm.hidden_size)
        weights = {
            "weight_ih_l0": lstm.input_weight, "weight_hh_l0": lstm.hidden_weight,
            "bias_ih_l0": lstm.input_bias, "bias_hh_l0": lstm.hidden_bias,
        }  # fmt: skip
        with torch.no_grad():
            for name, value in weights.items():
                getattr(self.lstm, name).copy_(_tensor(value))
        self.h0, self.c0, self.z0 = (
            nn.Parameter(_tensor(value))
            for value in (lstm.initial_hidden, lstm.initial_cell, model.z0)
        )
        self.prior_trunk = _stack(model.prior_trunk.layers)
        self.prior_mean, self.prior_log_var = (
            _linear(layer) for layer in (model.prior_head.mean, model.prior_head.log_var)
        )
        self.decoder = _stack(model.decoder.layers)
        head = model.head
        if isinstance(head, BernoulliHead):
            self.logits, self.width = _linear(head.logits), None
        elif isinstance(head, VaryingNormalHead) and head.width is not None:
            self.x_mean, self.x_log_var = _linear(head.mean), _linear(head.log_var)
            self.width, self.log_var_range = head.width, head.log_var_range
        else:
            raise TypeError(f"The peer has no head `{type(head).__name__}`.")

    def start(self, x0: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(h, c) after the first frame, and z before the first step."""
        count = x0.shape[0]
        first = self.h0.expand(count, -1), self.c0.expand(count, -1)
        return *self.advance(x0, first), self.z0.expand(count, -1)

    def advance(self, x: Tensor, hidden: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """One step of the LSTM."""
        cell = self.lstm
        return torch.lstm_cell(
            x, hidden, cell.weight_ih_l0, cell.weight_hh_l0, cell.bias_ih_l0, cell.bias_hh_l0
        )

    def hidden(self, x0: Tensor, xs: Tensor) -> Tensor:
        """h of all scored steps at once, (time, batch, units)."""
        inputs = torch.cat([x0[None], xs[:-1]])
        first = tuple(v.expand(1, x0.shape[0], -1).contiguous() for v in (self.h0, self.c0))
        return self.lstm(inputs, first)[0]

    def prior(self, h: Tensor, z: Tensor) -> Normal:
        """p(z_t | z_{t-1}, x_<t)."""
        units = self.prior_trunk(torch.cat([h, z], -1))
        return self.prior_mean(units), self.prior_log_var(units).clamp(-15.0, 5.0)

    def log_likelihood(self, h: Tensor, z: Tensor, x: Tensor) -> Tensor:
        """log p(x_t | z_t, x_<t)."""
        units = self.decoder(torch.cat([h, z], -1))
        if self.width is None:
            logits = self.logits(units)
            return (x * logits - functional.softplus(logits)).sum(-1)
        # The integral of the density over a bin of half-width h standard deviations, c of them from
        # the mean, is phi(c) 2 h (1 + (c^2 - 1) h^2 / 6), up to terms in (c h)^4.
        log_var = self.x_log_var(units).clamp(*self.log_var_range)
        precision = torch.exp(-0.5 * log_var)
        c_squared = ((x - self.x_mean(units)) * precision) ** 2
        bend = (c_squared - 1.0) * (0.5 * self.width * precision) ** 2 / 6.0
        terms = LOG_2PI - 2.0 * math.log(self.width) + log_var + c_squared - 2.0 * torch.log1p(bend)
        return -0.5 * terms.sum(-1)

    def free_energy(self, q: Normal, p: Normal, h: Tensor, x: Tensor, noise: Tensor) -> Tensor:
        """F_t, averaged over the draws that `noise`, (draws, ..., latent), makes."""
        z = q[0] + torch.exp(0.5 * q[1]) * noise
        log_likelihood = self.log_likelihood(h.expand(*z.shape[:-1], -1), z, x)
        log_ratio = q[1] - p[1]
        square = (q[0] - p[0]) ** 2 * torch.exp(-p[1])
        kl = 0.5 * (torch.expm1(log_ratio) - log_ratio + square).sum(-1)
        return kl - log_likelihood.mean(0)


class Phi(nn.Module):
    """The network that revises q."""

    def __init__(self, inference: vf.Iterative):
        super().__init__()
        parts = (inference.signal, inference.normalize, inference.update)
        if not all(map(isinstance, parts, (Gradients, LayerNorm, Highway))):
            raise TypeError("The peer is the paper's network: gradients, layer norm, highway.")
        trunk, update = inference.trunk, inference.update
        self.encode_observation = inference.encode_observation
        self.carry = _linear(trunk.carry)
        self.layers = nn.ModuleList(map(_linear, trunk.layers))
        self.gates = nn.ModuleList(map(_linear, trunk.gates))
        self.candidate, self.gate = _linear(update.candidate), _linear(update.gate)

    def revise(self, q: Normal, signal: Normal, x: Tensor) -> Normal:
        """The next q."""
        inputs = [_normalised(term) for term in (*signal, *q)]
        units = torch.cat([*inputs, x] if self.encode_observation else inputs, -1)
        carried = self.carry(units)
        for layer, gate in zip(self.layers, self.gates, strict=True):
            g = torch.sigmoid(gate(units))
            units = g * carried + (1.0 - g) * functional.elu(layer(units))
            carried = units
        g = torch.sigmoid(self.gate(units))
        revised = g * torch.cat(q, -1) + (1.0 - g) * self.candidate(units)
        mean, log_var = revised.chunk(2, -1)
        return mean, log_var.clamp(-15.0, 5.0)


class _Update:
    """One training update on a batch that stays; subclasses say how it learns."""

    num_draws: int

    def __init__(
        self,
        model: vf.SRNN,
        inference: vf.Iterative,
        xs: Any,
        x0: Any,
        *,
        theta: Adam,
        phi: Adam,
        num_phi_steps: int,
        device: str,
    ):
        self.theta, self.phi = Theta(model).to(device), Phi(inference).to(device)
        self.xs = _tensor(xs).transpose(0, 1).contiguous().to(device)
        self.x0 = _tensor(x0).to(device)
        self.num_draws, self.num_phi_steps = inference.num_samples, num_phi_steps
        self.theta_parameters = list(self.theta.parameters())
        self.phi_parameters = list(self.phi.parameters())
        self.optimizers = [
            _Optimizer(self.theta_parameters, theta, device),
            _Optimizer(self.phi_parameters, phi, device),
        ]

    def noise(self) -> Tensor:
        """Standard normals, (time, draws of the signal + 2, batch, latent)."""
        time, batch = self.xs.shape[:2]
        shape = (time, self.num_draws + 2, batch, self.theta.z0.shape[0])
        return torch.randn(shape, device=self.xs.device)

    def signal(
        self, p: Normal, h: Tensor, x: Tensor, noise: Tensor
    ) -> tuple[Normal, Normal, Tensor]:
        """(q_0, dF/dq at it, F at it): q_0 is the prior, cut from the graph."""
        q = (p[0].detach().requires_grad_(), p[1].detach().requires_grad_())
        fixed = (p[0].detach(), p[1].detach())
        with torch.enable_grad():
            value = self.theta.free_energy(q, fixed, h.detach(), x, noise[: self.num_draws])
            mean, log_var = torch.autograd.grad(value.sum(), q)
        return (q[0].detach(), q[1].detach()), (mean, log_var), value.detach()

    def __call__(self, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Make an update; returns the mean F at the prior and at the final q."""
        raise NotImplementedError

    @torch.no_grad()
    def free_energies(self, noise: Tensor) -> tuple[float, float]:
        """The mean F at the prior and at the final q, without an update."""
        h, c, z = self.theta.start(self.x0)
        first, last = [], []
        for x, eps in zip(self.xs, noise, strict=True):
            p = self.theta.prior(h, z)
            q, signal, value = self.signal(p, h, x, eps)
            q = self.phi.revise(q, signal, x)
            first.append(value.mean())
            last.append(self.theta.free_energy(q, p, h, x, eps[-2:-1]).mean())
            z = q[0] + torch.exp(0.5 * q[1]) * eps[-2]
            h, c = self.theta.advance(x, (h, c))
        return float(torch.stack(first).mean()), float(torch.stack(last).mean())


class Loop(_Update):
    """Learn by one tape through the loop over time."""

    def __call__(self, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Make an update."""
        noise = self.noise() if noise is None else noise
        h, c, z = self.theta.start(self.x0)
        first, theta_losses, phi_losses = [], [], []
        for x, eps in zip(self.xs, noise, strict=True):
            p = self.theta.prior(h, z)
            q, signal, value = self.signal(p, h, x, eps)
            q = self.phi.revise(q, signal, x)
            final = (q[0].detach(), q[1].detach())
            theta_losses.append(self.theta.free_energy(final, p, h, x, eps[-2:-1]).mean())
            fixed = (p[0].detach(), p[1].detach())
            phi_losses.append(self.theta.free_energy(q, fixed, h.detach(), x, eps[-1:]).mean())
            z = final[0] + torch.exp(0.5 * final[1]) * eps[-2]
            h, c = self.theta.advance(x, (h, c))
            first.append(value.mean())
        theta_loss = torch.stack(theta_losses).mean()
        theta_gradient = _gradient(theta_loss, self.theta_parameters)
        phi_gradient = _gradient(torch.stack(phi_losses).mean(), self.phi_parameters)
        self.optimizers[0].step(theta_gradient)
        self.optimizers[1].step(phi_gradient)
        return torch.stack(first).mean(), theta_loss.detach()


class Parallel(_Update):
    """Learn from all steps and sequences at once, after filtering without a tape."""

    def __call__(self, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Make an update."""
        noise = self.noise() if noise is None else noise
        hs = self.theta.hidden(self.x0, self.xs)
        fixed_hs = hs.detach()
        z = first_z = self.theta.z0.expand(self.x0.shape[0], -1)
        recorded, first = [], []
        with torch.no_grad():
            for x, h, eps in zip(self.xs, fixed_hs, noise, strict=True):
                q, signal, value = self.signal(self.theta.prior(h, z), h, x, eps)
                final = self.phi.revise(q, signal, x)
                z = final[0] + torch.exp(0.5 * final[1]) * eps[-2]
                recorded.append((*q, *signal, *final, z))
                first.append(value.mean())
        *recorded, zs = (torch.stack(each) for each in zip(*recorded, strict=True))
        q, signal, final = ((recorded[i], recorded[i + 1]) for i in (0, 2, 4))

        p = self.theta.prior(hs, torch.cat([first_z[None], zs[:-1]]))
        theta_loss = self.theta.free_energy(final, p, hs, self.xs, noise[None, :, -2]).mean()
        theta_gradient = _gradient(theta_loss, self.theta_parameters)

        flat = [
            t.detach().flatten(0, 1)
            for t in (*q, *signal, *p, fixed_hs, self.xs, noise[:, -1])
        ]  # fmt: skip
        if self.num_phi_steps > 1:
            order = torch.rand(flat[0].shape[0], device=self.xs.device).argsort()
            flat = [t[order] for t in flat]
        slices = zip(*(t.chunk(self.num_phi_steps) for t in flat), strict=True)
        # theta's step comes after: the problems of phi are those of the model that filtered.
        for q_mean, q_log_var, g_mean, g_log_var, p_mean, p_log_var, h, x, eps in slices:
            revised = self.phi.revise((q_mean, q_log_var), (g_mean, g_log_var), x)
            loss = self.theta.free_energy(revised, (p_mean, p_log_var), h, x, eps[None]).mean()
            self.optimizers[1].step(_gradient(loss, self.phi_parameters))
        self.optimizers[0].step(theta_gradient)
        return torch.stack(first).mean(), theta_loss.detach()


class _Optimizer:
    """Adam as the experiment has it."""

    def __init__(self, parameters: list[nn.Parameter], adam: Adam, device: str):
        kind = torch.optim.AdamW if adam.weight_decay else torch.optim.Adam
        self.parameters, self.clip_norm = parameters, adam.clip_norm
        self.optimizer = kind(
            parameters,
            lr=adam.learning_rate,
            eps=adam.epsilon,
            weight_decay=adam.weight_decay,
            fused=True,
            capturable=device != "cpu",
        )

    def step(self, gradient: tuple[Tensor, ...]) -> None:
        for parameter, each in zip(self.parameters, gradient, strict=True):
            parameter.grad = each
        if self.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.parameters, self.clip_norm)
        self.optimizer.step()


def captured(update: _Update) -> Callable[[], Any]:
    """The whole update as one CUDA graph; a call replays it, with noise of its own."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            update()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = update()

    def replay() -> Any:
        graph.replay()
        return results

    return replay


def noise_of(key: Any, batch: int, time: int, latent: int, draws: int) -> Tensor:
    """The standard normals that `TimeParallel.update` draws from `key`, as a peer takes them.

    Sequences have keys of their own, step t folds in t; each step draws for the signal, for the
    final q and, when phi learns, for the revised q.
    """

    def normal(key: Any) -> jax.Array:
        return jax.random.normal(key, (latent,))

    def step(key: Any, t: jax.Array) -> jax.Array:
        key_infer, key_sample = jax.random.split(jax.random.fold_in(key, t))
        keys = [
            jax.random.split(jax.random.fold_in(key_infer, 0), draws),
            jax.random.split(key_sample, 1),
            jax.random.split(jax.random.fold_in(key_sample, 0), 1),
        ]
        return jax.vmap(normal)(jax.numpy.concatenate(keys))

    key_filter, _ = jax.random.split(key)
    over_batch = jax.vmap(step, in_axes=(0, None), out_axes=1)
    over_time = jax.vmap(over_batch, in_axes=(None, 0))
    keys = jax.random.split(key_filter, batch)
    return _tensor(over_time(keys, jax.numpy.arange(time)))


def _gradient(loss: Tensor, parameters: list[nn.Parameter]) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss, parameters)


def _normalised(term: Tensor) -> Tensor:
    centred = term - term.mean(-1, keepdim=True)
    return centred / (term.std(-1, keepdim=True) + 1e-7)


class _ClippedLeakyReLU(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return functional.leaky_relu(x, 1 / 3).clamp(-3.0, 3.0)


def _stack(layers: Any) -> nn.Sequential:
    return nn.Sequential(
        *(part for layer in layers for part in (_linear(layer), _ClippedLeakyReLU()))
    )


def _linear(layer: Any) -> nn.Linear:
    size_out, size_in = layer.weight.shape
    made = nn.Linear(size_in, size_out)
    with torch.no_grad():
        made.weight.copy_(_tensor(layer.weight))
        made.bias.copy_(_tensor(layer.bias))
    return made


def _tensor(array: Any) -> Tensor:
    return torch.from_numpy(np.array(array, np.float32))
