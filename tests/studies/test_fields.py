"""Configurations that somebody else may have written: one sentence for each, soon, and small."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from onebasin.cli import app
from onebasin.studies import StudyError, load_config
from onebasin.studies.compact import CompactConfig
from onebasin.studies.fields import LARGEST

ALIASES = "a0: &a0 [" + ", ".join(["x"] * 9) + "]\n"
ALIASES += "".join(f"a{i}: &a{i} [" + ", ".join([f"*a{i - 1}"] * 9) + "]\n" for i in range(1, 9))

BAD = {
    "references": (ALIASES + "seed: *a8\n", "refers to another part .*write that part out"),
    "a reference to itself": ("seed: &a [*a]\n", "refers to another part"),
    "a date that is none": ("seed: 2001-13-45\n", "none of its kind"),
    "a date": ("seed: 2001-01-05\n", "seed is datetime.date"),
    "a tag that does not fit": ("seed: !!int foo\n", "none of its kind"),
    "another such tag": ("seed: !!float {a: 1}\n", "no YAML"),
    "an object": ("seed: !!python/object/apply:os.system [ls]\n", "no YAML"),
    "depth": ("seed: " + "[" * 5000 + "]" * 5000 + "\n", "nested more than"),
    "depth of keys": ("{a: " * 3000 + "1" + "}" * 3000, "nested more than"),
    "size": ("seed: " + "x" * LARGEST, "expected at most"),
    "a long value": ("seed: " + "x" * 60_000, "seed is 'x+"),
    "a long name": ("x" * 1000 + ": 1", "no field 'x+"),
    "a number of many digits": ("seed: 0x" + "f" * 50_000, "seed is a number of 200,000 bits"),
    "a number beyond all seeds": ("seed: 0x" + "f" * 40, "seed is "),
    "no number": ("prior_variance: .nan\n", "prior_variance is nan"),
    "no end": ("prior_variance: .inf\n", "prior_variance is inf"),
    "a name that is none": ("1: 2\n", "has the field 1, expected a name"),
    "marks": ('"\\x1b[2J\\u202e": 1\n', r"no field .*x1b"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_is_refused_in_one_short_sentence(tmp_path: Path, name: str) -> None:
    text, said = BAD[name]
    file = tmp_path / "own.yaml"
    file.write_text(text)
    began = time.monotonic()
    with pytest.raises(StudyError, match=said) as error:
        load_config(CompactConfig, "compact", file=file)
    assert time.monotonic() - began < 5
    assert len(str(error.value)) < 1000
    assert "\x1b" not in str(error.value)


@pytest.mark.parametrize(
    "item",
    [
        "seed=2001-13-45",
        "seed=!!int foo",
        "seed=" + "[" * 1000,
        "seed=[&a 1, *a]",
        "hmc=[&a [1], *a]",
        ".".join(["a"] * 5000) + "=1",
        "x" * 5000,
        "seed=0x" + "f" * 20_000,
        "seed=9" * 3000,
    ],
)
def test_a_field_on_the_command_line_is_refused_in_one_sentence(tmp_path: Path, item: str) -> None:
    arguments = ["study", "compact", "--out", str(tmp_path / "run"), "--set", item]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2, done.output
    assert len(done.stderr.splitlines()) == 1
    assert len(done.stderr) < 1000
    assert not (tmp_path / "run").exists()


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "own.yaml")
    with pytest.raises(StudyError, match="not a regular file"):
        load_config(CompactConfig, "compact", file=tmp_path / "own.yaml")
    with pytest.raises(StudyError, match="not a regular file"):
        load_config(CompactConfig, "compact", file="/dev/zero")


SMALL = """
import resource, sys
resource.setrlimit(resource.RLIMIT_DATA, (3 * 2**30, 3 * 2**30))
from onebasin.studies import StudyError, load_config
from onebasin.studies.compact import CompactConfig
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    load_config(CompactConfig, "compact", file=sys.argv[1])
except StudyError as error:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, len(str(error)))
"""


def test_references_take_no_memory(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(ALIASES + "seed: *a8\n")
    done = subprocess.run(
        [sys.executable, "-c", SMALL, str(file)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr[-500:]
    kilobytes, length = map(int, done.stdout.split())
    assert kilobytes < 2**16
    assert length < 1000
