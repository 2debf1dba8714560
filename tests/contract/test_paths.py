"""Every process computes the same places from the same environment."""

import os
import pwd

import pytest

from modeld.daemon.contract.paths import (
    SOCKET_PATH_LIMIT,
    Root,
    config_file,
    default_root,
    models_dir,
)

HOST = os.uname().nodename
HOME = pwd.getpwuid(os.getuid()).pw_dir
KERNEL_LIMIT = 103
"""macOS; Linux has 107."""


def test_modeld_root_is_the_root() -> None:
    assert default_root({"MODELD_ROOT": "/r", "HOME": "/h"}) == Root("/r")


def test_a_relative_modeld_root_is_taken_from_here() -> None:
    assert default_root({"MODELD_ROOT": "r/../s"}).path == os.path.join(os.getcwd(), "s")


@pytest.mark.parametrize(
    ("environ", "path"),
    [
        ({"XDG_STATE_HOME": "/x", "HOME": "/h"}, f"/x/modeld/{HOST}"),
        ({"XDG_STATE_HOME": "relative", "HOME": "/h"}, f"/h/.local/state/modeld/{HOST}"),
        ({"XDG_RUNTIME_DIR": "/run/user/1", "HOME": "/h"}, f"/h/.local/state/modeld/{HOST}"),
        ({"MODELD_ROOT": "", "HOME": "/h"}, f"/h/.local/state/modeld/{HOST}"),
        ({}, f"{HOME}/.local/state/modeld/{HOST}"),
        ({"HOME": ""}, f"{HOME}/.local/state/modeld/{HOST}"),
    ],
)
def test_without_modeld_root_the_root_is_in_the_state_directory(
    environ: dict[str, str], path: str
) -> None:
    assert default_root(environ).path == path


def test_config_and_models_follow_xdg() -> None:
    assert config_file({"HOME": "/h"}) == "/h/.config/modeld/config.toml"
    assert config_file({"XDG_CONFIG_HOME": "/c"}) == "/c/modeld/config.toml"
    assert models_dir({"HOME": "/h"}) == "/h/.local/share/modeld/models"
    assert models_dir({"XDG_DATA_HOME": "/d", "HOME": "/h"}) == "/d/modeld/models"
    assert models_dir({"MODELD_MODELS": "/m", "XDG_DATA_HOME": "/d"}) == "/m"
    assert models_dir({"MODELD_MODELS": "m"}) == os.path.join(os.getcwd(), "m")


def test_the_files_of_a_root_are_all_different_and_in_it() -> None:
    root = Root("/r")
    files = [
        getattr(root, name) for name, value in vars(Root).items() if isinstance(value, property)
    ]
    assert len(set(files)) == len(files) == 10
    assert {os.path.dirname(file) for file in files} == {"/r"}


def test_a_short_root_has_its_socket_inside() -> None:
    longest = "/" + "r" * (SOCKET_PATH_LIMIT - len("//modeld.sock"))
    assert Root(longest).socket == f"{longest}/modeld.sock"
    assert len(Root(longest).socket) == SOCKET_PATH_LIMIT
    assert Root(f"{longest}r").socket.startswith("/tmp/modeld-")


@pytest.mark.parametrize("root", ["/" + "r" * 300, "/" + "é" * 60, "/" + "模" * 90])
def test_the_socket_of_a_long_root_fits_the_kernel(root: str) -> None:
    path = Root(root).socket
    assert len(os.fsencode(path)) <= KERNEL_LIMIT
    assert path == Root(root).socket


def test_the_limit_counts_bytes_and_not_characters() -> None:
    root = "/" + "é" * 60
    assert len(f"{root}/modeld.sock") < SOCKET_PATH_LIMIT
    assert not Root(root).socket.startswith(root)


def test_two_long_roots_have_two_sockets() -> None:
    long = "/" + "r" * 200
    assert Root(f"{long}/a").socket != Root(f"{long}/b").socket


def test_a_root_that_is_not_utf8_has_a_socket() -> None:
    assert Root(os.fsdecode(b"/\xff" * 80)).socket.startswith("/tmp/")
