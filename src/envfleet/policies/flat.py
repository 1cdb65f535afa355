"""All weights of a module in one flat array, so that they are published, copied and updated as one block.

Parameters come first, then the float32 buffers in the module's state dict (running statistics). Each tensor starts at a
64-byte boundary, because the last bits of small matrix products may depend on the alignment of their inputs. The
padding between tensors is zero and stays zero: its gradient is zero.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from envfleet.errors import SettingsError

__all__ = ["FlatParameters"]

Array = np.ndarray[Any, Any]
_BYTES = 64
_STEP = _BYTES // 4  # float32 numbers between two boundaries


class FlatParameters:
    """Makes the weights of `module` views of one flat float32 array.

    `storage` may be a part of shared memory (float32, 64-byte aligned, `size_of(module)` long). It is overwritten with
    the module's current weights; with `adopt=True`, the module takes its weights from `storage` instead. Without
    `storage`, an aligned array is allocated on the module's device.

    `.parameters` is one `nn.Parameter` over the trainable part, with `.gradient` as its `.grad`. An optimiser over this
    one parameter updates all weights in one call. Reset gradients with `zero_gradient()`; an optimiser's `zero_grad()`
    would drop the view. `load_state_dict` copies in place, so the views stay valid (not with `assign=True`).
    """

    def __init__(self, module: nn.Module, storage: Array | None = None, *, adopt: bool = False) -> None:
        size = self.size_of(module)
        device = next((parameter.device for parameter in module.parameters()), torch.device("cpu"))
        self._adopt = adopt and storage is not None
        if storage is None:
            self.data: Tensor = _aligned_zeros(size, device)
        else:
            self.data = _checked(storage, size, device)
            if not self._adopt:
                self.data.zero_()  # the padding too
        trainable = sum(map(_padded, module.parameters()))
        self.gradient: Tensor = _aligned_zeros(trainable, device)
        self.parameters = nn.Parameter(self.data[:trainable])
        self.parameters.grad = self.gradient

        offset = 0
        for parameter in module.parameters():
            parameter.data = self._take(parameter, offset)
            parameter.grad = self._window(self.gradient, parameter, offset)
            offset += _padded(parameter)
        for buffer in _published_buffers(module):
            buffer.data = self._take(buffer, offset)
            offset += _padded(buffer)

    @staticmethod
    def size_of(module: nn.Module) -> int:
        """Length of the flat float32 array of `module`, including padding."""
        for name, parameter in module.named_parameters():
            if parameter.dtype != torch.float32:
                raise SettingsError(
                    f"parameter {name!r} is {parameter.dtype}, expected torch.float32",
                    hint="weights are kept in one flat float32 array; call .float() on the module",
                )
        return sum(map(_padded, [*module.parameters(), *_published_buffers(module)]))

    def span_of(self, module: nn.Module) -> slice:
        """Return the part of the flat array with the trainable weights of a submodule, which has to be contiguous."""
        starts = [tensor.storage_offset() - self.data.storage_offset() for tensor in module.parameters()]
        span = slice(
            min(starts), max(start + _padded(tensor) for start, tensor in zip(starts, module.parameters(), strict=True))
        )
        assert span.stop - span.start == sum(map(_padded, module.parameters())), "the weights are not contiguous"
        return span

    def copy_from(self, array: Array | Tensor) -> None:
        """Copy all weights and buffers from another flat array of the same module."""
        source = torch.from_numpy(array) if isinstance(array, np.ndarray) else array
        with torch.no_grad():
            self.data.copy_(source)

    def numpy(self) -> Array:
        """The whole flat array; it shares memory with the module, or is a copy if the module is on a GPU."""
        array: Array = self.data.cpu().numpy()
        return array

    def zero_gradient(self) -> None:
        """Set all gradients to zero in place."""
        self.gradient.zero_()

    def _take(self, tensor: Tensor, offset: int) -> Tensor:
        view = self._window(self.data, tensor, offset)
        if not self._adopt:
            view.copy_(tensor.detach())
        return view

    @staticmethod
    def _window(flat: Tensor, tensor: Tensor, offset: int) -> Tensor:
        part = flat[offset : offset + tensor.numel()]
        if tensor.dim() == 4:  # a convolution: torch is fastest with channels last
            outputs, inputs, height, width = tensor.shape
            return part.view(outputs, height, width, inputs).permute(0, 3, 1, 2)
        return part.view(tensor.shape)


def _padded(tensor: Tensor) -> int:
    return math.ceil(tensor.numel() / _STEP) * _STEP


def _published_buffers(module: nn.Module) -> list[Tensor]:
    """The float32 buffers in the module's state dict; constants are not, each process builds them itself."""
    state = module.state_dict().keys()
    return [buffer for name, buffer in module.named_buffers() if name in state and buffer.dtype == torch.float32]


def _aligned_zeros(size: int, device: torch.device) -> Tensor:
    if device.type != "cpu":
        return torch.zeros(size, device=device)
    raw = np.zeros(size + _STEP, np.float32)
    start = (-raw.ctypes.data % _BYTES) // 4
    return torch.from_numpy(raw[start : start + size])


def _checked(storage: Array, size: int, device: torch.device) -> Tensor:
    aligned = storage.ctypes.data % _BYTES == 0 and storage.flags.c_contiguous and storage.flags.writeable
    if storage.dtype != np.float32 or storage.shape != (size,) or not aligned:
        raise SettingsError(
            f"storage is {storage.dtype} {storage.shape} at {storage.ctypes.data % _BYTES} bytes behind a 64-byte "
            f"boundary, expected a writeable float32 array ({size},) at such a boundary",
            hint="ask FlatParameters.size_of(module) for the length",
        )
    if device.type != "cpu":
        raise SettingsError(
            f"storage is in the memory of the machine, but the module is on {device}",
            hint="leave storage out and copy the weights with numpy()",
        )
    return torch.from_numpy(storage)
