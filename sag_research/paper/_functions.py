"""Functions of the study's own: found by name, given what they ask for, and blamed by line."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from sag_research._text import said
from sag_research.errors import Caught
from sag_research.paper._spec import StudyError

__all__ = ["call_own"]


def call_own(folder: Path, name: str, given: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
    """Call ``module:function`` of a study folder.

    Parameters
    ----------
    folder : Path
    name : str
    given : mapping
        What the function may ask for, by the names of its parameters.
    options : mapping
        Passed as they are.

    Raises
    ------
    StudyError
        If there is no such function, or it fails; with the line where it did.
    """
    module, _, function = name.partition(":")
    if not module.isidentifier() or not function.isidentifier():
        raise StudyError(f"{name!r} names no function", fix="write module:function")
    path = folder / f"{module}.py"
    if not path.is_file():
        raise StudyError(f"function {name!r} is not there", why=f"the study has no {path.name}")
    with own_modules(folder):
        try:
            with Caught() as caught:
                found = getattr(_load(path), function, None)
                result = _call(found, name, given, options) if callable(found) else None
        except SystemExit as error:  # a study that exits must not end the build as if it were done
            raise StudyError(f"{name} tried to exit") from error
        if isinstance(caught.error, StudyError):
            raise caught.error
        if caught.error is not None:
            where = _line(caught.error, folder)
            raise StudyError(f"{name} failed{where}", why=said(caught.error)) from caught.error
    if not callable(found):
        raise StudyError(f"function {name!r} is not there", why=f"{path.name} has no {function}")
    return result


def _call(
    function: Callable[..., Any], name: str, given: Mapping[str, Any], options: Mapping[str, Any]
) -> Any:
    parameters = inspect.signature(function).parameters
    asked = {key: value for key, value in given.items() if key in parameters}
    try:
        inspect.signature(function).bind(**asked, **options)
    except TypeError as error:
        raise StudyError(
            f"{name} cannot be called", why=str(error),
            fix=f"it may ask for {', '.join(given)}, and for what stands under options",
        ) from error  # fmt: skip
    return function(**asked, **options)


@contextmanager
def own_modules(folder: Path) -> Iterator[None]:
    """Let files of a study import each other, and forget them afterwards: the next has its own."""
    before, place = set(sys.modules), str(folder)
    keeps, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    sys.path.insert(0, place)
    try:
        yield
    finally:
        sys.path.remove(place)
        sys.dont_write_bytecode = keeps
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file and folder in Path(file).parents:
                del sys.modules[name]


def _load(path: Path) -> ModuleType:
    name = f"_study_{path.stem}"  # a study may call its module `random`
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise StudyError(f"{path.name} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _line(error: Exception, folder: Path) -> str:
    """Say where in the study's files an error came from."""
    if isinstance(error, SyntaxError):
        return f" ({Path(error.filename or '?').name}, line {error.lineno})"
    frames = [f for f in traceback.extract_tb(error.__traceback__)
              if folder in Path(f.filename).parents]  # fmt: skip
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
