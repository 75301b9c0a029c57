"""A data set in memory: arrays, and what was done to them."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from onebasin.data.errors import DataError

Arrays = tuple[np.ndarray, np.ndarray]


@dataclasses.dataclass(frozen=True, eq=False)
class Normalisation:
    """What was subtracted from the values in the files, and what they were divided by.

    Args:
        shift: Subtracted from inputs: a number, or one for each channel or column.
        scale: What inputs were divided by then.
        target_shift: The same for the targets of a regression.
        target_scale: The same for the targets of a regression.

    Example:
        >>> import numpy as np
        >>> from onebasin.data import Normalisation
        >>> unit = Normalisation(0.0, 255.0)
        >>> unit.apply(np.array([0, 51, 255])).tolist()
        [0.0, 0.20000000298023224, 1.0]
    """

    shift: Any = 0.0
    scale: Any = 1.0
    target_shift: float = 0.0
    target_scale: float = 1.0

    def apply(self, inputs: np.ndarray) -> np.ndarray:
        """Values of the files as inputs, float32."""
        # Bytes are exact in single precision, and many; columns of a table may be neither.
        values: Any = inputs.astype(np.float32 if inputs.dtype == np.uint8 else np.float64)
        values -= self.shift
        values /= self.scale
        return values.astype(np.float32, copy=False)

    def undo(self, inputs: np.ndarray) -> np.ndarray:
        """Inputs as values of the files."""
        return np.asarray(inputs) * np.float32(self.scale) + np.float32(self.shift)

    def apply_to_targets(self, targets: np.ndarray) -> np.ndarray:
        """Targets of a regression, float32."""
        return ((targets - self.target_shift) / self.target_scale).astype(np.float32)

    def undo_targets(self, targets: Any) -> Any:
        """Targets, or predictions of them, in their own unit."""
        return targets * self.target_scale + self.target_shift

    def __repr__(self) -> str:
        parts = [f"shift={_short(self.shift)}", f"scale={_short(self.scale)}"]
        if (self.target_shift, self.target_scale) != (0.0, 1.0):
            parts.append(f"targets by {self.target_shift:.4g} and {self.target_scale:.4g}")
        return f"Normalisation({', '.join(parts)})"


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Inputs and targets for training and for testing.

    Args:
        name: Its name, as `load` takes it.
        train: Inputs (example, ...) float32, and classes (example,) int32 or numbers (example, 1)
            float32; None where that part is not at hand.
        test: The same for testing.
        num_classes: How many classes there are; None for a regression.
        normalisation: What was done to the values in the files.
        description: What it is and how it was normalised, in a sentence.
        without_train: Why there is no training part, if there is none.

    Example:
        >>> import onebasin as ob
        >>> digits = ob.data.load("digits")
        >>> digits
        Dataset(digits: 1,437 train and 360 test, inputs (8, 8, 1), 10 classes)
        >>> inputs, targets = digits.train
        >>> inputs.shape, inputs.dtype, targets.dtype
        ((1437, 8, 8, 1), dtype('float32'), dtype('int32'))
        >>> digits.validation(0.2)
        Dataset(digits: 1,150 train and 287 test, inputs (8, 8, 1), 10 classes)
    """

    name: str
    train: Arrays | None
    test: Arrays
    num_classes: int | None
    normalisation: Normalisation
    description: str = ""
    without_train: str = ""

    def part(self, name: str) -> Arrays:
        """Inputs and targets of one part.

        Args:
            name: "train" or "test".

        Raises:
            DataError: If there is no such part, saying why.
        """
        if name not in ("train", "test"):
            raise DataError(f"got the part {name!r}, expected 'train' or 'test'.")
        found = self.test if name == "test" else self.train
        if found is None:
            raise DataError(f"{self.name} has no training part here: {self.without_train}.")
        return found

    def subset(
        self, train: int | None = None, test: int | None = None, *, seed: int = 0
    ) -> Dataset:
        """Fewer examples, drawn without replacement: the same ones for the same seed.

        Args:
            train: How many to train on; all by default.
            test: How many to test on; all by default.
            seed: Of the draw.
        """
        return dataclasses.replace(
            self,
            train=self.train if train is None else self._some("train", train, seed),
            test=self.test if test is None else self._some("test", test, seed),
        )

    def validation(self, fraction: float = 0.1, *, seed: int = 0) -> Dataset:
        """The training part alone, split in two: to choose settings without a look at the test.

        Args:
            fraction: How much of it becomes the test part.
            seed: Of the split, which is the same for the same seed.
        """
        inputs, targets = self.part("train")
        count = round(fraction * len(inputs))
        if not 0 < count < len(inputs):
            raise DataError(
                f"got fraction={fraction}, expected one that leaves some of the {len(inputs)} "
                "training examples on both sides."
            )
        order = np.random.default_rng(seed).permutation(len(inputs))
        held, kept = np.sort(order[:count]), np.sort(order[count:])
        return dataclasses.replace(
            self,
            train=(inputs[kept], targets[kept]),
            test=(inputs[held], targets[held]),
            description=f"{self.description} The test part is held out of the training part.",
        )

    def _some(self, name: str, count: int, seed: int) -> Arrays:
        inputs, targets = self.part(name)
        if not 0 < count <= len(inputs):
            raise DataError(
                f"got {name}={count}, expected 1 to {len(inputs)}: that many {self.name} has."
            )
        rows = np.sort(np.random.default_rng(seed).permutation(len(inputs))[:count])
        return inputs[rows], targets[rows]

    def __repr__(self) -> str:
        counts = "no" if self.train is None else f"{len(self.train[0]):,}"
        what = f"{self.num_classes} classes" if self.num_classes else "regression"
        return (
            f"Dataset({self.name}: {counts} train and {len(self.test[0]):,} test, inputs "
            f"{self.test[0].shape[1:]}, {what})"
        )


def _short(values: Any) -> str:
    array = np.asarray(values)
    texts = [f"{value:.4g}" for value in array.ravel()]
    return texts[0] if array.ndim == 0 else f"[{', '.join(texts)}]"
