"""The data sets that are known, with the published checksums of their files."""

from __future__ import annotations

import functools

from onebasin.data import cifar, idx, svhn, tiny_imagenet, uci_tables
from onebasin.data.digits import DIGITS
from onebasin.data.source import File, Form, Source


def _file(name: str, checksum: str, size: int, *addresses: str) -> File:
    return File(name, checksum, size, tuple(address + name for address in addresses))


def _idx(folder: str, other: str, sums: dict[str, int], *addresses: str) -> tuple[Form, ...]:
    files = tuple(
        _file(name, f"md5:{md5}", size, *addresses)
        for name, (md5, size) in zip(idx.NAMES, sums.items(), strict=True)
    )
    return (Form("the four original files", (folder, other), files, idx.read),)


def _cifar(
    folder: str, archive: File, labels: str, batches: dict[str, tuple[str, int]]
) -> tuple[Form, ...]:
    files = tuple(File(name, f"md5:{md5}", size) for name, (md5, size) in batches.items())
    short = archive.name.removesuffix("-python.tar.gz")
    members = {f"{folder}/{name}": md5 for name, (md5, _) in batches.items()}
    return (
        Form(
            "the unpacked batches",
            (folder, f"{short}/{folder}"),
            files,
            functools.partial(cifar.read_folder, labels=labels),
        ),
        Form(
            "the original archive",
            (short, ""),
            (archive,),
            functools.partial(cifar.read_archive, labels=labels, members=members),
        ),
    )


