"""Fixtures of every test that runs the real program."""

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

sys.path.insert(0, os.path.dirname(__file__))

from rig import Finished, Rig


@pytest.fixture
def rig() -> Iterator[Rig]:
    """A state directory and the means to use it; afterwards nothing of it is left."""
    rig = Rig()
    yield rig
    rig.close()


@pytest.fixture
def root(rig: Rig) -> str:
    """The state directory, which nothing has made yet."""
    return rig.root


@pytest.fixture
def modeld(rig: Rig) -> Callable[..., Finished]:
    """See :meth:`Rig.modeld`."""
    return rig.modeld


@pytest.fixture
def spawn(rig: Rig) -> Callable[..., Any]:
    """See :meth:`Rig.spawn`."""
    return rig.spawn


@pytest.fixture
def echo_model(rig: Rig) -> Callable[..., str]:
    """See :meth:`Rig.echo_model`."""
    return rig.echo_model


@pytest.fixture
def ps(rig: Rig) -> Callable[[], Any]:
    """See :meth:`Rig.ps`."""
    return rig.ps
