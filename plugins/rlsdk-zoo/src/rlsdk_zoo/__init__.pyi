from rlsdk_zoo.installed import ZooAgent as ZooAgent
from rlsdk_zoo.installed import ZooResult as ZooResult
from rlsdk_zoo.installed import agents as agents
from rlsdk_zoo.installed import find as find
from rlsdk_zoo.installed import load as load

__version__: str
