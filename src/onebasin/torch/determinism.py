"""What a graph may not do: draw random numbers, or behave as in training."""

from __future__ import annotations

from typing import Any

from onebasin.torch.errors import ConversionError
from onebasin.torch.export import Exported, node_name
from onebasin.torch.modules import train_mode
from onebasin.torch.tensors import pytorch

# Operators that draw random numbers only if these arguments of theirs are all true.
SWITCHES: dict[str, tuple[str, ...]] = {
    "dropout": ("p", "train"),
    "alpha_dropout": ("p", "train"),
    "feature_dropout": ("p", "train"),
    "feature_alpha_dropout": ("p", "train"),
    "native_dropout": ("p", "train"),
    "rrelu": ("training",),
    "lstm": ("dropout", "train"),
    "gru": ("dropout", "train"),
    "rnn_tanh": ("dropout", "train"),
    "rnn_relu": ("dropout", "train"),
    "scaled_dot_product_attention": ("dropout_p",),
}


def check_deterministic(exported: Exported) -> None:
    """Refuses a graph whose result is random.

    Raises:
        ConversionError: If dropout is at work, or random numbers are drawn otherwise.
    """
    torch = pytorch()
    for node in exported.module.graph.nodes:
        if node.op != "call_function":
            continue
        name = node_name(node)
        switches = SWITCHES.get(name.split(".")[1])
        if switches is not None:
            given = _arguments(node)
            if all(given.get(switch) for switch in switches):
                raise ConversionError(train_mode([name]))
        elif torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            raise ConversionError(
                f"the module draws random numbers in forward ({name}): call module.eval() first, "
                "or pass the random numbers in as inputs"
            )


def _arguments(node: Any) -> dict[str, Any]:
    """The arguments of a node by the names that its operator gives them."""
    schema = getattr(node.target, "_schema", None)
    names = [argument.name for argument in schema.arguments] if schema is not None else []
    return {**dict(zip(names, node.args, strict=False)), **node.kwargs}
