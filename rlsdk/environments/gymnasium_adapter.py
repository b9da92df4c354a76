"""Makes environments from what users name: gymnasium ids, classes, files and wrappers; decides what a file may name."""

from __future__ import annotations

import contextlib
import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any, cast

import gymnasium
from gymnasium.envs.registration import load_env_creator

from rlsdk.environments.adapters.checks import Environment, name_of, spec_of
from rlsdk.environments.adapters.observations import spaces_of, to_space
from rlsdk.environments.vector.connected import (
    MEMBERS,
    ConnectedEnv,
    Seeds,
    SteppedVector,
    has_members,
    missing_members,
    require_members,
)
from rlsdk.environments.vector.custom_vector import CustomVectorEnv
from rlsdk.environments.vector.native_vector import GymVector, NativeVectorEnv
from rlsdk.environments.vector.sync_vector import SyncVectorEnv
from rlsdk.environments.wrapping import EnvInTraining, known_wrapper, wrapped, wrapper_of
from rlsdk.errors import (
    EnvironmentFault,
    PluginError,
    RlsdkError,
    SettingsError,
    message_of,
    raise_fault,
    raise_stop,
    raised,
    shown,
    suggest,
)
from rlsdk.registry import extension, extensions
from rlsdk.registry.discovery import SWITCH
from rlsdk.registry.loading import is_offered
from rlsdk.runtime.packages import named_module, pip_install
from rlsdk.settings.load import environment_id, wrapper_call

MOST_WRAPPERS = 50
"""The number of wrappers of a foreign vector environment that messages look at."""
EnvSource = str | Callable[..., object] | Any
NATIVE = "native"
LIMIT = "max_episode_steps"
MODULE_FIX = "run the command in the folder of the module, add that folder to PYTHONPATH, or install its package"


def connect(env: EnvSource, copies: int = 1, *, seed: int | None = None) -> ConnectedEnv:
    """The vector environment of rlsdk for `env`.

    Args:
        env: an environment id, a function that makes an environment, a gymnasium environment, a vector environment of gymnasium
            or of rlsdk, or an object with the members of `rlsdk.interfaces.VectorEnv`.
        copies: the number of environments that are made from an id.
        seed: the seed of the first reset that gets no seed; None: that of the environments, if they have one.

    Raises:
        EnvironmentFault: `env` is none of these, or the environment cannot be made.
        SettingsError: the seed is not a whole number that torch's generators accept.
    """
    if seed is not None:
        seeded = connect(env, copies)
        seeded.seeds = Seeds(seed)
        return seeded
    if isinstance(env, EnvInTraining):
        return env.trained_in
    if isinstance(env, SteppedVector):
        # each of its subclasses is a `ConnectedEnv`
        return cast("ConnectedEnv", env)
    if isinstance(env, gymnasium.vector.VectorEnv):
        return _connect_gymnasium(env)
    if isinstance(env, gymnasium.Env):
        made = in_process([env])
        made.env_id = _id_of(env)
        return made
    if isinstance(inner := getattr(env, "venv", None), SteppedVector):
        # what `get_env()` of an agent gave
        return cast("ConnectedEnv", inner)
    # stable-baselines3's VecEnv has members of the same names, with other meanings.
    if not isinstance(env, type) and not hasattr(env, "step_async") and has_members(env):
        return CustomVectorEnv(env)
    if isinstance(env, str) or callable(env):
        if "/" in str(env) and (own := vectorizer_of(env)):
            found = make_together(own, env, copies, {})
        else:
            found = in_process([make_one(env, {}) for _ in range(copies if isinstance(env, str) else 1)])
        found.env_id = env if isinstance(env, str) else None
        return found
    raise EnvironmentFault(_no_environment(env))


def vectorizer_of(env: object) -> str | None:
    """The namespace of an id if it is also the name of a vectorizer, which then makes the environments; otherwise None."""
    namespace = env.partition("/")[0] if isinstance(env, str) else ""
    return namespace if env not in gymnasium.registry and is_offered("vectorizers", namespace) else None


