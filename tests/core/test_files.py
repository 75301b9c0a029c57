"""What a stranger's folder can name, and what is read of it."""

import contextlib
import json
import os

import pytest

from onebasin._core.files import (
    FileError,
    check_own_folder,
    inside,
    open_regular,
    parse_json,
    read_bytes,
    read_json,
    replacing,
    sha256_of,
    write_text,
)


@pytest.mark.parametrize(
    "name",
    ["../victim", "/etc/passwd", "a/../b", "..", ".", "", "a//b", "a/", "a\0b", "a\\b", 3, None],
)
def test_a_name_that_is_a_path_is_refused(tmp_path, name):
    with pytest.raises(FileError, match="plain file name"):
        inside(tmp_path, name)


def test_a_name_inside_is_its_path(tmp_path):
    assert inside(tmp_path, "streams/draws-000001.safetensors") == (
        tmp_path / "streams" / "draws-000001.safetensors"
    )


def test_links_below_the_folder_lead_nowhere(tmp_path):
    (tmp_path / "other").mkdir()
    run = tmp_path / "run"
    run.mkdir()
    (run / "streams").symlink_to(tmp_path / "other")
    with pytest.raises(FileError, match="is a link"):
        inside(run, "streams/x")
    with pytest.raises(FileError, match="is a link"):
        check_own_folder(run / "streams")
    # The folder that the user named may be a link.
    (tmp_path / "short").symlink_to(run)
    assert inside(tmp_path / "short", "x") == tmp_path / "short" / "x"


def test_only_regular_files_are_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    for name in ("pipe", ".", "link"):
        with pytest.raises((FileError, OSError)), open_regular(tmp_path / name):
            pass
    assert read_bytes(tmp_path / "link", follow=True) == b"x"
    with pytest.raises(FileError, match="regular"), open_regular("/dev/zero", follow=True):
        pass
    with pytest.raises(FileError, match="at most 0"):
        read_bytes(tmp_path / "file", largest=0)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "[" * 200 + "]" * 200, '{"a":' * 5000, "\xff", "{"]
)
def test_json_that_is_none_is_a_value_error(tmp_path, text):
    (tmp_path / "x.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=r"deep|utf-8|Expecting"):
        read_json(tmp_path / "x.json")


def test_json_is_read():
    assert parse_json(b'{"a": ["]", "[[", 1.5]}') == {"a": ["]", "[[", 1.5]}
    assert parse_json("[" * 90 + "]" * 90) == json.loads("[" * 90 + "]" * 90)


def test_a_link_is_replaced_and_not_written_through(tmp_path):
    (tmp_path / "victim").write_text("whole")
    (tmp_path / "link").symlink_to(tmp_path / "victim")
    write_text(tmp_path / "link", "ours")
    assert (tmp_path / "victim").read_text() == "whole"
    assert (tmp_path / "link").read_text() == "ours"
    assert not (tmp_path / "link").is_symlink()


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    write_text(tmp_path / "a", "before")
    with contextlib.suppress(RuntimeError), replacing(tmp_path / "a") as file:
        file.write(b"half")
        raise RuntimeError
    assert (tmp_path / "a").read_text() == "before"
    assert os.listdir(tmp_path) == ["a"]
    # As long a name as the system allows still has room for the one before it is whole.
    write_text(tmp_path / ("n" * 255), "long")
    assert len(sha256_of(tmp_path / ("n" * 255))) == 64
