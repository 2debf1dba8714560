"""What only its user can open."""

import os
import stat
from pathlib import Path

import pytest

from modeld.daemon.contract.errors import ErrorCode, ModeldError
from modeld.daemon.contract.private import (
    check_private_dir,
    ensure_private_dir,
    open_private,
    write_atomically,
)

SOMEBODY_ELSE = 54321


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def refusal_of(path: Path) -> ModeldError:
    with pytest.raises(ModeldError) as caught:
        ensure_private_dir(str(path))
    assert caught.value.code is ErrorCode.CONFIG_INVALID
    assert caught.value.details["path"] == str(path)
    assert caught.value.details["recovery"]
    return caught.value


def test_a_directory_is_made_with_its_parents(tmp_path: Path) -> None:
    ensure_private_dir(str(tmp_path / "a" / "b"))
    assert mode_of(tmp_path / "a" / "b") == 0o700


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o277])
def test_the_umask_does_not_matter(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        ensure_private_dir(str(tmp_path / "d"))
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "d") == 0o700


def test_a_directory_that_others_can_read_is_closed(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir(mode=0o755)
    ensure_private_dir(str(tmp_path / "d"))
    assert mode_of(tmp_path / "d") == 0o700


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777])
def test_a_directory_that_others_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "d"
    path.mkdir()
    path.chmod(mode)
    assert f"{mode:04o}" in refusal_of(path).message
    assert mode_of(path) == mode


def test_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert "is a link" in refusal_of(tmp_path / "link").message


def test_a_link_to_nowhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    assert "is a link" in refusal_of(tmp_path / "link").message
    assert not (tmp_path / "nowhere").exists()


def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    assert "is not a directory" in refusal_of(tmp_path / "f").message
    assert "cannot be used" in refusal_of(tmp_path / "f" / "below").message


def test_a_strangers_directory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "d"
    path.mkdir(mode=0o700)
    if os.getuid() == 0:
        os.chown(path, SOMEBODY_ELSE, -1)
        assert f"uid {SOMEBODY_ELSE}" in refusal_of(path).message
    found = list(path.lstat())
    found[stat.ST_UID] = SOMEBODY_ELSE
    with pytest.raises(ModeldError, match=f"belongs to uid {SOMEBODY_ELSE}"):
        check_private_dir(str(path), os.stat_result(found))


def test_a_private_file_is_for_its_user_only(tmp_path: Path) -> None:
    descriptor = open_private(str(tmp_path / "f"), os.O_RDWR)
    assert not os.get_inheritable(descriptor)
    os.close(descriptor)
    assert mode_of(tmp_path / "f") == 0o600


def test_a_private_file_is_not_opened_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic links"):
        open_private(str(tmp_path / "link"), os.O_RDWR)
    assert not (tmp_path / "target").exists()


def test_a_write_replaces_the_whole(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write_atomically(str(path), b"long before")
    write_atomically(str(path), b"now")
    assert path.read_bytes() == b"now"
    assert mode_of(path) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_fails_leaves_what_was_there_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    with pytest.raises(IsADirectoryError):
        write_atomically(str(tmp_path / "d"), b"data")
    assert [path.name for path in tmp_path.iterdir()] == ["d"]
