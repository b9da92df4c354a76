"""Objects of users' classes, made and tried so that every error of their code becomes one of rlsdk's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from torch import nn

from rlsdk.errors import RlsdkError, SettingsError, one_line

LONGEST = 300
"""Characters of a user's error in ours."""


@dataclass(frozen=True, slots=True)
class UserClass:
    """A class, or function that makes a module, which a user gave by a setting of an algorithm."""

    algorithm: str
    """Id, for errors; may be empty."""
    setting: str
    """Of `policy_kwargs`; it ends in `_class`."""
    kind: Callable[..., nn.Module]
    arguments: Mapping[str, object]

    def __str__(self) -> str:
        """For errors: the algorithm, the setting, the class."""
        where = f"{self.algorithm}: policy_kwargs.{self.setting}" if self.algorithm else f"policy_kwargs.{self.setting}"
        return f"{where} {getattr(self.kind, '__name__', repr(self.kind))}"

    def build(self, **first: object) -> nn.Module:
        """The module of the class, called with the values of `first` in order and the user's arguments.

        Raises:
            SettingsError: it takes other arguments, raises anything else, or makes no module.
        """
        called = f"it is called with ({', '.join(first)}) and {self.setting.removesuffix('class')}kwargs {dict(self.arguments)}"
        with self.errors(f"{self} cannot be made", called):
            module: object = self.kind(*first.values(), **self.arguments)
        if not isinstance(module, nn.Module):
            raise SettingsError(f"{self} must give a torch.nn.Module, not {type(module).__name__}; {called}")
        return module

    @contextmanager
    def errors(self, what: str, remedy: str) -> Iterator[None]:
        """Raises SettingsError for every error of the user's code; errors of rlsdk pass."""
        try:
            yield
        except RlsdkError:
            raise
        except Exception as error:  # a user's code may raise anything
            cause = one_line(error, LONGEST) if str(error) else type(error).__name__
            raise SettingsError(f"{what}: {cause}; {remedy}") from error
