"""What a machine may lack, and how a test says so.

A test that needs such a thing skips where it is missing. Continuous integration names what it
has in ``SAG_REQUIRE`` (``SAG_REQUIRE=browser,model``), and there the same lack is a failure.
"""

from __future__ import annotations

import importlib
import os
import shutil
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import pytest

CAPABILITIES = frozenset({"browser", "data", "model", "redis", "spark"})


def required() -> frozenset[str]:
    """The capabilities named in ``SAG_REQUIRE``; an unknown name is an error, not a no-op."""
    words = os.environ.get("SAG_REQUIRE", "").split(",")
    named = frozenset(word.strip() for word in words if word.strip())
    if unknown := named - CAPABILITIES:
        raise pytest.UsageError(
            f"SAG_REQUIRE names {sorted(unknown)}; known are {sorted(CAPABILITIES)}"
        )
    return named


def skip_or_fail(capability: str, reason: str) -> NoReturn:
    """Skip the calling test, or fail it where `capability` is required."""
    if capability not in CAPABILITIES:
        raise ValueError(f"unknown capability {capability!r}; known are {sorted(CAPABILITIES)}")
    if capability in required():
        pytest.fail(f"{capability} is required here, but {reason}", pytrace=False)
    pytest.skip(f"{capability}: {reason}")


def require_module(capability: str, module: str) -> ModuleType:
    """Import `module`, which `capability` needs."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # the module is there and broken: that is a failure everywhere
        skip_or_fail(capability, f"{module} is not installed")


def find_chromium() -> str | None:
    """Path of a Chromium: ``$SAG_CHROMIUM``, else the first usual name on ``PATH``."""
    if named := os.environ.get("SAG_CHROMIUM"):
        return shutil.which(named)
    names = ("/usr/bin/chromium", "chromium", "chromium-browser", "google-chrome")
    return next((path for name in names if (path := shutil.which(name))), None)


def find_java() -> str | None:
    """Path of a Java runtime: that of ``$JAVA_HOME``, else the one on ``PATH``."""
    if home := os.environ.get("JAVA_HOME"):
        return shutil.which("java", path=str(Path(home) / "bin"))
    return shutil.which("java")


def real_data_folder() -> Path:
    """The folder of real trajectories named by ``SAG_REAL_DATA``."""
    named = os.environ.get("SAG_REAL_DATA")
    if not named:
        skip_or_fail("data", "SAG_REAL_DATA is not set")
    folder = Path(named)
    if not folder.is_dir():  # a wrong path must not look like a machine without data
        pytest.fail(f"SAG_REAL_DATA is {named!r}, which is no folder", pytrace=False)
    return folder
