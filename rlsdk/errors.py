"""The exception classes that rlsdk raises on purpose, and functions that build their messages.

A message names the mistake, where it is, what is accepted and how to fix it.
"""

from __future__ import annotations

import signal
import sysconfig
import traceback
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import NoReturn

__all__ = [
    "ArtifactError",
    "ContractViolation",
    "DivergenceError",
    "EnvironmentFault",
    "MaskError",
    "NetArchError",
    "ObservationError",
    "PluginError",
    "ResourceError",
    "RlsdkError",
    "SettingsError",
    "UnknownAttributeError",
    "UnknownNameError",
    "UnsupportedSpaceError",
    "UsageError",
    "WorkError",
    "message_of",
    "one_line",
    "raise_fault",
    "raise_stop",
    "raised",
    "require_file_name",
    "shown",
    "suggest",
]


class RlsdkError(Exception):
    """The base class of all errors of rlsdk: `except rlsdk.errors.RlsdkError` catches these and no others."""

    def __str__(self) -> str:
        # messages may quote files, manifests and environments
        return printable(super().__str__())


# Each class below is also an exception of Python, so that `except ValueError` works as usual.
class SettingsError(RlsdkError, ValueError):
    """A hyper-parameter, option or settings file is unknown, mistyped or out of range."""


class NetArchError(SettingsError):
    """`net_arch` names a network that the policy does not have, or lacks one that it needs."""


class PluginError(RlsdkError):
    """An algorithm id is unknown or ambiguous, or its plugin is switched off, incompatible or broken."""


class UnsupportedSpaceError(RlsdkError, ValueError):
    """An algorithm or encoder does not support a space; the message lists the spaces that it supports."""


class EnvironmentFault(RlsdkError, RuntimeError):  # noqa: N818  # EnvironmentError is a builtin
    """An environment could not be made, raised an error, or returned a value that its spaces do not allow."""


class ObservationError(RlsdkError, ValueError):
    """An observation or action that the caller passed does not fit the agent's space."""


class MaskError(RlsdkError, ValueError):
    """An action mask is missing, has a wrong length or kind, or allows no action at all."""


class ArtifactError(RlsdkError, ValueError):
    """A file of an agent is missing, damaged, malicious, of another format, or cannot be written."""


class ResourceError(RlsdkError, MemoryError):
    """Something would not fit into memory or on the disk. The error is raised before anything is allocated."""


class DivergenceError(RlsdkError, FloatingPointError):
    """A loss, another metric or an action became NaN or infinite. Training stopped after that round, or at that action."""


class WorkError(RlsdkError, RuntimeError):
    """A function that an executor ran in another process ended that process twice, cannot be pickled, or raised an error that
    cannot be raised again in this process."""


class UsageError(RlsdkError, RuntimeError):
    """A call is not possible in the current state, for example `learn` of an agent without an environment."""


class UnknownAttributeError(RlsdkError, AttributeError):
    """An agent has no attribute or setting of that name; the message names the closest one, or what to use instead."""


class UnknownNameError(RlsdkError, ImportError):
    """A package of rlsdk lacks a name that stable-baselines3 or sb3-contrib documents; the message names the replacement."""


class ContractViolation(RlsdkError, AssertionError):  # noqa: N818  # named after the event
    """A plugin broke a clause of an interface contract (raised by `rlsdk_testing`)."""


def require_file_name(path: object) -> None:
    """Raises ArtifactError if `path` contains a null character or a part of more than 255 bytes, as no file does."""
    null, longest = "\0" in str(path), max(len(part.encode(errors="replace")) for part in str(path).split("/"))
    if null or longest > 255:
        why = "it contains a null character; leave it out" if null else f"a part has {longest} bytes; shorten it to 255"
        raise ArtifactError(f"{shown(str(path), LONGEST_NAME)} cannot be the name of a file: {why}")


LONGEST_NAME = 100
"""The number of characters of a name that are compared with known names: the time grows with the square of the length."""


@contextmanager
def fitting(what: str) -> Iterator[None]:
    """Turn any error inside the block, which restores the state of a file, into an `ArtifactError` that begins with `what`.

    Errors of rlsdk are raised unchanged.
    """
    try:
        yield
    except RlsdkError:
        raise
    except Exception as error:
        raise ArtifactError(f"{what}: {type(error).__name__}: {_on_one_line(message_of(error))}") from None