def make_together(name: str, env: EnvSource, n_envs: int, kwargs: dict[str, Any]) -> ConnectedEnv:
    """The vector environment that the vectorizer `name` of a package makes, or with `native` that of the environment itself.

    Raises:
        SettingsError: `kwargs` has a seed, or an id has wrappers.
        EnvironmentFault: it raised an exception, or made something else or a wrong number of environments.
    """
    if name == NATIVE or vectorizer_of(env) == name:
        if not isinstance(env, str):
            raise SettingsError("vectorization='native' needs a gymnasium id")
        chosen = environment_id(env)
        if chosen.wrappers:
            raise SettingsError(f"vectorization={name!r} takes no wrappers")
        env, kwargs = chosen.name, {**chosen.kwargs, **kwargs}
    if "seed" in kwargs:
        raise SettingsError(f"env_kwargs has 'seed' for vectorization={name!r}; use seed of make_vec_env or the agent")
    try:
        make: Callable[..., object] = _native if name == NATIVE else extension("vectorizers", name)
        vector = connect(make(env, n_envs, **kwargs))
    except BaseException as error:
        raise_fault(
            error, f"environment {env!r} could not be made: it" if name == NATIVE else f"vectorization={name!r}"
        )
    # an environment of several agents has a row for each of them
    if vector.num_envs % n_envs:
        raise EnvironmentFault(f"vectorization={name!r} made {vector.num_envs} environments, not {n_envs}")
    return vector


def _native(env: str, n_envs: int, **kwargs: Any) -> object:
    """The vector version that an environment has in gymnasium, or that the vectorizer `native` of a package makes."""
    try:
        # Both import the package of the id, which may register a vector version.
        is_of_package(own := in_module(env)[0])
        return gymnasium.make_vec(own, n_envs, vectorization_mode="vector_entry_point", **kwargs)
    except gymnasium.error.Error as error:
        if is_offered("vectorizers", NATIVE):
            return extension("vectorizers", NATIVE)(env, n_envs, **kwargs)
        raise EnvironmentFault(
            f"{env!r} has no vector version: {error}; use vectorization='sync', or"
            f" {pip_install('rlsdk-envs[envpool]')} for the environments envpool has"
        ) from None


def _connect_gymnasium(env: GymVector) -> NativeVectorEnv:
    """One of gymnasium's vector environments.

    Raises:
        EnvironmentFault: it lacks spaces, or a number of environments.
    """
    for name in ("num_envs", "single_observation_space", "single_action_space"):
        if getattr(env, name, None) is None:
            raise EnvironmentFault(
                f"vector environment {type(env).__name__} has no {name}; set self.{name} in __init__"
            )
    pair = to_space(env.single_observation_space, "observation"), to_space(env.single_action_space, "action")
    return NativeVectorEnv(env, *pair)


def _no_environment(env: object) -> str:
    """The error message for an object that is not an environment: the cause, and what is accepted."""
    if hasattr(env, "step_async"):
        return (
            f"{shown(env)} is a vector environment of another library; make one of the same environments with"
            " rlsdk.environments.make_vec_env: it takes an id, a function, or a list of functions; derive a class of your own"
            f" from gymnasium.vector.VectorEnv, or give it the members of rlsdk.interfaces.VectorEnv{_settings_instead(env)}"
        )
    if isinstance(env, list | tuple):
        return f"{shown(env)} is not an environment; make_vec_env takes a list of functions that each make one"
    if hasattr(env, "reset") and hasattr(env, "step") and not hasattr(env, "num_envs"):
        return f"{shown(env)} {why_not_gymnasium(env)}"
    if len(missing_members(env)) < len(MEMBERS) - 3:
        require_members(env)
    return (
        f"{shown(env)} is not an environment; accepted: a gymnasium id such as 'Pendulum-v1', a gymnasium.Env,"
        " a gymnasium.vector.VectorEnv, what rlsdk.environments.make_vec_env returns, or an object with the members of"
        " rlsdk.interfaces.VectorEnv and spaces"
    )


SETTINGS = {"VecNormalize": "normalize=True", "VecFrameStack": "frame_stack=4"}
"""Wrapper of stable-baselines3's vector environments -> the setting of the agent that does the same."""


def _settings_instead(env: object) -> str:
    """What replaces the wrappers of a vector environment of stable-baselines3."""
    found = list[str]()
    # Attributes of foreign objects may lead round in a circle.
    while env is not None and len(found) < MOST_WRAPPERS:
        found.append(type(env).__name__)
        env = vars(env).get("venv") if hasattr(env, "__dict__") else None
    return "".join(f"; {name} is the setting {SETTINGS[name]} of the agent" for name in found if name in SETTINGS)


