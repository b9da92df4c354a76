"""Creates objects of users' classes. Every error of their code is raised as an error of rlsdk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from torch import nn

from rlsdk.errors import RlsdkError, SettingsError, one_line

LONGEST = 300
"""The maximum number of characters of a user's error in an error of rlsdk."""


@dataclass(frozen=True, slots=True)
class UserClass:
    """A class, or a function that makes a module, from a user's settings."""

    algorithm: str
    """The id of the algorithm, for errors; may be empty."""
    setting: str
    """The name of the setting in `policy_kwargs`; it ends with `_class`."""
    kind: Callable[..., nn.Module]
    arguments: Mapping[str, object]

    def __str__(self) -> str:
        """The algorithm, the setting and the class, for errors."""
        where = f"{self.algorithm}: policy_kwargs.{self.setting}" if self.algorithm else f"policy_kwargs.{self.setting}"
        return f"{where} {getattr(self.kind, '__name__', repr(self.kind))}"

    def build(self, **first: object) -> nn.Module:
        """Create the module with the values of `first`, in order, and the user's arguments.

        Raises:
            SettingsError: the class takes other arguments, raises an error, or makes no module.
        """
        called = f"it is called with ({', '.join(first)}) and {self.setting.removesuffix('class')}kwargs {dict(self.arguments)}"
        with self.errors(f"{self} cannot be made", called):
            module: object = self.kind(*first.values(), **self.arguments)
        if not isinstance(module, nn.Module):
            raise SettingsError(f"{self} must give a torch.nn.Module, not {type(module).__name__}; {called}")
        return module

    @contextmanager
    def errors(self, what: str, remedy: str) -> Iterator[None]:
        """Inside the `with` block, convert every error of the user's code to SettingsError. Errors of rlsdk are not
        converted."""
        try:
            yield
        except RlsdkError:
            raise
        except Exception as error:  # code of the user
            cause = one_line(error, LONGEST) if str(error) else type(error).__name__
            raise SettingsError(f"{what}: {cause}; {remedy}") from error
