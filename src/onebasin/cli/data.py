"""Data that a user names on the command line as `MODULE:LOADER`."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin._factory import FactoryError, Model, describe, load_returned, one_line

LABELLED = "(inputs, labels), or ((train_inputs, train_labels), (test_inputs, test_labels))"


def load_inputs(name: str, model: Model) -> Any:
    """Inputs of the model; of a loader that returns labels too, the (training) inputs."""
    returned = load_returned(name, "loader", LABELLED)
    found = next((x for x in _firsts(returned) if _fits(x, model.inputs)), None)
    if found is None:
        raise FactoryError(_refused(name, returned, model, f"inputs, {LABELLED}"))
    _outputs(name, found, model)
    return jax.tree.map(jnp.asarray, found)


def load_labelled(name: str, model: Model) -> list[tuple[Any, Any]]:
    """One pair of inputs and labels, or two: for training and for testing."""
    returned = load_returned(name, "loader", LABELLED)
    pairs = [returned] if _is_pair(returned, model) else returned
    if not (
        isinstance(pairs, tuple | list)
        and len(pairs) in (1, 2)
        and all(_is_pair(pair, model) for pair in pairs)
    ):
        raise FactoryError(_refused(name, returned, model, LABELLED))
    return [_checked(name, inputs, labels, model) for inputs, labels in pairs]


def _firsts(returned: Any) -> list[Any]:
    """What may be the inputs: all that was returned, its first part, and the first part of that."""
    found = [returned]
    while len(found) < 3 and isinstance(found[-1], tuple | list) and found[-1]:
        found.append(found[-1][0])
    return found


def _is_pair(candidate: Any, model: Model) -> bool:
    return (
        isinstance(candidate, tuple | list)
        and len(candidate) == 2
        and _fits(candidate[0], model.inputs)
    )


def _fits(candidate: Any, example: Any) -> bool:
    """Whether arrays are like the example in everything but the number of examples, not zero."""
    ours, theirs = jax.tree.leaves(candidate), jax.tree.leaves(example)
    structures: list[Any] = [jax.tree.structure(candidate), jax.tree.structure(example)]
    return structures[0] == structures[1] and all(
        len(np.shape(a)) > 0 and np.shape(a)[0] > 0 and np.shape(a)[1:] == np.shape(b)[1:]
        for a, b in zip(ours, theirs, strict=True)
    )


def _refused(name: str, returned: Any, model: Model, expected: str) -> str:
    shapes = [
        f"(at least 1{''.join(f', {size}' for size in np.shape(leaf)[1:])})"
        for leaf in jax.tree.leaves(model.inputs)
    ]
    shape = getattr(returned, "shape", None)
    got = describe(returned) if shape is None else f"an array of shape {tuple(shape)}"
    return (
        f"{name} returned {got}, expected {expected}, with inputs as those of the model, of shape "
        f"{' and '.join(shapes)}: change its return statement."
    )


def _outputs(name: str, inputs: Any, model: Model) -> Any:
    try:
        return jax.eval_shape(model.apply_fn, model.params, jax.tree.map(jnp.asarray, inputs))
    except Exception as error:
        raise FactoryError(
            f"the model stopped with {one_line(error)} on the inputs that {name} returned: "
            "check that it runs on them in Python."
        ) from error


def _checked(name: str, inputs: Any, labels: Any, model: Model) -> tuple[Any, Any]:
    labels = np.asarray(labels)
    count = len(jax.tree.leaves(inputs)[0])
    if labels.shape != (count,) or labels.dtype.kind not in "iu":
        raise FactoryError(
            f"{name} returned labels of shape {labels.shape} and type {labels.dtype} for {count} "
            f"inputs, expected integer classes ({count},): change its return statement."
        )
    outputs = _outputs(name, inputs, model)
    if getattr(outputs, "ndim", None) != 2:
        raise FactoryError(
            f"the model returns {getattr(outputs, 'shape', describe(outputs))} for {count} "
            "inputs, expected logits (example, class): a barrier is measured on classifiers."
        )
    classes = outputs.shape[1]
    if labels.min() < 0 or labels.max() >= classes:
        raise FactoryError(
            f"{name} returned labels from {labels.min()} to {labels.max()}, and the model tells "
            f"the classes 0 to {classes - 1} apart: number them so."
        )
    return jax.tree.map(jnp.asarray, inputs), jnp.asarray(labels)
