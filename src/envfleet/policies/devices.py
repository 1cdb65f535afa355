"""Arrays as tensors on the learner's device."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["to_device"]


def to_device(array: np.ndarray[Any, Any], device: torch.device) -> Tensor:
    """Return an array as a tensor on the device; on the CPU it shares the array's memory.

    MPS has no float64. The networks read float32 anyway, so the conversion happens before the copy.
    """
    tensor = torch.from_numpy(array)
    if device.type == "cpu":
        return tensor
    if device.type == "mps" and tensor.dtype == torch.float64:
        tensor = tensor.float()
    return tensor.to(device)
