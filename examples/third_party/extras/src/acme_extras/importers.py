"""A format for `rlsdk import`: weights in a file of numpy. The manifest lists it, and it is imported when it is used."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

import rlsdk
from rlsdk.errors import ArtifactError


def import_arrays(path: Path, algorithm: str, env: str, **settings: object) -> rlsdk.Agent:
    """Return an agent whose policy has the arrays of an .npz file as weights; their names are those of its parameters.

    Raises:
        ArtifactError: the file cannot be read, or its arrays do not fit the policy.
    """
    agent = rlsdk.make(algorithm, env=env, **settings)
    try:
        with np.load(path, allow_pickle=False) as arrays:
            weights = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
    except (OSError, ValueError) as error:
        raise ArtifactError(f"{path} cannot be read as an .npz file: {error}") from None
    agent.set_parameters({"policy": weights}, exact_match=False)
    return agent