MNIST = Source(
    name="mnist",
    about="Handwritten digits, 28x28 grey: 60,000 to train on and 10,000 to test on.",
    forms=_idx(
        "mnist",
        "MNIST/raw",
        {
            "f68b3c2dcbeaaa9fbdd348bbdeb94873": 9912422,
            "d53e105ee54ea40749a09fcbcd1e9432": 28881,
            "9fb629c4189551a2d022fa330f9573f3": 1648877,
            "ec29112dd5afa0611ce80d1b7f02629c": 4542,
        },
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
    num_classes=10,
    normalise="unit",
    largest=255.0,
    licence="CC BY-SA 3.0, as commonly given",
    citation="Y. LeCun, L. Bottou, Y. Bengio, P. Haffner, Proc. IEEE 86(11), 1998",
)

FASHION_MNIST = Source(
    name="fashion-mnist",
    about="Pictures of clothes, 28x28 grey: 60,000 to train on and 10,000 to test on.",
    forms=_idx(
        "fashion-mnist",
        "FashionMNIST/raw",
        {
            "8d4fb7e6c68d591d4c3dfef9ec88bf0d": 26421880,
            "25c81989df183df01b3e8a0aad5dffbe": 29515,
            "bef4ecab320f06d8554ea6380940ec79": 4422102,
            "bb300cfdad3c16e7a12a480ee83cd310": 5148,
        },
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
    ),
    num_classes=10,
    normalise="unit",
    largest=255.0,
    licence="MIT, Zalando SE",
    citation="H. Xiao, K. Rasul, R. Vollgraf, arXiv:1708.07747, 2017",
)

CIFAR10 = Source(
    name="cifar10",
    about="Photographs of 10 classes, 32x32 colour: 50,000 to train on and 10,000 to test on.",
    forms=_cifar(
        "cifar-10-batches-py",
        _file(
            "cifar-10-python.tar.gz",
            "md5:c58f30108f718f92721af3b95e74349a",
            170498071,
            "https://www.cs.toronto.edu/~kriz/",
        ),
        "labels",
        {
            "data_batch_1": ("c99cafc152244af753f735de768cd75f", 31035704),
            "data_batch_2": ("d4bba439e000b95fd0a9bffe97cbabec", 31035320),
            "data_batch_3": ("54ebc095f3ab1f0389bbae665268c751", 31035999),
            "data_batch_4": ("634d18415352ddfa80567beed471001a", 31035696),
            "data_batch_5": ("482c414d41f54cd18b22e5b47cb7c3cb", 31035623),
            "test_batch": ("40351d587109b95175f43aff81a1287e", 31035526),
        },
    ),
    num_classes=10,
    normalise="standard",
    largest=255.0,
    licence="none published; the authors ask for the citation",
    citation="A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009",
)

CIFAR100 = Source(
    name="cifar100",
    about="Photographs of 100 classes, 32x32 colour: 50,000 to train on and 10,000 to test on.",
    forms=_cifar(
        "cifar-100-python",
        _file(
            "cifar-100-python.tar.gz",
            "md5:eb9058c3a382ffc7106e4002c42a8d85",
            169001437,
            "https://www.cs.toronto.edu/~kriz/",
        ),
        "fine_labels",
        {
            "train": ("16019d7e3df5f24257cddd939b257f8d", 155249918),
            "test": ("f0ef6b0ae62326f3e7ffdfab6717acfc", 31049707),
        },
    ),
    num_classes=100,
    normalise="standard",
    largest=255.0,
    licence="none published; the authors ask for the citation",
    citation="A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009",
)

_SVHN_ADDRESS = "http://ufldl.stanford.edu/housenumbers/"
_SVHN_TRAIN = _file(
    "train_32x32.mat", "md5:e26dedcc434d2e4c54c9b2d4a06d8373", 182040794, _SVHN_ADDRESS
)
_SVHN_TEST = _file(
    "test_32x32.mat", "md5:eb5a983be6a315427106f1b164d9cef3", 64275384, _SVHN_ADDRESS
)

SVHN = Source(
    name="svhn",
    about="House numbers, 32x32 colour: 73,257 to train on and 26,032 to test on.",
    forms=(
        Form("both original files", ("svhn", ""), (_SVHN_TRAIN, _SVHN_TEST), svhn.read_both),
        Form("the test file", ("svhn", ""), (_SVHN_TEST,), svhn.read_test, True),
        Form(
            "the first 949 test digits",
            ("svhn", ""),
            (
                File(
                    "svhn_test_first949.npz",
                    "sha256:64ebff9a8fb1fbf346acdcfe7be7f29379a42ee64cf322c9b117a54e93128bfa",
                    2449831,
                ),
            ),
            svhn.read_subset,
            partial=True,
        ),
    ),
    num_classes=10,
    normalise="unit",
    largest=255.0,
    licence="non-commercial use only",
    citation="Y. Netzer et al., NIPS Workshop on Deep Learning, 2011",
)

TINY_IMAGENET = Source(
    name="tiny-imagenet",
    about="Photographs of 200 classes, 64x64 colour: 100,000 to train on and 10,000 to test on.",
    forms=(
        Form(
            "the original zip file",
            ("tiny-imagenet-200", ""),
            (
                _file(
                    "tiny-imagenet-200.zip",
                    "md5:90528d7ca1a48142e341f4ef8d21d0de",
                    248100043,
                    "http://cs231n.stanford.edu/",
                ),
            ),
            tiny_imagenet.read,
        ),
        Form(
            "30 validation images of each class",
            ("tiny-imagenet-200", ""),
            (
                File(
                    "tiny-imagenet-200-val-30-per-class.zip",
                    "sha256:2d516a6b9f92661c922bf19c1eb83872807b9f7a7db90dbde0210215846ab98d",
                    12676385,
                ),
            ),
            tiny_imagenet.read,
            partial=True,
        ),
    ),
    num_classes=200,
    normalise="unit",
    largest=255.0,
    licence="ImageNet terms: non-commercial research and education",
    citation="Y. Le, X. Yang, Stanford CS231N, 2015; J. Deng et al., CVPR 2009",
)

CATALOGUE: dict[str, Source] = {
    source.name: source
    for source in (
        DIGITS,
        MNIST,
        FASHION_MNIST,
        CIFAR10,
        CIFAR100,
        SVHN,
        TINY_IMAGENET,
        *map(uci_tables.source, uci_tables.TABLES),
    )
}
