"""Muon: momentum with orthogonalised updates, for the matrices in the blocks."""

import torch


def orthogonal(update, steps=5):
    """Newton-Schulz iteration: moves the singular values of a matrix towards 1."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = update.float()
    wide = x.shape[0] <= x.shape[1]
    x = x if wide else x.T
    x = x / (x.norm() + 1e-7)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x if wide else x.T).to(update.dtype)


class Muon(torch.optim.Optimizer):
    def __init__(self, parameters, lr, momentum=0.95):
        super().__init__(parameters, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["velocity"] = torch.zeros_like(parameter)
                velocity = state["velocity"]
                velocity.lerp_(parameter.grad, 1 - group["momentum"])
                update = orthogonal(parameter.grad.lerp(velocity, group["momentum"]))
                # A tall matrix gets a larger step, so that all outputs change equally.
                scale = max(1.0, parameter.shape[0] / parameter.shape[1]) ** 0.5
                parameter.add_(update, alpha=-group["lr"] * scale)
