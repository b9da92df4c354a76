"""`rlsdk run --resume` refuses options that it cannot apply; the error of one line names the option to leave out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

SMALL = ("--set", "n_steps=8", "--set", "n_epochs=1", "--set", "batch_size=8", "--set", "policy_kwargs.net_arch=[4]")
PLAIN = ("run", "ppo", "--env", "rlsdk/IdentityEnv-v0", "--no-preset", "--steps", "32", "--eval-every", "0", *SMALL)
RUN = (*PLAIN, "--eval-episodes", "1")
AGAIN = ("run", "ppo", "--resume", "--out")


def refusal(cli: Any, *options: str) -> str:
    """Resume a run with these options; return the error of one line."""
    code, out, err = cli(*AGAIN, *options)
    assert (code, out, err.count("\n")) == (1, "", 1), (out, err)
    return str(err)


def test_a_single_run(cli: Any) -> None:
    assert cli(*RUN, "--seed", "1", "--out", "single")[0] == 0
    assert "leave out --seeds" in refusal(cli, "single", "--seeds", "2")
    assert "single holds a single run" in refusal(cli, "single", "--seeds", "1")
    assert "leave out --from" in refusal(cli, "single", "--from", "nowhere")
    assert "leave out --no-preset" in refusal(cli, "single", "--no-preset")


def test_the_environment_may_be_given_again(cli: Any) -> None:
    """`--env` and its arguments may be given again, in any order, also with the module that registers the environment."""
    many = ("--seeds", "2", "--jobs", "1", "--executor", "in-process")
    for out, more, held in (("one", (), "a run"), ("two", many, "runs")):
        changed = ("--env-kwargs", "low=-2", "--env-kwargs", "episode_length=5", "--wrapper", "TimeFeature")
        box = ("run", "ppo", "--env", "rlsdk/IdentityEnvBox-v0", *RUN[4:], *more, *changed, "--out", out)
        assert cli(*box)[0] == 0
        again = ("--env", "rlsdk_envs:rlsdk/IdentityEnvBox-v0")
        assert f"{out} holds {held} on 'rlsdk/IdentityEnvBox-v0?" in refusal(cli, out, *again)
        assert "add the run's --env" in refusal(cli, out, *changed)
        other = ("--env-kwargs", "low=-3", "--env-kwargs", "episode_length=5", "--wrapper", "TimeFeature")
        assert "give the same" in refusal(cli, out, "--env", "rlsdk/IdentityEnvBox-v0", *other)
        reordered = (*changed[2:4], *changed[:2], *changed[4:])
        code, _, err = cli(*AGAIN, out, "--env", "rlsdk/IdentityEnvBox-v0", *reordered, "--steps", "40")
        assert code == 0, err


def test_a_sweep(cli: Any) -> None:
    assert cli(*RUN, "--seeds", "2", "--jobs", "1", "--executor", "in-process", "--out", "both")[0] == 0
    for count in ("1", "3"):
        assert f"both holds runs with 2 seeds (0, 1); leave out --seeds {count}" in refusal(
            cli, "both", "--seeds", count
        )
    assert "leave out --from" in refusal(cli, "both", "--from", "nowhere")
    assert "leave out --no-preset" in refusal(cli, "both", "--no-preset")
    assert "--n-envs" in refusal(cli, "both", "--n-envs", "3")
    assert "--steps 8 is less than the 32 steps that both/seed-0 has been trained for" in refusal(
        cli, "both", "--steps", "8"
    )
    code, out, err = cli(*AGAIN, "both", "--seeds", "2", "--steps", "40")
    assert code == 0, err
    assert "seeds 0 to 1" in out


def test_steps_before_the_end_of_the_last_rollout_are_those_of_the_first_call(cli: Any) -> None:
    begun = (*RUN[:6], "30", *RUN[7:])
    assert cli(*begun, "--seeds", "2", "--jobs", "1", "--executor", "in-process", "--out", "both")[0] == 0
    assert cli(*AGAIN, "both", "--steps", "30")[0] == 0


@pytest.mark.parametrize("seeds", [(), ("--seeds", "1", "--executor", "in-process")])
def test_a_run_that_was_killed_after_it_exceeded_its_steps_is_finished(cli: Any, seeds: tuple[str, ...]) -> None:
    """Whole rollouts: a run of 30 steps ends at step 32."""
    assert cli(*RUN[:6], "30", *RUN[7:], *seeds, "--out", "run")[0] == 0
    folder = Path("run/seed-0" if seeds else "run")
    for more in ((), ("--steps", "30"), ("--steps", "31")):
        (folder / "final.rlsdk").unlink()  # as after a kill between the last checkpoint and the final agent
        record = json.loads((folder / "run.json").read_text())
        del record["final_evaluation"]
        (folder / "run.json").write_text(json.dumps({**record, "status": "running"}))
        code, _, err = cli(*AGAIN, "run", *more)
        assert code == 0, err
        done = json.loads((folder / "run.json").read_text())
        assert (done["status"], done["env_steps"], (folder / "final.rlsdk").exists()) == ("finished", 32, True)
    assert "--steps 29 is less than the 32 steps that run" in refusal(cli, "run", "--steps", "29")


@pytest.mark.parametrize("options", [("empty",), ("empty", "--seeds", "2")])
def test_a_folder_without_runs(cli: Any, options: tuple[str, ...]) -> None:
    assert "empty holds no run to resume" in refusal(cli, *options)


def test_seeds_without_a_folder(cli: Any) -> None:
    code, _, err = cli("run", "ppo", "--resume", "--seeds", "2", "--env", "CartPole-v1", "--steps", "8")
    assert (code, "--resume needs --out DIR" in err) == (1, True)
