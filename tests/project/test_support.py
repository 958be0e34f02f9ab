"""The fixtures that decide about skipping and watching must themselves be right."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import support
from tests.browser import OfflinePage


def test_a_lack_skips_unless_it_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SAG_REQUIRE", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no such browser"):
        support.skip_or_fail("browser", "no such browser")
    monkeypatch.setenv("SAG_REQUIRE", "model, browser")
    with pytest.raises(pytest.fail.Exception, match="no such browser"):
        support.skip_or_fail("browser", "no such browser")


def test_misspelt_names_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAG_REQUIRE", "browsr")
    with pytest.raises(pytest.UsageError, match="browsr"):
        support.required()
    with pytest.raises(ValueError, match="browsr"):
        support.skip_or_fail("browsr", "?")


def test_missing_module_is_a_lack_and_a_broken_one_a_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("SAG_REQUIRE", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "broken_module_.py").write_text("import not_there_", encoding="utf-8")
    with pytest.raises(pytest.skip.Exception):
        support.require_module("spark", "not_there_.sub")
    with pytest.raises(ModuleNotFoundError, match="not_there_"):
        support.require_module("spark", "broken_module_")


def test_real_data_is_skipped_required_or_wrong(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("SAG_REQUIRE", raising=False)
    monkeypatch.delenv("SAG_REAL_DATA", raising=False)
    with pytest.raises(pytest.skip.Exception):
        support.real_data_folder()
    monkeypatch.setenv("SAG_REQUIRE", "data")
    with pytest.raises(pytest.fail.Exception):
        support.real_data_folder()
    monkeypatch.setenv("SAG_REAL_DATA", str(tmp_path / "gone"))
    with pytest.raises(pytest.fail.Exception, match="no folder"):
        support.real_data_folder()
    monkeypatch.setenv("SAG_REAL_DATA", str(tmp_path))
    assert support.real_data_folder() == tmp_path


PAGE = """<!doctype html><title>quiet</title><p id="p">hello</p>"""
LOUD = """<!doctype html><title>loud</title>
<img src="http://192.0.2.1/a.png"><script src="https://192.0.2.1/a.js"></script>
<script>
  console.error("bad");
  new WebSocket("ws://192.0.2.1/s");
  fetch("https://192.0.2.1/f").catch(() => { document.title = "done"; });
  setTimeout(() => { throw new Error("uncaught"); }, 0);
</script>"""


def test_a_quiet_page_is_quiet(offline_page: OfflinePage, tmp_path: Path) -> None:
    file = tmp_path / "quiet page.html"
    file.write_text(PAGE, encoding="utf-8")
    page = offline_page.open(file)
    assert page.inner_text("#p") == "hello"
    offline_page.assert_quiet()


def test_a_loud_page_is_recorded(offline_page: OfflinePage, tmp_path: Path) -> None:
    file = tmp_path / "loud.html"
    file.write_text(LOUD, encoding="utf-8")
    page = offline_page.open(file)
    page.wait_for_function("document.title === 'done'")
    assert sorted(offline_page.blocked) == [
        "http://192.0.2.1/a.png",
        "https://192.0.2.1/a.js",
        "https://192.0.2.1/f",
        "ws://192.0.2.1/s",
    ]
    assert offline_page.page_errors == ["uncaught"]
    assert "bad" in offline_page.console_errors
    with pytest.raises(AssertionError):
        offline_page.assert_quiet()
