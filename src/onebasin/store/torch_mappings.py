"""Where torch users keep the tensors of our networks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from onebasin.store.errors import CheckpointError

# Where the axes of a torch tensor go: (out, in) to (in, out), (O, I, H, W) to (H, W, I, O).
LAYOUTS: dict[str, tuple[int, ...] | None] = {
    "linear": (1, 0),
    "conv": (2, 3, 1, 0),
    "same": None,
}


@dataclasses.dataclass(frozen=True)
class TorchTensor:
    """Where a leaf lies in a torch checkpoint.

    Args:
        names: Its name, or several of which a file has one.
        layout: "linear" (out, in), "conv" (out, in, height, width), or "same" as ours.
    """

    names: str | tuple[str, ...]
    layout: str

    def __post_init__(self) -> None:
        if self.layout not in LAYOUTS:
            raise ValueError(
                f"got layout={self.layout!r}, expected one of {', '.join(map(repr, LAYOUTS))}"
            )
        if isinstance(self.names, str):
            object.__setattr__(self, "names", (self.names,))


TorchMapping = Mapping[str, TorchTensor | str]


def torch_mapping(net: str) -> dict[str, TorchTensor]:
    """The names that torch users give the tensors of one of our networks.

    Args:
        net: "optunet" or "resnet18", for `nets.optunet` and `nets.resnet18`: ResNet-18 as
            torchvision and TorchUncertainty write it, with the statistics of its normalisations.

    Returns:
        Where each leaf lies; change entries where a file has other names.

    Example:
        >>> from onebasin.store import torch_mapping
        >>> torch_mapping("optunet")["Dense_0/kernel"]
        TorchTensor(names=('fc.weight', 'linear.weight'), layout='linear')
    """
    if net not in MAPPINGS:
        known = ", ".join(map(repr, MAPPINGS))
        raise CheckpointError(f"got the mapping {net!r}, expected one of {known}, or a dictionary.")
    return dict(MAPPINGS[net])


def _resnet18() -> dict[str, TorchTensor]:
    mapping = {
        "params/conv/kernel": TorchTensor("conv1.weight", "conv"),
        "params/head/kernel": TorchTensor(("fc.weight", "linear.weight"), "linear"),
        "params/head/bias": TorchTensor(("fc.bias", "linear.bias"), "same"),
        **_batch_norm("norm", ("bn1",)),
    }
    for stage in range(1, 5):
        for block in range(1, 3):
            ours, theirs = f"stage{stage}_block{block}", f"layer{stage}.{block - 1}"
            for part in (1, 2):
                kernel = TorchTensor(f"{theirs}.conv{part}.weight", "conv")
                mapping[f"params/{ours}/conv{part}/kernel"] = kernel
                mapping |= _batch_norm(f"{ours}/norm{part}", (f"{theirs}.bn{part}",))
            if stage > 1 and block == 1:
                skips = (f"{theirs}.downsample", f"{theirs}.shortcut")
                kernel = TorchTensor(tuple(f"{skip}.0.weight" for skip in skips), "conv")
                mapping[f"params/{ours}/conv_skip/kernel"] = kernel
                mapping |= _batch_norm(f"{ours}/norm_skip", [f"{skip}.1" for skip in skips])
    return mapping


def _batch_norm(ours: str, theirs: Sequence[str]) -> dict[str, TorchTensor]:
    parts = {
        f"params/{ours}/scale": "weight",
        f"params/{ours}/bias": "bias",
        f"batch_stats/{ours}/mean": "running_mean",
        f"batch_stats/{ours}/var": "running_var",
    }
    return {
        leaf: TorchTensor(tuple(f"{name}.{part}" for name in theirs), "same")
        for leaf, part in parts.items()
    }


MAPPINGS = {
    "optunet": {
        "Conv_0/kernel": TorchTensor("conv1.weight", "conv"),
        "Conv_1/kernel": TorchTensor("conv2.weight", "conv"),
        "Dense_0/kernel": TorchTensor(("fc.weight", "linear.weight"), "linear"),
        "Dense_0/bias": TorchTensor(("fc.bias", "linear.bias"), "same"),
    },
    "resnet18": _resnet18(),
}