def why_not_gymnasium(env: object) -> str:
    """What is wrong with an object other than a `gymnasium.Env`, and how to mend it."""
    # By the names of modules, so that the packages need not be imported.
    if any(kind.__module__.partition(".")[0] == "gym" for kind in type(env).__mro__):
        return (
            "is an environment of the older package gym; with shimmy installed it is one of gymnasium:"
            ' gymnasium.make("GymV26Environment-v0", env=env), up to gym 0.21 "GymV21Environment-v0"'
        )
    if any(kind.__module__.partition(".")[0] == "pettingzoo" for kind in type(env).__mro__) or _has_agents(env):
        return (
            "is an environment of several agents (PettingZoo), not a gymnasium.Env; rlsdk-pettingzoo has them: one policy for"
            " all with make_vec_env(make_it, n, vectorization='pettingzoo'), or a gymnasium.Env of one agent, in whose step the"
            " others act, with rlsdk_pettingzoo.make_role_env(make_it)"
        )
    return "is not a gymnasium.Env; derive its class from gymnasium.Env"


def _has_agents(env: object) -> bool:
    """Whether an object has the members of PettingZoo's environments: agents, and a method that gives the space of each."""
    return hasattr(env, "possible_agents") and callable(getattr(env, "action_space", None))


def _id_of(env: Environment) -> str | None:
    """The id that makes the same environment again; None if the environment was wrapped or made with arguments."""
    spec = spec_of(env)
    if spec is None or spec.additional_wrappers or spec.id not in gymnasium.registry:
        return None
    known = gymnasium.registry[spec.id]
    if spec.max_episode_steps != known.max_episode_steps:
        # an argument of `gymnasium.make`, or the wrapper TimeLimit
        return None
    # How an environment is shown does not change its episodes.
    arguments = {name: value for name, value in spec.kwargs.items() if name != "render_mode"}
    return spec.id if arguments.items() <= known.kwargs.items() else None


def in_process(environments: Sequence[Environment], seed: int | None = None) -> SyncVectorEnv:
    """A vector environment of environments with equal spaces, which are stepped one after the other in this process."""
    first = environments[0]
    return SyncVectorEnv(environments, *spaces_of(first), name=name_of(first), seed=seed)


def make_one(env: EnvSource, kwargs: dict[str, object]) -> Environment:
    """One gymnasium environment from an id or a function.

    Raises:
        EnvironmentFault: it cannot be made; the message names the cause and the fix.
    """
    try:
        instance = _make_from_text(env, kwargs) if isinstance(env, str) else env(**kwargs)
    except gymnasium.error.UnregisteredEnv as error:
        name = str(env).partition("?")[0]
        if lacking := missing_package(name):
            raise EnvironmentFault(f"there is no environment {name!r}: {lacking}") from None
        register_all()
        hint = suggest(name, gymnasium.registry) if len(name) > 2 else "see gymnasium.pprint_registry()"
        hint = hint if hint.startswith("did") else "gymnasium.pprint_registry() lists those installed"
        # gymnasium's own suggestion lacks the version
        cause = str(error).partition(" Did you mean")[0].rstrip(" .")
        raise EnvironmentFault(f"there is no environment {name!r}: {cause}; {hint}") from None
    except gymnasium.error.DependencyNotInstalled as error:
        raise EnvironmentFault(
            f"environment {shown(env)} needs a package that is not installed: {message_of(error)}"
        ) from None
    except RlsdkError:
        raise
    except BaseException as error:
        raise_stop(error)
        hint = f"; {MODULE_FIX}" if _lacks_module(env, error) else ""
        raise EnvironmentFault(
            f"environment {shown(env)} could not be made: {raised(error).removeprefix('raised ').rstrip('.')}{hint}"
        ) from error
    if not isinstance(instance, gymnasium.Env):
        hint = f": it {why_not_gymnasium(instance)}" if hasattr(instance, "step") else ""
        raise EnvironmentFault(f"{shown(env)} made a {type(instance).__name__}, not a gymnasium.Env{hint}")
    return instance


