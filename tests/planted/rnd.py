"""Bugs of random network distillation, the example with a reward of its own."""

from __future__ import annotations

from tests.planted.bug import Bug

PACKAGE = "examples/third_party/random-network-distillation/src/acme_rnd"
ALGORITHM, NETWORKS = f"{PACKAGE}/algorithm.py", f"{PACKAGE}/networks.py"

BUGS = (
    Bug(
        id="the-predictor-forgets",
        algorithm="rnd",
        kind="targets",
        file=ALGORITHM,
        old="- config.ent_coef * chosen.entropy().mean() + distillation",
        new="- config.ent_coef * chosen.entropy().mean() - distillation",
    ),
    Bug(
        id="terminations-are-ignored",
        algorithm="rnd",
        kind="targets",
        file=ALGORITHM,
        old="alive = config.gamma * (~steps.terminated).float()",
        new="alive = torch.full_like(steps.reward, config.gamma)",
    ),
    Bug(
        id="the-two-values-learn-each-other-s-targets",
        algorithm="rnd",
        kind="targets",
        file=ALGORITHM,
        old="target = torch.stack([own + extrinsic, curious + intrinsic])",
        new="target = torch.stack([curious + intrinsic, own + extrinsic])",
    ),
    Bug(
        id="intrinsic-coef-is-ignored",
        algorithm="rnd",
        kind="settings",
        file=ALGORITHM,
        old="config.extrinsic_coef * own + config.intrinsic_coef * curious",
        new="config.extrinsic_coef * own + curious",
    ),
    Bug(
        id="the-norm-of-gradients-is-not-bounded",
        algorithm="rnd",
        kind="settings",
        file=ALGORITHM,
        old="self.optimizer.step(config.learning_rate, config.max_grad_norm)",
        new="self.optimizer.step(config.learning_rate)",
    ),
    Bug(
        id="the-predictor-is-not-trained",
        algorithm="rnd",
        kind="training",
        file=ALGORITHM,
        old="trained = [*policy.parameters(), *novelty.predictor.parameters()]",
        new="trained = [*policy.parameters()]",
    ),
    Bug(
        id="another-random-network-after-loading",
        algorithm="rnd",
        kind="resume",
        file=ALGORITHM,
        old='        self.novelty.load_state_dict(state["novelty"])\n',
        new="",
    ),
    Bug(
        id="the-scale-of-the-bonus-begins-again",
        algorithm="rnd",
        kind="resume",
        file=ALGORITHM,
        old='        self.return_square.copy_(state["return_square"])\n',
        new="",
    ),
    Bug(
        id="filler-rows-take-part",
        algorithm="rnd",
        kind="fillers",
        file=ALGORITHM,
        old="torch.split(order[rows.valid[order]], self.config.batch_size)",
        new="torch.split(order, self.config.batch_size)",
    ),
)
