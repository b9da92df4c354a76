"""Settings that stable-baselines3 stores as pickles: training frequencies, schedules, action noise, replay buffer classes.

The pickles are not run. Descriptions of known objects are converted to settings.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlsdk_interchange.pickle_description import Call, Name, described

MOST = 2**16
"""Longer pickles are not read, bytes."""
_BUFFERS = {"HerReplayBuffer": "hindsight", "ReplayBuffer": None, "DictReplayBuffer": None}
"""Replay buffer of stable-baselines3 -> `replay_buffer_class` here."""


def read_setting(entry: object) -> object:
    """Return the value of an entry of a file's settings that is stored as a pickle, in a form that rlsdk's settings accept.

    Raises:
        ValueError: the entry is not a pickle, or one of an unknown object.
    """
    text = entry.get(":serialized:") if isinstance(entry, Mapping) else None
    if not isinstance(text, str) or len(text) > 2 * MOST:
        raise ValueError("not a short pickle")
    try:
        return _setting(described(base64.b64decode(text, validate=True)))
    except Exception as error:  # a damaged pickle can raise any error
        raise ValueError(str(error)) from None


def _setting(node: object) -> object:
    """Return the setting that a description stands for. Raises ValueError if there is none."""
    if isinstance(node, dict):
        return {_text(key): _part(value) for key, value in node.items()}
    return _part(node)


def _part(node: object) -> object:
    if node is None or isinstance(node, bool | int | float | str):
        return node
    if isinstance(node, Name):
        return _buffer(node)
    node = _by_value(node)
    if isinstance(node, Call) and node.name in _OBJECTS:
        return _OBJECTS[node.name](node)
    raise ValueError(f"{type(node).__name__} is not a setting")


def _buffer(node: Name) -> str | None:
    """The name of the replay buffer here that does the same as a class; None is the default."""
    module, _, name = node.text.rpartition(".")
    if name not in _BUFFERS or not module.startswith("stable_baselines3."):
        raise ValueError(f"{node.text} is not a setting")
    return _BUFFERS[name]


def _text(node: object) -> str:
    if not isinstance(node, str):
        raise ValueError(f"{type(node).__name__} is not a text")
    return node


def _number(node: object) -> float:
    (found,) = _numbers(node)
    return found


def _numbers(node: object) -> list[float]:
    found: list[float] = array(node).ravel().tolist()
    return found


def array(node: object) -> NDArray[np.float64]:
    """Return the array [..] that a description stands for; [] for one number.

    Raises:
        ValueError: the object is something else, or its numbers are stored in another order.
    """
    if isinstance(node, bool | int | float):
        return np.array(node, np.float64)
    if not isinstance(node, Call):
        raise ValueError(f"{type(node).__name__} is not a number")
    shape: Any
    kind = node.name.rpartition(".")[2]
    if kind == "_frombuffer":
        content, dtype, shape, layout = node.arguments
    elif kind == "scalar":
        (dtype, content), shape, layout = node.arguments, (), "C"
    elif kind == "_reconstruct" and isinstance(node.state, tuple):
        _, shape, dtype, by_columns, content = node.state
        layout = "F" if by_columns else "C"
    else:
        raise ValueError(f"{node.name} is not an array")
    if not isinstance(dtype, Call) or dtype.name != "numpy.dtype" or not isinstance(content, bytes | bytearray):
        raise ValueError("an array without numbers")
    size, order = dtype.arguments[0], dtype.state[1] if isinstance(dtype.state, tuple) else ""
    if size not in ("f4", "f8", "i4", "i8") or order != "<" or layout != "C":
        raise ValueError("numbers of another type or in another order")
    return np.frombuffer(bytes(content), f"<{size}").astype(np.float64).reshape(shape)


def _by_value(node: object) -> object:
    """Describe a member of an Enum by its value. Python 3.11.0 to 3.11.3 store it as `getattr(class, name)`."""
    if not isinstance(node, Call) or node.name != "builtins.getattr":
        return node
    kind, member = node.arguments
    if not isinstance(kind, Name) or (kind.text, member) not in _MEMBERS:
        raise ValueError("an unknown attribute")
    return Call(kind.text, (_MEMBERS[kind.text, _text(member)],))


def _frequency(node: Call) -> object:
    count, unit = node.arguments[0], _by_value(node.arguments[1])
    if type(count) is not int or not isinstance(unit, Call) or not unit.name.endswith(".TrainFrequencyUnit"):
        raise ValueError("not a frequency")
    return count if unit.arguments == ("step",) else [count, _text(unit.arguments[0])]


def _schedule(node: Call) -> object:
    """Convert an object or a function; those of version 2.7 and later are objects."""
    kind, values = _origin(node)
    for _ in range(2):
        if kind in _WRAPPERS:
            kind, values = _origin(values["value_schedule"])
    if kind not in _SCHEDULES:
        raise ValueError(f"{kind} is not a known schedule")
    return _SCHEDULES[kind](values)


def _origin(node: object) -> tuple[str, Mapping[str, object]]:
    """Return (the class of an object, its attributes), or (the function in which a function was made, its variables)."""
    if not isinstance(node, Call) or not isinstance(node.state, dict):
        raise ValueError("not a schedule")
    if "__closure__" not in node.state:
        return node.name, node.state
    code, cells = node.arguments[0], node.state["__closure__"]
    names = code.arguments[-2] if isinstance(code, Call) else ()  # `co_freevars`
    if (
        not isinstance(names, tuple)
        or not isinstance(cells, tuple)
        or not all(isinstance(cell, Call) for cell in cells)
    ):
        raise ValueError("not a function")
    variables = {_text(name): cell.arguments[0] for name, cell in zip(names, cells, strict=True)}
    return f"{_text(node.state['__module__'])}.{_text(node.state['__qualname__']).partition('.')[0]}", variables


def _constant(values: Mapping[str, object]) -> object:
    return _number(values["val"])


def _linear(values: Mapping[str, object]) -> object:
    start, end, until = (_number(values[name]) for name in ("start", "end", "end_fraction"))
    return {"kind": "linear", "start": start, "end": end, "until": until}


def _linear_to_zero(values: Mapping[str, object]) -> object:
    (initial,) = values.values()
    return f"lin_{_number(initial)!r}"


def _noise(node: Call) -> dict[str, object]:
    return {"kind": "normal", "mean": _numbers(node.attribute("_mu")), "sigma": _numbers(node.attribute("_sigma"))}


def _ornstein_uhlenbeck(node: Call) -> dict[str, object]:
    first = node.attribute("initial_noise")
    return {
        **_noise(node),
        "kind": "ornstein-uhlenbeck",
        "theta": _number(node.attribute("_theta")),
        "dt": _number(node.attribute("_dt")),
        **({} if first is None else {"initial_noise": _numbers(first)}),
    }


def _noise_of_several(node: Call) -> object:
    """The noise of one environment. rlsdk stores the state of the noise for each environment."""
    inner = node.attribute("_base_noise")
    if not isinstance(inner, Call) or inner.name not in _NOISES:
        raise ValueError("an unknown noise")
    return _NOISES[inner.name](inner)


def _strategy(node: Call) -> object:
    return ("future", "final", "episode")[int(_number(*node.arguments))]


_Converter = Callable[[Call], object]
_COMMON = "stable_baselines3.common"
_WRAPPERS = f"{_COMMON}.utils.FloatSchedule", f"{_COMMON}.utils.get_schedule_fn"
_SCHEDULES: dict[str, Callable[[Mapping[str, object]], object]] = {
    f"{_COMMON}.utils.ConstantSchedule": _constant,
    f"{_COMMON}.utils.constant_fn": _constant,
    f"{_COMMON}.utils.LinearSchedule": _linear,
    f"{_COMMON}.utils.get_linear_fn": _linear,
    "rl_zoo3.utils.linear_schedule": _linear_to_zero,
    "utils.utils.linear_schedule": _linear_to_zero,  # earlier versions of the zoo
}
"""Class, or function that makes a function -> what converts its attributes or variables."""
_NOISES: dict[str, _Converter] = {
    f"{_COMMON}.noise.NormalActionNoise": _noise,
    f"{_COMMON}.noise.OrnsteinUhlenbeckActionNoise": _ornstein_uhlenbeck,
}
_UNITS = f"{_COMMON}.type_aliases.TrainFrequencyUnit"
_STRATEGIES = "stable_baselines3.her.goal_selection_strategy.GoalSelectionStrategy"
_MEMBERS: dict[tuple[str, object], object] = {
    (_UNITS, "STEP"): "step",
    (_UNITS, "EPISODE"): "episode",
    (_STRATEGIES, "FUTURE"): 0,
    (_STRATEGIES, "FINAL"): 1,
    (_STRATEGIES, "EPISODE"): 2,
}
"""(Enum, name of a member) -> its value."""
_OBJECTS: dict[str, _Converter] = {
    **_NOISES,
    f"{_COMMON}.utils.FloatSchedule": _schedule,
    f"{_COMMON}.utils.ConstantSchedule": _schedule,
    f"{_COMMON}.utils.LinearSchedule": _schedule,
    "cloudpickle.cloudpickle._make_function": _schedule,
    "cloudpickle.cloudpickle._builtin_type": _schedule,  # functions in older versions of cloudpickle
    f"{_COMMON}.noise.VectorizedActionNoise": _noise_of_several,
    f"{_COMMON}.type_aliases.TrainFreq": _frequency,
    _STRATEGIES: _strategy,
    "numpy._core.multiarray.scalar": _number,
    "numpy.core.multiarray.scalar": _number,
}
"""Class of an object -> what converts it to a setting."""