def _lacks_module(env: EnvSource, error: BaseException) -> bool:
    """Whether the module of an id such as `package:Env-v0` cannot be found."""
    module = env.partition("?")[0].rpartition(":")[0] if isinstance(env, str) else ""
    return bool(module) and isinstance(error, ModuleNotFoundError) and module.partition(".")[0] in str(error)


def _make_from_id(name: str, kwargs: dict[str, Any]) -> object:
    """Make the environment of an id with the plugin for its namespace, or with `gymnasium.make`.

    `module:NAME` and `./FILE.py:NAME` import the module. NAME is an id that it registers, or one of its classes or functions.
    """
    name, found = in_module(name)
    if found is not None:
        return _make_with_limit(found, kwargs)
    if is_of_package(name):
        return extension("environments", name.partition("/")[0])(name, **kwargs)
    # gymnasium's checker checks the first step only; rlsdk checks every step, and `check_env` checks the rest
    return gymnasium.make(name, **{"disable_env_checker": True, **kwargs})


def in_module(name: str) -> tuple[str, Callable[..., Any] | None]:
    """(the id that a module registers, or the class or function in it), after the module that `name` names was imported."""
    place, colon, own = name.rpartition(":")
    found = getattr(named_module(place), own, None) if colon else None
    return own, found if callable(found) and own not in gymnasium.registry else None


def _make_with_limit(make: Callable[..., Any], kwargs: dict[str, Any]) -> object:
    """Call a class or function that makes an environment. As with `gymnasium.make`, `max_episode_steps` is its time limit."""
    if LIMIT not in kwargs or LIMIT in signature(make).parameters:
        return make(**kwargs)
    rest = {key: value for key, value in kwargs.items() if key != LIMIT}
    return gymnasium.wrappers.TimeLimit(make(**rest), kwargs[LIMIT])


def _make_from_text(text: str, kwargs: Mapping[str, object]) -> object:
    """Make an environment from an id that may contain arguments and wrappers. `kwargs` override arguments in the id."""
    chosen = environment_id(text)
    instance = _make_from_id(chosen.name, {**chosen.kwargs, **kwargs})
    for wrapper in chosen.wrappers:
        instance = wrapped(wrapper_of(wrapper), instance)
    return instance


PACKAGES = {"rlsdk": "rlsdk-envs", **dict.fromkeys(("pettingzoo", "pettingzoo-role"), "rlsdk-pettingzoo")}
PACKAGES |= dict.fromkeys(("brax", "gymnax"), "rlsdk-jax")
"""Namespace of ids that another package of this project offers -> that package."""


def is_of_package(identity: str) -> bool:
    """Whether gymnasium does not know an id and an installed package offers its namespace, also after that was imported.

    Raises:
        PluginError: several packages offer the namespace, or the package is broken.
    """
    namespace, slash, _ = identity.partition("/")
    if not slash or identity in gymnasium.registry or not is_offered("environments", namespace):
        return False
    # imports the package, which may register the id
    extension("environments", namespace)
    return identity not in gymnasium.registry


def register_all() -> None:
    """Import all packages that offer environments, so that a message can suggest their ids. Broken ones are ignored."""
    for namespace in extensions("environments"):
        with contextlib.suppress(RlsdkError):
            extension("environments", namespace)


def missing_package(identity: str) -> str | None:
    """A message if the namespace of an id belongs to a package of this project that is not installed; otherwise None."""
    namespace = identity.partition("/")[0]
    if namespace not in PACKAGES or is_offered("environments", namespace):
        return None
    package, hidden = PACKAGES[namespace], f" or hidden by {SWITCH}" if os.environ.get(SWITCH) else ""
    fix = pip_install(package)
    return f"{namespace}/... are environments of {package}, which is not installed{hidden}; install it: {fix}"


# Which environments a file may name: agent files, records of runs, suites and data sets may come from someone else.
#
# The rule is closed: what it does not know is refused. It accepts the plain id of a registered environment, known
# arguments of that environment, and wrappers of rlsdk and gymnasium. Values are numbers, true, false, none and lists of
# numbers. A text can name a module, another environment, a file or an address, so only the texts in `TEXTS` and the
# defaults are accepted.

