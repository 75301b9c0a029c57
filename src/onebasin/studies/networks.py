"""The networks that studies name in their configurations, with their data."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from onebasin import nets
from onebasin.studies.config import Part, StudyConfig
from onebasin.studies.setting import Setting, load_data, mlp_setting
from onebasin.studies.sources import kept

TrainIn = Annotated[
    Literal["bfloat16"] | None,
    Field(
        description="Type of products and activations while networks are trained; single precision "
        "if left out, as weights and all that tables show always are."
    ),
]


class NetConfig(Part):
    """A network by name and size."""

    kind: Literal["mlp", "resnet", "optunet", "resnet18"] = Field(
        "mlp", description="Which architecture; `resnet` with three stages of three is ResNet20."
    )
    hidden: tuple[int, ...] = Field((64,), description="Widths of the hidden layers of an MLP.")
    width: int = Field(16, ge=1, description="Channels of the first stage of a residual network.")
    stages: int = Field(3, ge=1, description="Stages of `resnet`, each of twice the channels.")
    blocks: int = Field(3, ge=1, description="Blocks in each stage of `resnet`.")
    norm: Literal["frn", "layer", "group"] = Field(
        "frn", description="Normalisation of residual networks; batch statistics have no posterior."
    )
    activation: str = Field("relu", description="Activation of MLPs and residual networks.")
    identity_start: bool = Field(
        False,
        description="Whether blocks of residual networks start by adding nothing.",
    )

    @model_serializer(mode="wrap")
    def _without_what_came_later(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """What came later changes no fingerprint where it is left out."""
        found: dict[str, Any] = serialize(self)
        if not self.identity_start:
            found.pop("identity_start", None)
        return found

    @property
    def label(self) -> str:
        """What tables call it."""
        if self.kind == "mlp":
            return "MLP " + "-".join(map(str, self.hidden))
        if self.kind == "optunet":
            return "OptuNet"
        depth = 18 if self.kind == "resnet18" else 2 * self.stages * self.blocks + 2
        start = ", identity start" if self.identity_start else ""
        return f"ResNet{depth}, width {self.width}{start}"

    def build(self, outputs: int) -> nets.Net:
        """The network with so many outputs."""
        if self.kind == "mlp":
            return nets.mlp(self.hidden, outputs, self.activation)
        if self.kind == "optunet":
            return nets.optunet(outputs)
        if self.kind == "resnet18":
            return nets.resnet18(
                outputs, self.norm, self.width, self.activation, self.identity_start
            )
        return nets.resnet(
            (self.blocks,) * self.stages,
            outputs,
            self.norm,
            self.width,
            self.activation,
            identity_start=self.identity_start,
        )


@kept(8)
def load_setting(
    net: NetConfig, config: StudyConfig, dataset: str | None = None
) -> tuple[str, Setting]:
    """The network and the data that a configuration names, and what to call them.

    Kept, so that stages share compiled programs.

    Args:
        net: The network, unless the configuration names a user's own.
        config: Says which data, and how many.
        dataset: Another data set than the configuration's.
    """
    source = config.data or dataset or config.dataset
    if dataset is not None:
        config = config.model_copy(update={"dataset": dataset})
    if config.model is not None:
        return f"{config.model} on {source}", mlp_setting(config, [])
    train, test = load_data(config, flat=net.kind == "mlp")
    classes = int(np.max(np.asarray(train[1]))) + 1
    return f"{net.label} on {source}", Setting(net.build(classes), train, test)
