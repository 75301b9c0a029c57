"""Whether a user's own network and the data of a study fit each other, before anything is run."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from onebasin._factory import describe, one_line
from onebasin.nets import Net
from onebasin.studies.errors import StudyError

Arrays = tuple[Any, Any]


def check_fit(net: Net, model: str, source: str, parts: tuple[Arrays, ...], example: Any) -> None:
    """Refuses a network that does not take the inputs, or tell the labels apart.

    Args:
        net: The network.
        model: Its name, as the user gave it.
        source: What the data are called.
        parts: Inputs and labels, for training and for testing.
        example: Inputs that its factory gave; None if it gave none.
    """
    for inputs, labels in parts:
        outputs = _outputs(net, model, source, inputs, example)
        if getattr(outputs, "ndim", None) != 2 or outputs.shape[0] != 2:
            got = getattr(outputs, "shape", None)
            raise StudyError(
                f"the model {model} returned {describe(outputs) if got is None else got} for 2 "
                "inputs, expected logits (2, classes): change what it returns"
            )
        low, high = int(np.min(labels)), int(np.max(labels))
        if low < 0 or high >= outputs.shape[1]:
            raise StudyError(
                f"{source} has labels from {low} to {high}, and the model {model} tells the "
                f"classes 0 to {outputs.shape[1] - 1} apart: name data of its own with --data "
                "MODULE:LOADER, or a model with as many outputs"
            )


def _outputs(net: Net, model: str, source: str, inputs: Any, example: Any) -> Any:
    two = inputs[:2] if len(inputs) > 1 else np.concatenate([inputs, inputs])
    try:
        return jax.eval_shape(net.apply, _params(net, two[:1]), two)
    except Exception as error:
        shapes = [np.shape(leaf) for leaf in jax.tree.leaves(example)]
        made_for = f", which was made for {_shapes(shapes)}," if shapes else ""
        raise StudyError(
            f"the model {model}{made_for} does not take the inputs of {source}, of shape "
            f"{_shapes([np.shape(inputs)])} ({one_line(error)}): name data of its own with --data "
            "MODULE:LOADER, or a model for these"
        ) from error


def _params(net: Net, one: Any) -> Any:
    try:
        return jax.eval_shape(net.init, jax.random.key(0), one)
    except Exception:
        # Some can be called and not traced.
        return net.init(jax.random.key(0), one)


def _shapes(shapes: list[tuple[int, ...]]) -> str:
    return " and ".join("(" + ", ".join(["n", *map(str, shape[1:])]) + ")" for shape in shapes)
