from pathlib import Path

import pytest
import yaml

from onebasin import studies
from onebasin.studies import STUDIES, StudyError, load_config, presets
from onebasin.studies.compact import CompactConfig


@pytest.mark.parametrize(
    ("name", "preset"), [(name, preset) for name in STUDIES for preset in presets(name)]
)
def test_presets_are_valid_and_every_field_is_described(name: str, preset: str) -> None:
    study = studies.get(name)
    load_config(study.config, name, preset)
    waiting = [study.config]
    while waiting:
        kind = waiting.pop()
        for field, info in kind.model_fields.items():
            assert info.description, f"{kind.__name__}.{field}"
            if hasattr(info.annotation, "model_fields"):
                waiting.append(info.annotation)


def test_a_file_and_single_fields_change_a_preset(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(yaml.safe_dump({"hidden": [8, 8], "hmc": {"num_samples": 7}}))
    config = load_config(CompactConfig, "compact", "demo", file, {"hmc.num_chains": 3})
    assert (config.hidden, config.hmc.num_samples, config.hmc.num_chains) == ([8, 8], 7, 3)
    assert config.hmc.num_warmup == load_config(CompactConfig, "compact").hmc.num_warmup


BAD = {
    "no field": ({"hiden": [3]}, r"no field 'hiden', expected .*did you mean 'hidden'"),
    "no inner field": ({"hmc.num_sample": 3}, r"'hmc.num_sample'.*did you mean 'num_samples'"),
    "a value": ({"hmc.num_chains": 1}, r"hmc.num_chains is 1, but .*greater than or equal to 2"),
    "a type": ({"hidden": "wide"}, r"hidden is 'wide'"),
    "two values": (
        {"dynamics": {"epochs": 2, "every": 3}},
        r"^[^{]*, dynamics: every=3 is more than epochs=2$",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_named(name: str) -> None:
    overrides, message = BAD[name]
    with pytest.raises(StudyError, match=message):
        load_config(CompactConfig, "compact", "demo", overrides=overrides)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="cannot be read"):
        load_config(CompactConfig, "compact", file=tmp_path / "none.yaml")
    (tmp_path / "list.yaml").write_text("- 1\n")
    with pytest.raises(StudyError, match="holds a list, expected fields"):
        load_config(CompactConfig, "compact", file=tmp_path / "list.yaml")
    (tmp_path / "bad.yaml").write_text("a: [1\n")
    with pytest.raises(StudyError, match="is no YAML"):
        load_config(CompactConfig, "compact", file=tmp_path / "bad.yaml")
    with pytest.raises(StudyError, match="did you mean 'compact'"):
        studies.get("compcat")


def test_what_networks_got_later_changes_no_fingerprint_where_it_is_left_out() -> None:
    study = studies.get("exploration")
    plain, other = (
        load_config(study.config, "exploration", overrides={"net.identity_start": start})
        for start in (False, True)
    )
    assert "identity_start" not in plain.net.model_dump()
    assert other.net.model_dump()["identity_start"]
    assert type(other).model_validate(other.model_dump()) == other
    assert study.fingerprints(plain)["target"] != study.fingerprints(other)["target"]
