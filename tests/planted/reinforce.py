"""Bugs of REINFORCE, the smallest example."""

from __future__ import annotations

from tests.planted.bug import Bug

PACKAGE = "examples/third_party/reinforce/src/acme_reinforce"
ALGORITHM, POLICY, CONFIG = f"{PACKAGE}/algorithm.py", f"{PACKAGE}/policy.py", f"{PACKAGE}/config.py"

BUGS = (
    Bug(
        id="good-actions-become-less-likely",
        algorithm="reinforce",
        kind="targets",
        file=ALGORITHM,
        old="loss = -(log_prob * advantage).sum()",
        new="loss = (log_prob * advantage).sum()",
    ),
    Bug(
        id="returns-run-into-the-next-episode",
        algorithm="reinforce",
        kind="targets",
        file=ALGORITHM,
        old="later = reward[t] + gamma * later.masked_fill(ended[t], 0.0)",
        new="later = reward[t] + gamma * later",
    ),
    Bug(
        id="the-baseline-is-added",
        algorithm="reinforce",
        kind="targets",
        file=ALGORITHM,
        old="gain = gain - (gain * weight).sum()",
        new="gain = gain + (gain * weight).sum()",
    ),
    Bug(
        id="returns-leave-out-their-own-reward",
        algorithm="reinforce",
        kind="rows",
        file=ALGORITHM,
        old="        later = reward[t] + gamma * later.masked_fill(ended[t], 0.0)\n"
        "        result[t] = later.masked_fill(~known, 0.0)\n",
        new="        later = later.masked_fill(ended[t], 0.0)\n"
        "        result[t] = later.masked_fill(~known, 0.0)\n"
        "        later = reward[t] + gamma * later\n",
    ),
    Bug(
        id="steps-after-an-end-count-instead-of-those-before",
        algorithm="reinforce",
        kind="rows",
        file=ALGORITHM,
        old="complete = ended.flip(0).cumsum(0).flip(0).flatten().bool()",
        new="complete = ended.cumsum(0).flatten().bool()",
    ),
    Bug(
        id="rows-of-environments-are-mixed",
        algorithm="reinforce",
        kind="rows",
        file=ALGORITHM,
        old="rows = map_tensors(lambda leaf: leaf.flatten(0, 1), steps.observation)",
        new="rows = map_tensors(lambda leaf: leaf.transpose(0, 1).flatten(0, 1), steps.observation)",
    ),
    Bug(
        id="gamma-is-1",
        algorithm="reinforce",
        kind="settings",
        file=ALGORITHM,
        old="returns_to_go(steps.reward, ended, self.config.gamma)",
        new="returns_to_go(steps.reward, ended, 1.0)",
    ),
    Bug(
        id="the-hidden-layer-is-fixed",
        algorithm="reinforce",
        kind="settings",
        file=POLICY,
        old='mlp(self.encoder.features_dim, (hidden,), "tanh"), nn.Linear(hidden, actions.n)',
        new='mlp(self.encoder.features_dim, (32,), "tanh"), nn.Linear(32, actions.n)',
    ),
    Bug(
        id="filler-rows-have-returns",
        algorithm="reinforce",
        kind="fillers",
        file=ALGORITHM,
        old=".flatten().bool() & steps.valid.flatten()",
        new=".flatten().bool()",
    ),
    Bug(
        id="actions-of-reinforce-begin-at-0",
        algorithm="reinforce",
        kind="spaces",
        file=POLICY,
        old="return Act(action + self.start, (), ())",
        new="return Act(action, (), ())",
    ),
    Bug(
        id="a-softmax-policy-ignores-masks",
        algorithm="reinforce",
        kind="masks",
        file=POLICY,
        old="return Categorical.of(self.layers(self.encoder(observation.features)), observation.action_mask)",
        new="return Categorical.of(self.layers(self.encoder(observation.features)))",
    ),
    Bug(
        id="moments-are-not-restored",
        algorithm="reinforce",
        kind="resume",
        file=ALGORITHM,
        old='        self.optimizer.load_state_dict(state["optimizer"])',
        new="        pass",
    ),
    Bug(
        id="more-actions-are-claimed",
        algorithm="reinforce",
        kind="declarations",
        file=f"{PACKAGE}/rlsdk.toml",
        old='actions = ["Discrete"]',
        new='actions = ["Discrete", "MultiDiscrete"]',
    ),
    Bug(
        id="a-setting-is-not-explained",
        algorithm="reinforce",
        kind="declarations",
        file=CONFIG,
        old=', metadata=described("units of the hidden layer")',
        new="",
    ),
)
