"""Convolutions of many clients at once as matrix products, for :class:`fedsim.learning.kernels.vmap.VmapKernel`.

``torch.func.vmap`` turns the convolutions of b clients, each with its own weights, into one grouped convolution, whose
backward pass cuDNN runs group by group. Here the patches of all images are copied into the rows of a matrix
("im2col"), and each client's weights are a factor of one batched product. Images lie in memory channels last.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

Pair = tuple[int, int]
_ARGUMENTS = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")


class BatchedConvolutions(TorchFunctionMode):
    """Inside ``vmap``, computes 2-d convolutions of one group without dilation by :func:`_convolve`."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is not torch.conv2d:
            return func(*args, **kwargs)
        given = dict(zip(_ARGUMENTS, args, strict=False)) | kwargs
        padding = given.get("padding", 0)
        plain = given.get("groups", 1) == 1 and _pair(given.get("dilation", 1)) == (1, 1)
        images, weight, bias = given["input"], given["weight"], given.get("bias")
        if not plain or isinstance(padding, str) or images.ndim != 4:
            return func(*args, **kwargs)
        device = images.device.type
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
            images, weight = images.to(dtype), weight.to(dtype)
        options = _pair(given.get("stride", 1)), _pair(padding)
        result = _batched(_convolve, images, weight, *options)
        return result if bias is None else result + bias.to(result.dtype).view(-1, 1, 1)


class _Batched(torch.autograd.Function):
    """One of the functions below of two tensors, batched over clients by ``vmap``.

    The convolution, of images (n, C, H, W) with weights (O, C, h, w), can be differentiated once.
    """

    @staticmethod
    def forward(function: Any, first: Tensor, second: Tensor, *options: Pair) -> Tensor:
        result: Tensor = function(first[None], second[None], *options)[0]
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        function, images, weight, *ctx.options = inputs
        if function is _convolve:
            ctx.save_for_backward(images, weight)

    @staticmethod
    def backward(ctx: Any, delta: Tensor) -> Any:
        images, weight = ctx.saved_tensors
        size, kernel = _pair(images.shape[-2:]), _pair(weight.shape[-2:])
        of_images = None
        if ctx.needs_input_grad[1]:
            of_images = _batched(_image_gradient, delta, weight, size, *ctx.options)
        of_weight = _batched(_weight_gradient, images, delta, kernel, *ctx.options)
        return None, of_images, of_weight, None, None

    @staticmethod
    def vmap(
        info: Any, dims: Any, function: Any, first: Tensor, second: Tensor, *options: Pair
    ) -> tuple[Tensor, int]:
        # With the clients in front.
        first, second = (
            tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
            for tensor, dim in ((first, dims[1]), (second, dims[2]))
        )
        return function(first, second, *options), 0


def _batched(function: Any, *arguments: Any) -> Tensor:
    result: Tensor = _Batched.apply(function, *arguments)  # type: ignore[no-untyped-call]
    return result


def _convolve(images: Tensor, weight: Tensor, stride: Pair, padding: Pair) -> Tensor:
    """(b, n, C, H, W) and (b, O, C, h, w) to (b, n, O, H', W')."""
    b, n = images.shape[:2]
    patches = _patches(images, _pair(weight.shape[-2:]), stride, padding)
    product = torch.bmm(_rows(patches), _matrix(weight))
    return product.view(b, n, *patches.shape[2:4], -1).movedim(-1, 2)


def _weight_gradient(
    images: Tensor, delta: Tensor, kernel: Pair, stride: Pair, padding: Pair
) -> Tensor:
    patches = _patches(images, kernel, stride, padding)
    product = torch.bmm(_rows(delta.movedim(2, -1)).mT, _rows(patches))
    return product.view(*product.shape[:2], *kernel, -1).movedim(-1, 2)


def _image_gradient(
    delta: Tensor, weight: Tensor, size: Pair, stride: Pair, padding: Pair
) -> Tensor:
    b, n, _, *moves = delta.shape
    channels, *kernel = weight.shape[2:]
    products = torch.bmm(_rows(delta.movedim(2, -1)), _matrix(weight).mT)
    products = products.view(b, n, *moves, *kernel, channels)
    padded = [length + 2 * pad for length, pad in zip(size, padding, strict=True)]
    result = products.new_zeros(b, n, *padded, channels)
    # Sums in a fixed order; an addition per position of the kernel reads every product once.
    rows, columns = (1 + (m - 1) * s for m, s in zip(moves, stride, strict=True))
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            covered = result[:, :, i : i + rows : stride[0], j : j + columns : stride[1]]
            covered += products[:, :, :, :, i, j]
    top, left = padding
    return result[:, :, top : top + size[0], left : left + size[1]].movedim(-1, 2)


def _patches(images: Tensor, kernel: Pair, stride: Pair, padding: Pair) -> Tensor:
    """A view (b, n, H', W', h, w, C) of images (b, n, C, H, W), padded."""
    images = images.movedim(2, -1)
    if any(padding):
        images = functional.pad(images, (0, 0, padding[1], padding[1], padding[0], padding[0]))
    views: Tensor = images.unfold(2, kernel[0], stride[0]).unfold(3, kernel[1], stride[1])
    return views.movedim(4, -1)


def _rows(values: Tensor) -> Tensor:
    """(b, n, H, W, ...) to the rows of matrices, (b, n H W, ...)."""
    return values.reshape(values.shape[0], values.shape[1:4].numel(), -1)


def _matrix(weight: Tensor) -> Tensor:
    """(b, O, C, h, w) to (b, h w C, O), in the order of patches."""
    return weight.movedim(2, -1).flatten(2).mT


def _pair(value: Any) -> Pair:
    return (value, value) if isinstance(value, int) else (int(value[0]), int(value[-1]))
