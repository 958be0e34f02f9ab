"""Errors that a text shows being raised are told from errors that it only names."""

from __future__ import annotations

import pytest

from sag_research.extract import EntityExtractor


@pytest.fixture(scope="module")
def extractor() -> EntityExtractor:
    return EntityExtractor()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ValueError: no", ["ValueError"]),
        ("a.b.LockError:\r\n", ["a.b.LockError"]),
        ('  File "a.py", line 3, in f\n    go()\nValueError\n', ["ValueError"]),
        ('  File "a.py", line 3\n    go(\n      ^\nSyntaxError: no', ["SyntaxError"]),
        ('  File "a.py", line 3, in f\nsocket.timeout: timed out', ["socket.timeout"]),
        ('  File "a.py", line 3, in f\nUserWarning: old', ["UserWarning"]),
        ("E   KeyError: 'a'\nE       pkg.LockError\n", ["KeyError", "pkg.LockError"]),
        ("pkg/a.py:12: KeyError\r\n", ["KeyError"]),
        ("FAILED t/a.py::T::test_x[a - b] - ValueError: no", ["ValueError"]),
        ("ERROR t/a.py - pkg.LockError", ["pkg.LockError"]),
        ("INTERNALERROR> KeyError: 1", ["KeyError"]),
        ("Traceback (most recent call last):\n\nx > y raised TypeError: no", ["TypeError"]),
        ("UNEXPECTED EXCEPTION: KeyError('a')", ["KeyError"]),
        ("Caused by: java.io.IOException: x", ["IOException"]),
        # source, listings and prose only name them
        ("    12\t    raise ValueError('x')", []),
        ("    except ValueError:", []),
        ("except ValueError:", []),
        ("raise ValueError", []),
        ("a.py:12:    raise ValueError('x')", []),
        ("a.py:12:ValueError: x", []),
        ("a.py-13-        ValueError: if x", []),
        ("    Raises\n    ------\n    ValueError\n        If x.", []),
        ("        ValueError: if x", []),
        ("     3\tValueError: x", []),
        ("+ValueError: x", []),
        ("ValueError\nKeyError", []),
        ("class ValueError:\n", []),
        ("        # ValueError is raised here; a raised KeyError", []),
        ("assert 'raised ValueError' in x", []),
        ("a.py:12: DeprecationWarning: old", []),
        ("ResourceWarning: Enable tracemalloc", []),
        ("the error was ValueError: x", []),
        ('  File "a.py", line 3, in f\nDEBUG: x\n', []),
        ('  File "a.py", line 3, in f\n    raise ValueError\n\nKeyError', []),
        ("E       assert KeyError", []),
        ("FAILED (errors=1) - see KeyError: x", []),
    ],
)  # fmt: skip
def test_errors_that_were_raised(
    extractor: EntityExtractor, text: str, expected: list[str]
) -> None:
    def raised(field: str) -> list[str]:
        found = extractor.mentions(text, field=field)
        return [m.entity.name for m in found if m.rule.startswith("error-raised")]

    assert raised("observation") == expected
    assert raised("action") == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("json.decoder.JSONDecodeError: x", "JSONDecodeError"),
        ("JSONDecodeError: x", "JSONDecodeError"),
        ("raise json.JSONDecodeError", "JSONDecodeError"),
        ("builtins.ValueError: x", "ValueError"),
        ("subprocess.CalledProcessError: x", "CalledProcessError"),
        ("requests.exceptions.JSONDecodeError: x", "requests.exceptions.JSONDecodeError"),
        ("sqlite3.OperationalError: x", "sqlite3.OperationalError"),
    ],
)
def test_standard_errors_have_one_name(extractor: EntityExtractor, text: str, name: str) -> None:
    assert [m.entity.name for m in extractor.mentions(text) if m.entity.kind == "Error"] == [name]
