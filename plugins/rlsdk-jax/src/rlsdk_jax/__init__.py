"""Environments that are written in JAX, as vector environments of torch tensors.

Importing this package registers the ids `gymnax/...` and `brax/...` with gymnasium. rlsdk finds them without an import.
"""

from typing import TYPE_CHECKING

from rlsdk.registry import public_names
from rlsdk_jax.hooks import register as _register

if TYPE_CHECKING:
    from rlsdk_jax.single import FunctionalEnv as FunctionalEnv
    from rlsdk_jax.tasks import Moved as Moved
    from rlsdk_jax.tasks import Task as Task
    from rlsdk_jax.tasks import task_of as task_of
    from rlsdk_jax.vector import JaxVectorEnv as JaxVectorEnv
    from rlsdk_jax.vector import make_jax_vec_env as make_jax_vec_env

__version__ = "0.1.0"

__getattr__, __dir__ = public_names(
    __name__,
    FunctionalEnv="rlsdk_jax.single",
    JaxVectorEnv="rlsdk_jax.vector",
    Moved="rlsdk_jax.tasks",
    Task="rlsdk_jax.tasks",
    make_jax_vec_env="rlsdk_jax.vector",
    task_of="rlsdk_jax.tasks",
)
_register()
