"""Names and shapes of stable-baselines3 for rlsdk. Public names are imported on first use.

    from rlsdk_sb3 import BaseCallback

The core asks this package for attributes, callbacks and environments that only stable-baselines3 has; see
`rlsdk.runtime.lazy.of_sb3`. `_FOR_THE_CORE` has what it calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.runtime.lazy import attach

if TYPE_CHECKING:
    from rlsdk_sb3.callbacks import BaseCallback as BaseCallback
    from rlsdk_sb3.callbacks import EvalCallback as EvalCallback
    from rlsdk_sb3.callbacks import EventCallback as EventCallback
    from rlsdk_sb3.callbacks import EveryNTimesteps as EveryNTimesteps
    from rlsdk_sb3.callbacks import FunctionCallback as FunctionCallback
    from rlsdk_sb3.callbacks import LogEveryNTimesteps as LogEveryNTimesteps
    from rlsdk_sb3.callbacks import MaskableEvalCallback as MaskableEvalCallback
    from rlsdk_sb3.callbacks import ProgressBarCallback as ProgressBarCallback
    from rlsdk_sb3.callbacks import StopTrainingOnMaxEpisodes as StopTrainingOnMaxEpisodes
    from rlsdk_sb3.callbacks import StopTrainingOnNoModelImprovement as StopTrainingOnNoModelImprovement
    from rlsdk_sb3.callbacks import StopTrainingOnRewardThreshold as StopTrainingOnRewardThreshold
    from rlsdk_sb3.extractors import BaseFeaturesExtractor as BaseFeaturesExtractor
    from rlsdk_sb3.extractors import CombinedExtractor as CombinedExtractor
    from rlsdk_sb3.extractors import FlattenExtractor as FlattenExtractor
    from rlsdk_sb3.extractors import NatureCNN as NatureCNN
    from rlsdk_sb3.loggers import CSVOutputFormat as CSVOutputFormat
    from rlsdk_sb3.loggers import HumanOutputFormat as HumanOutputFormat
    from rlsdk_sb3.loggers import JSONOutputFormat as JSONOutputFormat
    from rlsdk_sb3.loggers import TensorBoardOutputFormat as TensorBoardOutputFormat
    from rlsdk_sb3.loggers import configure as configure
    from rlsdk_sb3.vector import NumpyVectorEnv as NumpyVectorEnv

__version__ = "0.1.0"
HOMES = {
    **dict.fromkeys(
        (
            *("BaseCallback", "EvalCallback", "EventCallback", "EveryNTimesteps", "FunctionCallback"),
            *("LogEveryNTimesteps", "MaskableEvalCallback", "ProgressBarCallback", "StopTrainingOnMaxEpisodes"),
            *("StopTrainingOnNoModelImprovement", "StopTrainingOnRewardThreshold"),
        ),
        "rlsdk_sb3.callbacks",
    ),
    **dict.fromkeys(
        ("BaseFeaturesExtractor", "CombinedExtractor", "FlattenExtractor", "NatureCNN"), "rlsdk_sb3.extractors"
    ),
    **dict.fromkeys(
        ("CSVOutputFormat", "HumanOutputFormat", "JSONOutputFormat", "TensorBoardOutputFormat", "configure"),
        "rlsdk_sb3.loggers",
    ),
    "NumpyVectorEnv": "rlsdk_sb3.vector",
}
_FOR_THE_CORE = {
    **dict.fromkeys(("ATTRIBUTES", "advice", "known"), "rlsdk_sb3.names"),
    "adapted_callback": "rlsdk_sb3.callbacks",
    "called_back": "rlsdk_sb3.steps",
    "without_effect": "rlsdk_sb3.agents",
}
__all__ = sorted(HOMES)  # noqa: PLE0605  # type checkers read the imports above
__getattr__, __dir__ = attach(__name__, {**HOMES, **_FOR_THE_CORE})
