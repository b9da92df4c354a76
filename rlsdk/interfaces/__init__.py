"""The interfaces of rlsdk. Read this first.

The interfaces are Protocols (`typing.Protocol`): any object with the listed members implements one, without
inheritance. Shapes use the letters defined in `rlsdk.records`. `rlsdk_testing` checks every requirement stated here;
docs/contracts.md lists the checks with their ids.
"""

from rlsdk.interfaces.abilities import ability, shortcut
from rlsdk.interfaces.algorithms import (
    Algorithm,
    AllowsLag,
    Collected,
    CountsUpdates,
    FollowsPolicy,
    HasTdError,
    Proposes,
    Reconfigurable,
    SeesDiscarded,
    UpdatesSeveral,
)
from rlsdk.interfaces.buffers import Buffer, HasEpisodeRewards, HasObservations, Prioritized, SamplesSeveral
from rlsdk.interfaces.collecting import Collector, EpisodePlayer
from rlsdk.interfaces.context_protocols import Conversion, Frames, GoalRewards
from rlsdk.interfaces.distributions import ClosedForm, Distribution
from rlsdk.interfaces.environments import (
    CapturesState,
    HasDevice,
    HasMasks,
    HasSeparateEnvs,
    InformsOfSteps,
    KeepsInfos,
    MasksStates,
    PlaysEpisodes,
    SelectsInfo,
    StepsInPlace,
    TorchEnv,
    VectorEnv,
)
from rlsdk.interfaces.executors import Executor, HasStatefulWorkers, StatefulWorkers
from rlsdk.interfaces.parts import BuildContext, Parts, Training, require_spaces
from rlsdk.interfaces.plans import (
    ChecksParts,
    FollowsSettings,
    HasRolloutLength,
    LearnsOffline,
    NormalizesEpisodes,
    Plan,
)
from rlsdk.interfaces.policies import (
    ActsForRollouts,
    ActsInPlace,
    BeginsRollouts,
    EstimatesValues,
    FillsExtras,
    Imitates,
    Policy,
    RemembersActions,
    TorchPolicy,
)
from rlsdk.interfaces.state import State, Stateful
from rlsdk.interfaces.storage import Serializer

__all__ = [
    "ActsForRollouts",
    "ActsInPlace",
    "Algorithm",
    "AllowsLag",
    "BeginsRollouts",
    "Buffer",
    "BuildContext",
    "CapturesState",
    "ChecksParts",
    "ClosedForm",
    "Collected",
    "Collector",
    "Conversion",
    "CountsUpdates",
    "Distribution",
    "EpisodePlayer",
    "EstimatesValues",
    "Executor",
    "FillsExtras",
    "FollowsPolicy",
    "FollowsSettings",
    "Frames",
    "GoalRewards",
    "HasDevice",
    "HasEpisodeRewards",
    "HasMasks",
    "HasObservations",
    "HasRolloutLength",
    "HasSeparateEnvs",
    "HasStatefulWorkers",
    "HasTdError",
    "Imitates",
    "InformsOfSteps",
    "KeepsInfos",
    "LearnsOffline",
    "MasksStates",
    "NormalizesEpisodes",
    "Parts",
    "Plan",
    "PlaysEpisodes",
    "Policy",
    "Prioritized",
    "Proposes",
    "Reconfigurable",
    "RemembersActions",
    "SamplesSeveral",
    "SeesDiscarded",
    "SelectsInfo",
    "Serializer",
    "State",
    "Stateful",
    "StepsInPlace",
    "StatefulWorkers",
    "TorchEnv",
    "TorchPolicy",
    "Training",
    "UpdatesSeveral",
    "VectorEnv",
    "ability",
    "require_spaces",
    "shortcut",
]
