"""One real release from the configured package index."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dsv4port.manifest.pins import load_pins
from dsv4port.manifest.project import Project
from dsv4port.upstream.cache import Cache
from dsv4port.upstream.pins import ensure_pin

pytestmark = pytest.mark.network

ROOT = Path(__file__).parents[2]
SETTINGS = dict(os.environ)


def test_the_real_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uses the user's own cache, so that only the first run downloads."""
    for name in ("HOME", "PIP_CONFIG_FILE", "PIP_TIMEOUT"):
        monkeypatch.delenv(name)
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    pin = load_pins(Project(ROOT)).pin("v0.26.0")
    found = ensure_pin(pin, Cache.locate())
    assert found.recorded
    assert found.commit == "2b67d3da78098ad61216fa8aa7a950fb8b1fa9d1"
    assert not ensure_pin(pin, Cache.locate(), deep=True).fetched
