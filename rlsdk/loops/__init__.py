"""Training loops, one per family. Each is a short generator that knows nothing of logs, files or callbacks."""

from rlsdk.loops.cursor import Cursor
from rlsdk.loops.off_policy import learn_from_buffer, off_policy
from rlsdk.loops.offline import learn_offline
from rlsdk.loops.on_policy import on_policy
from rlsdk.loops.population import population
from rlsdk.parts import OffPolicyPlan, OnPolicyPlan, PopulationPlan

LOOPS = {OffPolicyPlan: off_policy, OnPolicyPlan: on_policy, PopulationPlan: population}
"""Kind of plan -> the loop that follows it."""

__all__ = ["LOOPS", "Cursor", "learn_from_buffer", "learn_offline", "off_policy", "on_policy", "population"]
