"""Bugs of the packages in `contrib_algos`, in what their `reference.py` states."""

from __future__ import annotations

from tests.planted.bug import Bug

A2C, ACER, ACKTR, BC, DDPG, GAIL, TD3_BC = (
    f"contrib_algos/rlsdk-{name}/src/rlsdk_{name.replace('-', '_')}"
    for name in ("a2c", "acer", "acktr", "bc", "ddpg", "gail", "td3-bc")
)

BUGS = (
    Bug(
        id="gamma-and-lambda-of-a2c-change-places",
        algorithm="a2c",
        kind="targets",
        file=f"{A2C}/algorithm.py",
        old="gamma=config.gamma, lam=config.gae_lambda",
        new="gamma=config.gae_lambda, lam=config.gamma",
    ),
    Bug(
        id="importance-weights-of-acer-are-not-truncated",
        algorithm="acer",
        kind="targets",
        file=f"{ACER}/policy_gradient.py",
        old="weight = states.of_action(ratios).clamp(max=clip) * (states.target - value)",
        new="weight = states.of_action(ratios) * (states.target - value)",
    ),
    Bug(
        id="traces-of-acer-use-the-weight-of-this-step",
        algorithm="acer",
        kind="rows",
        file=f"{ACER}/targets.py",
        old="trace = torch.cat([estimated.ratio[1:].clamp(max=1.0), torch.zeros_like(reward[:1])])",
        new="trace = torch.cat([estimated.ratio[:-1].clamp(max=1.0), torch.zeros_like(reward[:1])])",
    ),
    Bug(
        id="damping-is-added-to-each-factor",
        algorithm="acktr",
        kind="targets",
        file=f"{ACKTR}/blocks.py",
        old="return torch.outer(outputs, inputs) + damping",
        new="return torch.outer(outputs + damping, inputs + damping)",
    ),
    Bug(
        id="averages-of-factors-begin-at-0",
        algorithm="acktr",
        kind="targets",
        file=f"{ACKTR}/blocks.py",
        old="keep = min(1.0 - 1.0 / self.count, decay)",
        new="keep = decay",
    ),
    Bug(
        id="returns-of-recorded-steps-are-not-discounted",
        algorithm="bc",
        kind="targets",
        file=f"{BC}/data.py",
        old="total = reward + self.gamma * total",
        new="total = reward + total",
    ),
    Bug(
        id="squared-errors-of-actions-are-averaged",
        algorithm="bc",
        kind="targets",
        file=f"{BC}/losses.py",
        old="(action_part - part.mean).square().sum(-1)",
        new="(action_part - part.mean).square().mean(-1)",
    ),
    Bug(
        id="targets-of-ddpg-have-clipped-noise",
        algorithm="ddpg",
        kind="targets",
        file=f"{DDPG}/config.py",
        old="    target_policy_noise: ClassVar[float] = 0.0\n    target_noise_clip: ClassVar[float] = 0.0\n",
        new="    target_policy_noise: ClassVar[float] = 0.2\n    target_noise_clip: ClassVar[float] = 0.5\n",
    ),
    Bug(
        id="the-discriminator-is-rewarded-for-errors",
        algorithm="gail",
        kind="targets",
        file=f"{GAIL}/loss.py",
        old="return softplus(-expert).mean() + softplus(policy).mean()",
        new="return softplus(expert).mean() + softplus(-policy).mean()",
    ),
    Bug(
        id="gradients-of-the-discriminator-are-pulled-to-0",
        algorithm="gail",
        kind="targets",
        file=f"{GAIL}/loss.py",
        old="return (norm - 1.0).square().mean()",
        new="return norm.square().mean()",
    ),
    Bug(
        id="lambda-is-divided-by-the-mean-of-values",
        algorithm="td3-bc",
        kind="targets",
        file=f"{TD3_BC}/algorithm.py",
        old="weight = self.alpha / values.abs().mean()",
        new="weight = self.alpha / values.mean().abs()",
    ),
    Bug(
        id="cloning-sums-over-the-dimensions-of-actions",
        algorithm="td3-bc",
        kind="targets",
        file=f"{TD3_BC}/algorithm.py",
        old="error * (2.0 / error.numel()) - grad",
        new="error * (2.0 / len(error)) - grad",
    ),
)
