"""Options that change an environment. The commands that make environments share them."""

from __future__ import annotations

from typing import Annotated

import typer

EnvKwargs = Annotated[
    list[str] | None,
    typer.Option("--env-kwargs", help="NAME=VALUE: an argument of the environment. Can be repeated."),
]
Wrappers = Annotated[
    list[str] | None,
    typer.Option(
        "--wrapper",
        help="A wrapper of the environment, innermost first: a name of gymnasium.wrappers or rlsdk.environments, or"
        " package.module:Class, also with arguments: 'NAME(ARGUMENT=VALUE)'. Can be repeated.",
    ),
]
TrustedFile = Annotated[
    bool,
    typer.Option("--trust", help="Allow an agent file from elsewhere to name a module to import for its environment."),
]
