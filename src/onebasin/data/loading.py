"""From a name to arrays."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping

import numpy as np

from onebasin.data import files
from onebasin.data.catalogue import CATALOGUE
from onebasin.data.dataset import Arrays, Dataset, Normalisation
from onebasin.data.errors import DataError
from onebasin.data.source import Raw, Source

NORMALISATIONS = ("unit", "standard", "none")
CHUNK = 2**20


def load(
    name: str,
    root: str | os.PathLike[str] | None = None,
    *,
    split: int = 0,
    normalise: str | Normalisation | None = None,
    download: bool = True,
    catalogue: Mapping[str, Source] | None = None,
) -> Dataset:
    """Loads a data set, after checking its files.

    They are looked for in `root`, in the folders that the environment variable ONEBASIN_DATA names,
    and in a cache; a data set that is nowhere is downloaded into the cache. Links in these folders
    are followed, and nothing but regular files is read.

    Args:
        name: "digits", "mnist", "fashion-mnist", "cifar10", "cifar100", "svhn", "tiny-imagenet", or
            "uci/" and a table: concrete, energy, kin8nm, power-plant, protein-tertiary-structure,
            wine-quality-red, yacht.
        root: A folder with files that are already there.
        split: Which of the fixed splits of a UCI table.
        normalise: "unit" divides by the largest value that a pixel can have; "standard" subtracts
            the mean of the training part and divides by its standard deviation, for each channel or
            column (and the target of a regression); "none" leaves values as they are; or the
            `Normalisation` of another data set, as for one that is out of distribution. By default
            CIFAR and the tables are "standard", the other images "unit".
        download: Whether to download what is nowhere.
        catalogue: The data sets that are known; None for those above. What has no checksum in it is
            read as a stranger's: it unpacks to no more than data of its size would.

    Returns:
        The data set; its `description` says how it was normalised.

    Raises:
        DataError: If the name is not known, files are missing, damaged or cannot be downloaded, or
            what they hold does not fit together.

    Example:
        >>> import onebasin as ob
        >>> ob.data.load("digits", normalise="standard").normalisation
        Normalisation(shift=[4.878], scale=[6.014])
    """
    source = known(name, CATALOGUE if catalogue is None else catalogue)
    if not 0 <= split < source.num_splits:
        raise DataError(
            f"got split={split}, expected 0 to {source.num_splits - 1}: {name} has "
            f"{source.num_splits} fixed split{'s' * (source.num_splits != 1)}."
        )
    if not isinstance(normalise, Normalisation) and normalise not in (None, *NORMALISATIONS):
        raise DataError(
            f"got normalise={normalise!r}, expected {', '.join(map(repr, NORMALISATIONS))} or the "
            "normalisation of another data set."
        )
    folders = files.roots(root)
    found = files.find(source, folders)
    if found is None:
        if not download:
            raise DataError(files.missing(source, folders))
        found = files.download(source, files.cache())
    form, paths = found
    files.check(source, form, paths)
    about = f"{source.about} Read from {form.what}."
    if source.num_splits > 1:
        about += f" Split {split} of {source.num_splits}."
    raw = _checked(source, form.read(paths, split))
    return _dataset(source, raw, about, normalise or source.normalise)


def known(name: str, catalogue: Mapping[str, Source] = CATALOGUE) -> Source:
    """The source of a data set.

    Args:
        name: Its name.
        catalogue: The data sets that are known.

    Raises:
        DataError: If there is none of this name; it lists those that there are, and the nearest.
    """
    if name not in catalogue:
        nearest = difflib.get_close_matches(str(name), catalogue, 1, 0.5)
        mean = f"; did you mean {nearest[0]!r}?" if nearest else "."
        raise DataError(f"got the data set {name!r}, expected one of {', '.join(catalogue)}{mean}")
    return catalogue[name]


def _checked(source: Source, raw: Raw) -> Raw:
    """What was read, once inputs and targets fit each other, and training fits testing."""
    parts = {name: part for name in ("train", "test") if (part := getattr(raw, name)) is not None}
    for name, (inputs, targets) in parts.items():
        what = f"the {name} part of {source.name} has {len(inputs):,} inputs"
        if len(inputs) != len(targets) or not len(inputs):
            raise DataError(
                f"{what} and {len(targets):,} targets, expected as many of both, and some: its "
                "files are not those that were published."
            )
        if inputs.shape[1:] != raw.test[0].shape[1:]:
            raise DataError(
                f"{what} of shape {inputs.shape[1:]}, and the test part has "
                f"{raw.test[0].shape[1:]}: its files do not belong together."
            )
        if not (_finite(inputs) and _finite(targets)):
            raise DataError(f"{what}, and not all of its values are finite: look at its files.")
    return raw


def _finite(values: np.ndarray) -> bool:
    return values.dtype.kind in "biu" or bool(np.isfinite(values).all())


def _dataset(source: Source, raw: Raw, about: str, normalise: str | Normalisation) -> Dataset:
    normalisation, said = _normalisation(source, raw, normalise)

    def part(arrays: Arrays) -> Arrays:
        inputs, targets = arrays
        if source.num_classes is None:
            return normalisation.apply(inputs), normalisation.apply_to_targets(targets)
        return normalisation.apply(inputs), _labels(source, targets)

    train = None if raw.train is None else part(raw.train)
    return Dataset(
        name=source.name,
        train=train,
        test=part(raw.test),
        num_classes=source.num_classes,
        normalisation=normalisation,
        description=f"{about} {said}",
        without_train=raw.without_train if train is None else "",
    )


def _normalisation(
    source: Source, raw: Raw, normalise: str | Normalisation
) -> tuple[Normalisation, str]:
    """What to do to the values, and a sentence that says so."""
    if isinstance(normalise, Normalisation):
        channels = raw.test[0].shape[-1]
        if np.size(normalise.shift) not in (1, channels):
            raise DataError(
                f"got a normalisation of {np.size(normalise.shift)} channels, expected 1 or "
                f"{channels}, as {source.name} has: use one of a data set with as many."
            )
        return normalise, "Values are normalised as those of another data set."
    if normalise == "none":
        return Normalisation(), "Values are as in the files."
    if normalise == "unit":
        if source.largest is None:
            raise DataError(
                f"got normalise='unit', and the columns of {source.name} have no largest value: "
                "use 'standard' or 'none'."
            )
        return Normalisation(0.0, source.largest), f"Pixels are divided by {source.largest:g}."
    if raw.train is None:
        raise DataError(
            f"got normalise='standard', and {source.name} has no training part here "
            f"({raw.without_train}): use 'unit', or the normalisation of another data set."
        )
    inputs, targets = raw.train
    mean, std = _moments(inputs)
    if source.num_classes is not None:
        return Normalisation(mean, std), (
            "Each channel has mean 0 and standard deviation 1 over the training part."
        )
    (target_mean,), (target_std,) = _moments(targets)
    return Normalisation(mean, std, float(target_mean), float(target_std)), (
        "Each column and the target have mean 0 and standard deviation 1 over the training part."
    )


def _moments(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the last axis; a constant column keeps its unit."""
    columns = values.reshape(-1, values.shape[-1])
    mean = columns.mean(0, dtype=np.float64)
    parts = np.array_split(columns, len(columns) // CHUNK + 1)
    std = np.sqrt(sum(np.square(part - mean).sum(0) for part in parts) / len(columns))
    return mean, np.where(std > 1e-12 * (1 + np.abs(mean)), std, 1.0)


def _labels(source: Source, labels: np.ndarray) -> np.ndarray:
    # Before they are narrowed: of a wider number the lower bits may look like a class.
    least, most = labels.min(), labels.max()
    if labels.ndim != 1 or labels.dtype.kind not in "biuf" or (labels % 1 != 0).any():
        raise DataError(
            f"{source.name} has labels of shape {labels.shape} and type {labels.dtype}, expected "
            "one whole number for each example."
        )
    if least < 0 or most >= (source.num_classes or 0):
        raise DataError(
            f"{source.name} has labels from {least} to {most}, expected 0 to "
            f"{(source.num_classes or 0) - 1}: its files are not those that were published."
        )
    return labels.astype(np.int32)
