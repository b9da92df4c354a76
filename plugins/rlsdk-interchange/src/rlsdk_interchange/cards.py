"""Model cards: pages in Markdown about an agent, with a header that model hubs read.

The header follows the model-index format of Hugging Face, as its library `huggingface_hub` reads and writes it: task, dataset
(here: the environment) and metrics.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import attrs

from rlsdk.agent import Agent, system_info
from rlsdk.runs import RunDirectory, read_metric
from rlsdk.runtime import counted
from rlsdk.settings import flat_scalars

IN_CARDS = "Trained with rlsdk for"
"""Text that identifies a model card: every model card contains it."""
TASK = "reinforcement-learning"


@attrs.frozen
class Results:
    """The returns of an evaluation: mean and standard deviation over its episodes, which used deterministic actions."""

    mean: float
    std: float
    episodes: int
    is_best: bool = False
    """Whether it is the best evaluation during training. The score of a chosen evaluation is too high on average."""

    def sentence(self) -> str:
        """Return the results as a sentence."""
        chosen = ", the best evaluation during training" if self.is_best else ""
        return f"Mean return {self.mean:.2f} +- {self.std:.2f} over {counted(self.episodes, 'deterministic episode')}{chosen}."


def results_of(file: Path) -> Results | None:
    """Return the evaluation of an agent of a run, `final.rlsdk` or `best.rlsdk`; None for other files.

    Raises:
        SettingsError: the record of the run is damaged.
    """
    directory = RunDirectory(file.parent)
    if not directory.record.is_file() or file not in (directory.final, directory.best):
        return None
    record = directory.read_record()
    if file == directory.best and math.isfinite(best := directory.best_evaluation()):
        means, deviations = (read_metric(directory.csv, f"eval/{name}_reward")[1] for name in ("mean", "std"))
        # NaN for a file of metrics without the deviations, such as one that a user has changed
        std = dict(zip(means, deviations, strict=False)).get(best, math.nan)
        return Results(best, std, record.eval_episodes, is_best=True)
    if file == directory.best or (final := record.final_evaluation) is None:
        return None
    return Results(final.mean, final.std, final.episodes)


def model_card(agent: Agent, *sections: str, results: Results | None = None, replay: str | None = None) -> str:
    """Return a page in Markdown about an agent: its training and results, spaces, settings and versions.

    Args:
        agent: the agent.
        sections: further texts, such as that of `usage`.
        results: its evaluation, if there is one.
        replay: the name of the video beside the page, if there is one.
    """
    spec, context = agent.spec, agent.context
    settings = "\n".join(f"| `{name}` | {value} |" for name, value in sorted(flat_scalars(agent.config).items()))
    versions = ", ".join(f"{name} {value}" for name, value in system_info().items())
    unit = "updates" if agent.parts.plan.unit == "updates" else "environment steps"
    lines = [
        _header(agent, results),
        f"# {spec.id} on {agent.env_name or 'a custom environment'}",
        *([f"![An episode of the agent]({replay})"] if replay and replay.endswith(".gif") else []),
        f"{IN_CARDS} {agent.num_timesteps:,} {unit}, seed {agent.seed}.",
        f"Observations: `{context.observation_space}`. Actions: `{context.action_space}`.",
        *([f"## Results\n\n{results.sentence()}"] if results else []),
        *sections,
        f"## Settings\n\n| setting | value |\n|---|---|\n{settings}",
        f"## Made with\n\n{versions}",
    ]
    return "\n\n".join(lines) + "\n"


def _header(agent: Agent, results: Results | None) -> str:
    """Return the YAML at the start of a card. Texts are written as JSON, which YAML reads as the same text."""
    env = agent.env_name or "custom environment"
    tags = (TASK, "deep-reinforcement-learning", "rlsdk", agent.spec.id, _identifier(env))
    lines = ["library_name: rlsdk", f"pipeline_tag: {TASK}", "tags:", *(f"- {json.dumps(tag)}" for tag in tags)]
    if results is not None:
        spread = f" +/- {results.std:.2f}" if math.isfinite(results.std) else ""
        lines += [
            *("model-index:", f"- name: {json.dumps(agent.spec.id)}", "  results:"),
            *("  - task:", f"      type: {TASK}", f"      name: {TASK}"),
            *("    dataset:", f"      type: {json.dumps(_identifier(env))}", f"      name: {json.dumps(env)}"),
            *("    metrics:", "    - type: mean_reward", f"      value: {json.dumps(f'{results.mean:.2f}{spread}')}"),
            "      name: mean_reward",
        ]
    return "\n".join(("---", *lines, "---"))


def _identifier(env: str) -> str:
    """Return an environment id with the characters that hubs accept in identifiers."""
    return re.sub(r"[^\w./-]+", "-", env).strip("-")


def usage(repo: str, package: str) -> str:
    """Return the lines that load and play the agent of a hub's repository, in Python and on the command line.

    Args:
        repo: the repository, as `owner/name`.
        package: the package of the algorithm.
    """
    return f"""## Use it

This needs the packages rlsdk, {package}, rlsdk-interchange with its extra `hub`, and for `watch` rlsdk-lab.

```python
import rlsdk
from rlsdk_interchange import pull

model = rlsdk.load(pull("{repo}"))
action, state = model.predict(observation, deterministic=True)  # an observation of the environment
```

```
rlsdk pull {repo} --out agent.rlsdk
rlsdk eval agent.rlsdk
rlsdk watch agent.rlsdk
```"""
