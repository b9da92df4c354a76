from rlsdk_parallel.collector import join_rollouts as join_rollouts
from rlsdk_parallel.environments import CollectorsVectorEnv as CollectorsVectorEnv
from rlsdk_parallel.environments import ExecutorVectorEnv as ExecutorVectorEnv
from rlsdk_parallel.environments import make_collectors as make_collectors
from rlsdk_parallel.executors import FuturesExecutor as FuturesExecutor
from rlsdk_parallel.executors import Processes as Processes
from rlsdk_parallel.process_vector import ProcessOptions as ProcessOptions
from rlsdk_parallel.process_vector import ProcessVectorEnv as ProcessVectorEnv
from rlsdk_parallel.processes import HasStatefulWorkers as HasStatefulWorkers
from rlsdk_parallel.processes import StatefulWorkers as StatefulWorkers
from rlsdk_parallel.workers import WorkerDied as WorkerDied
from rlsdk_parallel.workers import attempt as attempt
from rlsdk_parallel.workers import result_of as result_of
from rlsdk_parallel.workers import unsendable as unsendable

__version__: str