def _on_one_line(message: str) -> str:
    """The heading and the first mismatch of a message in which torch lists one mismatch per line, and the number of others.

    >>> _on_one_line("Error(s) in loading Net:\\n\\tsize mismatch for a.\\n\\tsize mismatch for b.")
    'Error(s) in loading Net: size mismatch for a. (and 1 more)'
    """
    lines = [" ".join(line.split()) for line in message.splitlines() if line.strip()]
    more = f" (and {len(lines) - 2} more)" if len(lines) > 2 else ""
    return " ".join(lines[:2]) + more


def suggest(name: str, candidates: Iterable[str]) -> str:
    """Text for a message: the candidate that is similar to `name`, or all candidates if none is similar.

    >>> suggest("learning_rat", ["learning_rate", "gamma"])
    "did you mean 'learning_rate'?"
    >>> suggest("polyak", ["tau", "gamma"])
    "did you mean 'tau'? tau is 1 - polyak"
    >>> suggest("xyz", ["tqc", "ars"])
    'accepted: ars, tqc'
    """
    options = sorted(set(candidates))
    if (near := closest(name, options)) is not None:
        return f"did you mean {near!r}?{difference(name, near, ' ')}"
    return f"accepted: {', '.join(options)}" if options else "none exist"


def closest(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate that `name` probably means: what other libraries call so, or the most similar one; None if none is similar.

    >>> closest("lr", ["learning_rate", "gamma"])
    'learning_rate'
    """
    options = sorted(set(candidates))
    if (known := known_as(name, options)) is not None:
        return known
    close = get_close_matches(name[:LONGEST_NAME], options, n=1, cutoff=0.6)
    return close[0] if close else None


def known_as(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate that other libraries call `name`, by `CALLED_ELSEWHERE`; None if there is none. Hyphens are underscores."""
    plain = name.lower().strip("-").replace("-", "_")
    for candidate in candidates:
        if plain in CALLED_ELSEWHERE.get(candidate.strip("-").replace("-", "_"), "").split():
            return candidate
    return None


def difference(name: str, ours: str, before: str) -> str:
    """How the value of our setting follows from that of `name` elsewhere, after the text `before`; "" if they are equal.

    >>> difference("polyak", "tau", ", where ")
    ', where tau is 1 - polyak'
    """
    plain = name.lower().strip("-").replace("-", "_")
    text = OTHER_VALUES.get(plain, "") if known_as(name, [ours]) is not None else ""
    return text and before + text.format(plain)


OTHER_VALUES = {
    "polyak": "tau is 1 - {}",
    **dict.fromkeys(
        ("num_minibatches", "n_minibatches", "nminibatches"), "batch_size is n_steps * number of environments / {}"
    ),
    **dict.fromkeys(
        ("epochs", "num_epochs"), "n_epochs counts the passes over one rollout, not rounds of the training"
    ),
    **dict.fromkeys(
        ("epsilon_decay", "eps_decay"), "exploration_fraction is the share of the training in which epsilon falls"
    ),
    **dict.fromkeys(("cuda", "gpu", "use_gpu", "use_cuda"), 'device is a text: "cuda", "cpu" or "auto"'),
    "clip_vloss": "clip_range_vf is the range, a number, or None",
    **dict.fromkeys(
        ("utd", "utd_ratio", "updates_per_step"), "gradient_steps is {} * train_freq * number of environments"
    ),
    **dict.fromkeys(("num_updates", "n_updates"), "gradient_steps counts the updates after each train_freq steps"),
    **dict.fromkeys(("steps_per_epoch", "rollout_steps", "horizon"), "n_steps counts the steps of one environment"),
    **dict.fromkeys(
        ("target_update_freq", "target_update", "target_network_update_freq"),
        "`rlsdk info ALGO` names the unit of target_update_interval",
    ),
    **dict.fromkeys(("prioritized", "prioritized_replay", "per"), 'replay_buffer_class is a text: "prioritized"'),
}
"""Name elsewhere, whose value may be inverted, in another unit or of another kind -> what the value of our setting is."""


CALLED_ELSEWHERE = {
    "activation_fn": "activation activation_function act_fn nonlinearity",
    "batch_size": "batch minibatch_size mini_batch_size sgd_minibatch_size num_minibatches n_minibatches nminibatches",
    "beta": "beta0 beta_start initial_beta prioritized_replay_beta prioritized_replay_beta0",
    "buffer_size": "memory_size replay_size replay_capacity replay_buffer_size buffer_capacity capacity",
    "clip_range": "clip clip_eps clip_epsilon clip_coef clip_ratio clip_param cliprange eps_clip epsilon_clip",
    "clip_range_vf": "vf_clip vf_clip_param cliprange_vf clip_vloss value_clip",
    "device": "cuda gpu use_gpu use_cuda",
    "ent_coef": "ent_weight ent_coeff entropy_coef entropy_coeff entropy_weight entropy_cost entropy_bonus alpha temperature",
    "env": "environment env_id env_name gym_id",
    "eval": "evaluate enjoy test",
    "exploration_final_eps": "epsilon_end eps_end end_e epsilon_min min_epsilon final_epsilon epsilon_final",
    "exploration_fraction": "epsilon_decay eps_decay epsilon_fraction",
    "exploration_initial_eps": "epsilon eps epsilon_start eps_start start_e initial_epsilon epsilon_init",
    "gae_lambda": "lam lambda lambda_ gae_lam gae lmbda td_lambda",
    "gamma": "discount discount_factor discount_rate discounting",
    "gradient_steps": "utd utd_ratio num_updates n_updates updates_per_step num_gradient_steps",
    "learn": "fit",
    "learning_rate": "lr alpha_lr step_size stepsize lr_actor actor_lr lr_critic critic_lr pi_lr vf_lr q_lr policy_lr",
    "learning_starts": "start_steps start_timesteps warmup warmup_steps random_steps initial_steps train_start update_after",
    "list": "ls algos algorithms",
    "max_grad_norm": "grad_clip gradient_clip grad_norm clip_grad clip_grad_norm grad_norm_clip max_gradient_norm",
    "n_envs": "num_envs n_env number_of_envs num_actors",
    "n_epochs": "epochs num_epochs update_epochs ppo_epochs ppo_epoch k_epochs noptepochs num_sgd_iter",
    "n_steps": "num_steps nsteps rollout_len rollout_length rollout_steps unroll_length horizon steps_per_epoch",
    "net_arch": "hidden_sizes hidden_size hidden_layers hidden_dims hidden_dim layer_sizes layers fcnet_hiddens arch",
    "new": "init create scaffold",
    "normalize": "normalise norm_obs normalize_obs normalize_observations obs_norm",  # codespell:ignore normalise
    "policy_delay": "policy_frequency policy_freq actor_update_interval",
    "replay_buffer_class": "prioritized prioritized_replay per",
    "run": "train fit",
    "seed": "random_seed random_state rng_seed",
    "steps": "total_timesteps timesteps total_steps n_timesteps num_steps num_timesteps max_steps",
    "target_kl": "max_kl kl_target desired_kl",
    "target_noise_clip": "noise_clip",
    "target_policy_noise": "policy_noise target_noise",
    "target_update_interval": "target_update_freq target_update target_network_update_freq target_network_frequency",
    "tau": "polyak soft_tau target_tau smoothing_coef soft_update_tau",
    "tensorboard_log": "logdir log_dir tb_log tensorboard",
    "train_freq": "update_every update_freq train_frequency train_interval",
    "tune": "optimize optimise hyperopt",  # codespell:ignore optimise
    "vf_coef": "vf_weight vf_loss_coeff vf_coeff value_coef value_coeff value_loss_coef value_loss_coeff critic_coef",
}
"""Our name of a setting, option, command or member -> what other libraries and papers call it."""


def message_of(error: BaseException) -> str:
    """The message of an exception, `str(error)`; a placeholder text if `__str__` raises."""
    try:
        return str(error)
    except Exception:
        return "(its message cannot be shown)"


def raise_stop(error: BaseException) -> None:
    """Raise `error` again if it asks this process to stop: Ctrl-C, or what a handler of a signal raised.

    All others that a user's code raises, also SystemExit and subclasses of KeyboardInterrupt, are errors of that code.
    """
    if isinstance(error, Exception):
        return
    codes = {getattr(signal.getsignal(number), "__code__", None) for number in signal.valid_signals()} - {None}
    # a handler runs in the middle of any code, and its frame is below that code in the traceback
    if type(error) is KeyboardInterrupt or any(f.f_code in codes for f, _ in traceback.walk_tb(error.__traceback__)):
        raise error


def raise_fault(error: BaseException, name: str, where: str = "", ending: str = "") -> NoReturn:
    """Raise the EnvironmentFault for an error that code of a user raised: `name`, `raised(error, where)` and `ending`.

    An error of rlsdk is raised as it is, and so is what asks this process to stop (`raise_stop`).
    """
    if isinstance(error, RlsdkError):
        raise error
    raise_stop(error)
    raise EnvironmentFault(f"{name} {raised(error, where)}{ending}") from error


OURS = Path(__file__).parent
"""The folder of this package."""
_PYTHON = Path(sysconfig.get_paths()["stdlib"])
"""The folder of the standard library."""


def raised(error: BaseException, where: str = "") -> str:
    """The end of a message about an error in code outside rlsdk; the caller puts the name of that code in front of it.

    `where` names the call that failed. The file and line of the user's code that raised are appended.

    >>> "environment 'Mine-v0' " + raised(ValueError("no"), "step(2)")
    "environment 'Mine-v0' raised ValueError in step(2): no"
    """
    place = f" in {where}" if where else ""
    message = one_line(" ".join(line.strip() for line in message_of(error).splitlines() if line.strip()), 300)
    return f"raised {type(error).__name__}{place}{': ' if message else ''}{message}{_line_of(error)}"


def _line_of(error: BaseException) -> str:
    """The innermost frame of the traceback in code of the user or of a plugin, as ` (file, line n)`; "" if there is none."""
    found = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        path = Path(frame.f_code.co_filename)
        # Code typed at the prompt of Python has no file.
        if _is_foreign(path) or not path.is_file():
            continue
        shorter = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
        found = f" ({shorter}, line {line})"
    return found


def _is_foreign(path: Path) -> bool:
    """Whether a file belongs to rlsdk, to Python, or to an installed package without a manifest."""
    parts = path.parts
    # before the folder of Python, which may contain that of the installed packages
    if "site-packages" in parts and not path.is_relative_to(OURS):
        return not Path(*parts[: parts.index("site-packages") + 2], "rlsdk.toml").is_file()
    return path.is_relative_to(OURS) or path.is_relative_to(_PYTHON)


HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode categories of characters that move the cursor, reorder or hide text, or cannot be encoded."""


def printable(text: str) -> str:
    r"""`text` with control characters written as escapes; newlines and tabs are unchanged.

    >>> printable("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    if text.isprintable():
        return text
    return "".join(c if c in "\n\t" or unicodedata.category(c) not in HIDDEN else _escaped(c) for c in text)


def one_line(value: object, most: int | None = None) -> str:
    r"""The text of a value on one line, for a table or message: like `printable`, but newlines and tabs are escaped too. A text
    with more than `most` characters is cut, and `...` is appended.

    >>> one_line("a\nb")
    'a\\nb'
    >>> one_line("abcdef", 3)
    'abc...'
    """
    # escapes make the text longer, never shorter
    cut = str(value) if most is None else str(value)[: most + 1]
    text = "".join(_escaped(c) if c in "\n\t" else c for c in printable(cut))
    return text if most is None or len(text) <= most else f"{text[:most]}..."


def shown(value: object, most: int = 300) -> str:
    """`repr` of a value on one line, for a message, cut after `most` characters. If `repr` raises, the text names the type.

    >>> shown("a" * 9, 4)
    "'aaa..."
    """
    try:
        text = repr(value)
    except Exception as error:
        if isinstance(value, int):
            # an integer of more than 4,300 digits
            return "a very large number"
        text = f"a {type(value).__name__} whose repr raises {type(error).__name__}"
    # `repr` of arrays has a line per row
    return one_line(" ".join(line.strip() for line in text.splitlines()), most)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
