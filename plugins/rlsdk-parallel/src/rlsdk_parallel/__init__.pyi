from rlsdk_parallel.environments import CollectorsVectorEnv as CollectorsVectorEnv
from rlsdk_parallel.environments import ExecutorVectorEnv as ExecutorVectorEnv
from rlsdk_parallel.environments import make_collectors as make_collectors
from rlsdk_parallel.executors import FuturesExecutor as FuturesExecutor
from rlsdk_parallel.executors import Processes as Processes

__version__: str
