"""Fixtures for all rooms: real data, capabilities, a browser without a network."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn

import pytest
from hypothesis import HealthCheck, settings

from tests import support

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.browser import OfflinePage

# Shared machines stall: a slow example is no finding. CI draws the same examples every time.
settings.register_profile(
    "default", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("ci", settings.get_profile("default"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


def pytest_configure() -> None:
    """Refuse a misspelt ``SAG_REQUIRE`` at once: it would require nothing."""
    support.required()


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Keep the doctest collector from importing helper scripts that lie among the tests."""
    is_helper = collection_path.suffix == ".py" and not collection_path.name.startswith("test_")
    return True if is_helper and collection_path.name != "__init__.py" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run browser tests last, and keep a file's tests in one process where there are several.

    Playwright's synchronous interface keeps an event loop running in the main thread for as long
    as the browser lives, and under a running loop ``asyncio.run`` of any other test would fail.
    """
    items.sort(key=_needs_browser)
    for item in items:
        group = f"{item.path}{' in a browser' if _needs_browser(item) else ''}"
        item.add_marker(pytest.mark.xdist_group(group))


def _needs_browser(item: pytest.Item) -> bool:
    return "chromium" in getattr(item, "fixturenames", ())


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Folder of real trajectories (``SAG_REAL_DATA``)."""
    return support.real_data_folder()


@pytest.fixture(scope="session")
def skip_or_fail() -> Callable[[str, str], NoReturn]:
    """``skip_or_fail(capability, reason)``: skip, or fail where the capability is required."""
    return support.skip_or_fail


@pytest.fixture(scope="session")
def require() -> Callable[[str, str], ModuleType]:
    """``require(capability, module)``: import a module that a capability needs."""
    return support.require_module


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """One headless Chromium for the session, driven by Playwright."""
    support.require_module("browser", "playwright.sync_api")
    from playwright.sync_api import sync_playwright

    from tests.browser import FLAGS

    executable = support.find_chromium()
    if executable is None:
        support.skip_or_fail("browser", "no Chromium was found; name one in SAG_CHROMIUM")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def offline_page(chromium: Browser) -> Iterator[OfflinePage]:
    """A fresh page that has no network and records what it asked for."""
    from tests.browser import new_offline_page

    context = chromium.new_context(service_workers="block")
    yield new_offline_page(context)
    context.close()
