"""Names of policies that can be imported like the documented policy classes, for the parameter `policy`."""

from __future__ import annotations

from typing import Self

from rlsdk.errors import UsageError


class PolicyName(str):
    """The name of a policy as an object that can be imported. `PolicyName("MlpPolicy")` and "MlpPolicy" are equivalent.

    Raises:
        UsageError: a class statement uses the name as its base class.
    """

    __slots__ = ()

    def __new__(cls, name: str, *class_statement: object) -> Self:
        if class_statement:  # Python calls type(base)(name, bases, namespace)
            bases = class_statement[0]
            base = str.__str__(bases[0]) if isinstance(bases, tuple) else cls.__name__
            raise UsageError(
                f"class {name}: {base!r} names a policy and cannot be a base class; change networks with policy_kwargs"
                " (net_arch, features_extractor_class, actor_class, critic_class, network_class), or write a plugin (rlsdk new)"
            )
        return super().__new__(cls, name)