PLAIN_ID = re.compile(r"(?:[\w-]+/)?\w[\w.-]*", re.ASCII)
TEXTS = {
    "render_mode": frozenset({"human", "rgb_array", "rgb_array_list", "ansi", "ansi_list", "depth_array"}),
    "map_name": frozenset({"4x4", "8x8"}),
    "obs_type": frozenset({"rgb", "grayscale", "ram"}),
}
"""Argument -> the texts that a file may give it. The first is of all environments, the others of toy text and of ale-py."""
MAKE_DEFAULTS = {"max_episode_steps": None, "disable_env_checker": None, "render_mode": None}
"""Arguments of `gymnasium.make` itself, and their defaults."""
INNER = {"task": "{}", "game": "ALE/{}-v5"}
"""Argument of ids `rlsdk/...` -> the id inside. The other arguments of such an environment are for that one."""


def refusal(env: str) -> str | None:
    """Return why a file may not name the environment id `env`; None if it may.

    The module of a registered environment may be imported, because its arguments are those of its class.

    Raises:
        SettingsError: `env` is not an environment id.
    """
    chosen = environment_id(env)
    if not PLAIN_ID.fullmatch(chosen.name):
        return f"{shown(chosen.name, 100)} is not the id of a registered environment"
    if chosen.kwargs and (why := _refusal_of_arguments(chosen.kwargs, _arguments(chosen.name), chosen.name)):
        return why
    return next(filter(None, map(_refusal_of_wrapper, chosen.wrappers)), None)


def _refusal_of_wrapper(text: str) -> str | None:
    """Return why a file may not name this wrapper; None if it may."""
    try:
        name, kwargs = wrapper_call(text)
        return _refusal_of_arguments(kwargs, _parameters(known_wrapper(name)), name)
    except (SettingsError, ImportError):
        return f"{shown(text, 100)} is not a wrapper of gymnasium or of an installed package"


def _refusal_of_arguments(given: Mapping[str, object], known: Mapping[str, object] | None, of: str) -> str | None:
    """Return why a file may not give these arguments; None if it may. `known`: argument -> default; None if it is not known."""
    for name, value in given.items():
        if known is not None and name not in known:
            return f"{name!r} is not a known argument of {of}"
        default = (known or {}).get(name)
        is_known = isinstance(value, str) and (
            value in TEXTS.get(name, ()) or (isinstance(default, str) and value == default)
        )
        if not _is_plain(value) and not is_known:
            return f"the argument {name} = {shown(value, 100)} of {of} is not a number, true, false, none or a list of numbers"
    return None


def _is_plain(value: object) -> bool:
    entries = value if isinstance(value, list | tuple) else [value]
    return value is None or all(isinstance(entry, bool | int | float) for entry in entries)


def _arguments(identity: str) -> dict[str, object] | None:
    """Argument -> default of a registered environment; empty if none of that id is registered.

    None if the package of the environment cannot be imported. It cannot be made either then, and that error names the reason.
    """
    try:
        is_of_package(identity)
    except PluginError:
        return None
    spec = gymnasium.registry.get(identity)
    if spec is None or spec.entry_point is None:
        return {}
    try:
        make: Any = load_env_creator(spec.entry_point) if isinstance(spec.entry_point, str) else spec.entry_point
    except Exception:
        # code of the package may raise any error
        return None
    # The registration comes last, as in `gymnasium.make`.
    known = {**MAKE_DEFAULTS, **_parameters(make), **spec.kwargs}
    inner = [text.format(spec.kwargs[name]) for name, text in INNER.items() if name in spec.kwargs]
    if not identity.startswith("rlsdk/") or not inner:
        return known
    below = _arguments(inner[0])
    return {**below, **known} if below else None


def _parameters(make: Callable[..., Any]) -> dict[str, object]:
    """Parameter -> default of a function, or of a class and the classes it derives from."""
    sources = inspect.getmro(make) if isinstance(make, type) else (make,)
    found: dict[str, object] = {}
    # Base classes first: a derived class replaces their defaults.
    for source in reversed(sources):
        try:
            # Of each class, because a derived `__init__` often passes `**kwargs` on.
            parameters = inspect.signature(source.__init__ if isinstance(source, type) else source).parameters  # type: ignore[misc]
        except (TypeError, ValueError):
            # of code that was compiled, or no function
            continue
        named = (each for each in parameters.values() if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY))
        found |= {each.name: each.default for each in named}
    return found
