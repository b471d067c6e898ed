# SPDX-License-Identifier: Apache-2.0
"""Packed checkpoints of Lightning: ``Trainer(plugins=[TersorCheckpointIO()])`` saves and resumes as ever."""
from __future__ import annotations

import os
from typing import Any, Dict, Optional

import torch

try:
    from lightning.pytorch.plugins.io import CheckpointIO
except ImportError:
    from pytorch_lightning.plugins.io import CheckpointIO

from tersor.saving import remove, save_value
from tersor.torch import read

__all__ = ["TersorCheckpointIO"]


class TersorCheckpointIO(CheckpointIO):
    """Checkpoints are packed files under the names that Lightning gives them.

    Parameters
    ----------
    **form
        `state`, `weights` and `entropy` of `tersor.torch.save`.
    """

    def __init__(self, **form: Any):
        self.form = form

    def save_checkpoint(self, checkpoint: Dict[str, Any], path: Any, storage_options: Optional[Any] = None) -> None:
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        save_value(path, checkpoint, **self.form)

    def load_checkpoint(self, path: Any, map_location: Optional[Any] = None, *_: Any, **__: Any) -> Dict[str, Any]:
        value = read(path)
        return torch.utils._pytree.tree_map(
            lambda x: x.to(map_location) if isinstance(x, torch.Tensor) and isinstance(map_location, (str, torch.device))
            else x, value)

    def remove_checkpoint(self, path: Any) -> None:
        remove(path)
