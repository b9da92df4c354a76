"""An executor that runs work on Ray. Ray is imported when the executor is made, so that listing plugins is fast."""

from typing import TYPE_CHECKING

from rlsdk.registry import public_names

if TYPE_CHECKING:
    from rlsdk_ray.executor import RayExecutor as RayExecutor
    from rlsdk_ray.resources import Resources as Resources

__version__ = "0.1.0"

__getattr__, __dir__ = public_names(__name__, RayExecutor="rlsdk_ray.executor", Resources="rlsdk_ray.resources")
