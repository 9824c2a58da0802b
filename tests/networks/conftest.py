"""A stand-in for timm, and a machine without a network."""

import importlib.util
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.lab import patch_part


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any, **options: Any) -> Any:
        raise AssertionError("something was to be fetched")

    for name in ("socket", "create_connection", "getaddrinfo"):
        monkeypatch.setattr(socket, name, refuse)


@pytest.fixture
def timm(monkeypatch: pytest.MonkeyPatch, offline: None) -> Any:
    """The stand-in, under the name of timm; trials of it are forgotten."""
    spec = importlib.util.spec_from_file_location(
        "fake_timm", Path(__file__).parent / "fake_timm.py"
    )
    assert spec is not None
    assert spec.loader is not None
    fake = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fake)
    monkeypatch.setitem(sys.modules, "timm", fake.module())
    patch_part(monkeypatch, "PROBES", {})
    return fake
