from rlsdk.agent.agent import Agent as Agent
from rlsdk.agent.agent import load as load
from rlsdk.agent.agent import make as make
from rlsdk.registry.discovery import algorithms as algorithms
from rlsdk.registry.discovery import register as register

__version__: str
