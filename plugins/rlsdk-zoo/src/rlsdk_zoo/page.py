"""The tables of this package's README. `python -m rlsdk_zoo.page README.md` updates them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from rlsdk import algorithms
from rlsdk.registry import preset_names
from rlsdk_zoo.installed import ZooAgent, agents
from rlsdk_zoo.make import ZOO, recipes, seeds


def page(text: str) -> str:
    """Return the README with new tables of this package's agents, and of presets without an agent."""
    for name, table in (("agents", agent_table()), ("missing", missing_list())):
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(\n<!-- end of {name} -->)", re.DOTALL)
        text = pattern.sub(lambda found, table=table: f"{found[1]}\n{table}\n{found[2]}", text)  # type: ignore[misc]
    return text


def own_agents() -> list[ZooAgent]:
    """The agents of this package."""
    return [agent for agent in agents() if agent.zoo == ZOO]


def agent_table() -> str:
    """A Markdown table with a row for each agent."""
    rows = ["| agent | mean return [95 %] | steps | training | file |", "|---|---|---|---|---|"]
    for agent in own_agents():
        minutes = f"{agent.seconds / 60:.1f} min"
        rows.append(f"| `{agent.name}` | {agent.result} | {agent.steps:,} | {minutes} | {agent.size / 1000:.0f} kB |")
    return "\n".join(rows)


def missing_list() -> str:
    """A Markdown table for each reason why presets have no agent."""
    by_reason: dict[str, dict[str, list[str]]] = {}
    for name, reason in missing().items():
        algorithm, _, environment = name.partition("/")
        by_reason.setdefault(reason, {}).setdefault(algorithm, []).append(environment)
    tables = []
    for reason, table in by_reason.items():
        rows = [f"| `{algorithm}` | {', '.join(environments)} |" for algorithm, environments in table.items()]
        tables.append("\n".join([f"{reason}:", "", "| algorithm | environments |", "|---|---|", *rows]))
    return "\n\n".join(tables)


def missing() -> dict[str, str]:
    """The presets without an agent, as name -> reason."""
    return {name: reason for reason, names in recipes()["missing"].items() for name in names}


def unaccounted() -> list[str]:
    """Presets that have neither a recipe nor a reason. Only installed algorithms with an agent in this package count."""
    ours = {name.partition("/")[0] for name in seeds()}
    usable = {plugin.id for plugin in algorithms() if not plugin.problem}
    presets = {f"{algorithm}/{env}" for algorithm in ours & usable for env in preset_names(algorithm)}
    used = {f"{name.partition('/')[0]}/{tuned}" for name, tuned in recipes()["presets"].items()}
    return sorted(presets - set(seeds()) - used - set(missing()))


if __name__ == "__main__":
    readme = Path(sys.argv[1])
    readme.write_text(page(readme.read_text(encoding="utf-8")), encoding="utf-8")
