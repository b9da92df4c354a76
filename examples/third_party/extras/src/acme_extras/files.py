"""A serializer that writes agent files which numpy can read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

DOCUMENT = "document"


class NumpyFiles:
    """A `Serializer` for .npz files with named arrays and a JSON document. Reading such a file executes no code."""

    def save(self, path: Path, tensors: Mapping[str, Tensor], document: Mapping[str, object]) -> None:
        arrays = {f"tensor {name}": tensor.numpy(force=True) for name, tensor in tensors.items()}
        with path.open("wb") as stream:
            np.savez(stream, allow_pickle=False, **{DOCUMENT: np.array(json.dumps(document)), **arrays})

    def load(self, path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
        with np.load(path, allow_pickle=False) as data:
            names = [name for name in data.files if name != DOCUMENT]
            tensors = {name.removeprefix("tensor "): torch.from_numpy(data[name]) for name in names}
            return tensors, json.loads(str(data[DOCUMENT]))

    def inspect(self, path: Path) -> dict[str, Any]:
        tensors, document = self.load(path)
        return {"document": document, "tensors": {n: [str(t.dtype), list(t.shape)] for n, t in tensors.items()}}
