"""The networks and data that studies name in their configurations."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field

from onebasin import data, nets
from onebasin.studies.config import Part, StudyConfig
from onebasin.studies.errors import StudyError

Arrays = tuple[np.ndarray, np.ndarray]


class NetConfig(Part):
    """A network by name and size."""

    kind: Literal["mlp", "resnet", "optunet", "resnet18"] = Field(
        "mlp", description="Which architecture; `resnet` with three blocks a stage is ResNet20."
    )
    hidden: tuple[int, ...] = Field((64,), description="Widths of the hidden layers of an MLP.")
    width: int = Field(16, ge=1, description="Channels of the first stage of a residual network.")
    blocks: int = Field(3, ge=1, description="Blocks in each of the three stages of `resnet`.")
    norm: Literal["frn", "layer", "group"] = Field(
        "frn", description="Normalisation of residual networks; batch statistics have no posterior."
    )
    activation: str = Field("relu", description="Activation of MLPs and residual networks.")

    @property
    def label(self) -> str:
        """What tables call it."""
        if self.kind == "mlp":
            return "MLP " + "-".join(map(str, self.hidden))
        if self.kind == "optunet":
            return "OptuNet"
        depth = 18 if self.kind == "resnet18" else 6 * self.blocks + 2
        return f"ResNet{depth}, width {self.width}"

    def build(self, outputs: int) -> nets.Net:
        """The network with so many outputs."""
        if self.kind == "mlp":
            return nets.mlp(self.hidden, outputs, self.activation)
        if self.kind == "optunet":
            return nets.optunet(outputs)
        if self.kind == "resnet18":
            return nets.resnet18(outputs, self.norm, self.width, self.activation)
        return nets.resnet((self.blocks,) * 3, outputs, self.norm, self.width, self.activation)


class Setting(NamedTuple):
    """A network with its data."""

    net: nets.Net
    train: Arrays
    test: Arrays
    name: str


def load_setting(net: NetConfig, config: StudyConfig, dataset: str | None = None) -> Setting:
    """The network and the data that a configuration names.

    Args:
        net: The network.
        config: Says which data, and how many.
        dataset: Another data set than the configuration's.
    """
    name = dataset or config.dataset
    found = data.load(name)
    if found.num_classes is None:
        raise StudyError(f"{name} is a regression, and this study needs classes")
    train, test = (
        _shaped(net, first(found.part(part), count))
        for part, count in (("train", config.train_size), ("test", config.test_size))
    )
    return Setting(net.build(found.num_classes), train, test, f"{net.label} on {name}")


def first(part: Arrays, count: int | None) -> Arrays:
    """The first examples, or all."""
    inputs, targets = part
    return inputs[:count], targets[:count]


def _shaped(net: NetConfig, part: Arrays) -> Arrays:
    inputs, targets = part
    return (flat(inputs) if net.kind == "mlp" else inputs), targets


def flat(inputs: np.ndarray) -> np.ndarray:
    """Images as rows."""
    return inputs.reshape(len(inputs), -1)
