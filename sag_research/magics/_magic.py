"""``%sag`` and ``%%sag``: what they take, and what they do."""

from __future__ import annotations

import keyword
import re
import sys
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeVar

from IPython.core import magic_arguments
from IPython.core.error import UsageError as ShellError
from IPython.core.magic import (
    Magics,
    line_cell_magic,
    magics_class,
    needs_local_scope,
    no_var_expand,
)

from sag_research._text import clip, visible
from sag_research.errors import QueryError, SagError, StoreError, UsageError
from sag_research.magics._sql import bind, place_of, spell_parameters
from sag_research.magics._table import SHOWN, Table
from sag_research.warehouse import QueryResult
from sag_research.workspace import Workspace
from sag_research.workspace import open as open_workspace

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["COMMANDS", "SagMagics"]

COMMANDS: Final = ("workspace", "runs", "views")
_Magic = TypeVar("_Magic", bound=Callable[..., Any])
_LONGEST: Final = 600
_LINE: Final = 120
_RUNS: Final = "run_id, task_id, model, outcome, n_steps, exit_status"
_NAMED: Final = re.compile(r"(\w+)\s*<<")
_RUN_OPTIONS: Final = re.compile(r"((?:--params\b|--rows[ =]\d+|\s)*)(.*)", re.DOTALL)
_SCHEMA: Final = """
    SELECT table_name, list(column_name ORDER BY column_index) FROM duckdb_columns()
    WHERE NOT internal AND NOT regexp_matches(table_name, '^(base_|tail_|lineage$)')
    GROUP BY 1 ORDER BY min(table_oid)"""
_HELP: Final = """\
%sag workspace PATH [--create]         use the workspace in a folder, or one that a variable holds
%sag runs [--params] [--rows N] [SQL]  list the runs, or those that a condition chooses
%sag views [VIEW]                      say what can be queried, and what it means
%%sag [NAME <<] [--params] [--rows N]  query with the SQL below: show it, or keep it as NAME
%sag?                                  say more"""


_arguments: Any = magic_arguments  # it has no types


def _with_arguments(magic: _Magic) -> _Magic:
    """Say what the magic takes: for its parser, and for ``%sag?``."""
    argument = _arguments.argument
    for declare in (
        argument("--rows", type=int, default=SHOWN, help="rows to show, 0 for all; default 20"),
        argument("--params", action="store_true", help="take :x and $x from the variables"),
        argument("name", nargs="*", help="NAME <<: keep the answer as a DataFrame of this name"),
        _arguments.magic_arguments(),
    ):
        magic = declare(magic)
    return magic


@magics_class
class SagMagics(Magics):
    """The magics of one shell, and the workspace that they use."""

    shell: InteractiveShell

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self._chosen: Workspace | None = None
        self._own: Workspace | None = None

    # ---- the workspace

    @property
    def workspace(self) -> Workspace:
        """The workspace that was chosen, else the variable ``ws``, else the usual folder.

        Raises
        ------
        StoreError
            If there is none.
        """
        found = self._chosen or self._variable("ws")
        if found is not None:
            return found
        try:
            self._choose(open_workspace(create=False), own=True)
        except StoreError as error:
            fix = "choose one: %sag workspace PATH"
            raise StoreError(error.what, why=error.why, fix=fix) from error
        return self.workspace

    def _variable(self, name: str) -> Workspace | None:
        held = self.shell.user_ns.get(name)
        return held if isinstance(held, Workspace) else None

    def _choose(self, workspace: Workspace, *, own: bool) -> None:
        self.close()
        self._chosen, self._own = workspace, workspace if own else None

    def close(self) -> None:
        """Close the workspace if it was opened here; one of a variable stays open."""
        if self._own is not None:
            self._own.close()
        self._chosen = self._own = None

    # ---- what completion asks

    def schema(self) -> dict[str, tuple[str, ...]]:
        """View to columns, of the workspace in use; of an empty one where none is."""
        import duckdb

        for held in (self._chosen, self._variable("ws"), self._empty):
            if held is None:
                continue
            try:
                with held.duckdb.cursor() as cursor:
                    rows = cursor.execute(_SCHEMA).fetchall()
            except duckdb.Error:  # closed
                continue
            return {view: tuple(columns) for view, columns in rows}
        return {}

    def variables(self) -> list[str]:
        """Variables of the notebook that a query may take."""
        names = self.shell.user_ns
        hidden = getattr(self.shell, "user_ns_hidden", {})
        return sorted(n for n in names if not n.startswith("_") and n not in hidden)

    def open_workspaces(self) -> list[str]:
        """Variables that hold a workspace."""
        return [name for name in self.variables() if self._variable(name) is not None]

    @cached_property
    def _empty(self) -> Workspace:
        return open_workspace(":memory:")

    # ---- the magic

    @no_var_expand  # the shell would put variables into the text
    @needs_local_scope
    @_with_arguments
    @line_cell_magic
    def sag(
        self, line: str = "", cell: str | None = None, local_ns: Mapping[str, Any] | None = None
    ) -> Table | None:
        """Query the workspace with the SQL of the cell, or give a command on one line.

        ``%sag`` alone says which workspace is in use. ``%sag workspace PATH`` chooses another,
        ``%sag runs`` lists runs, ``%sag views`` what can be queried.
        """
        names = ChainMap(dict(local_ns or {}), self.shell.user_ns)
        with _in_one_line():
            if cell is None:
                return self._command(line.strip(), names)
            options = _parsed(line)
            return self._query(cell, " ".join(options.name), options, names)

    def _command(self, line: str, names: Mapping[str, Any]) -> Table | None:
        word, _, rest = line.partition(" ")
        if not word:
            _say(f"{self._status()}\n{_HELP}")
            return None
        if word not in COMMANDS:
            usage = "use one of " + ", ".join(COMMANDS) + "; SQL stands below %%sag"
            raise UsageError(f"%sag has no command {word!r}", fix=usage)
        if word == "workspace":
            self._use(rest.strip())
            return None
        return self._runs(rest, names) if word == "runs" else self._views(rest.strip())

    def _status(self) -> str:
        try:
            return repr(self.workspace)
        except SagError as error:
            return f"no workspace: {_one_line(error)}"

    def _use(self, path: str) -> None:
        create = path.endswith("--create")
        path = path.removesuffix("--create").strip().strip("\"'")
        if path:
            held = self._variable(path)
            self._choose(_opened(path, create) if held is None else held, own=held is None)
        _say(repr(self.workspace))

    def _runs(self, text: str, names: Mapping[str, Any]) -> Table:
        found = _RUN_OPTIONS.match(text)
        given, where = found.groups() if found else ("", text)
        options = _parsed(given)
        # the condition is the user's own SQL; values are bound
        query = f"SELECT {_RUNS} FROM runs WHERE (\n{where.strip() or 'true'}\n) ORDER BY seq"  # noqa: S608
        return Table(self._ask(query, names if options.params else None), options.rows)

    def _views(self, view: str) -> Table:
        if view:
            return Table(self.workspace.warehouse.schema(view), 0, _LINE)
        whole = self.workspace.warehouse.schema()
        kept = [n for n, row in enumerate(whole.rows()) if row[2] in ("VIEW", "MACRO")]
        return Table(QueryResult(whole.arrow().take(kept)), 0, _LINE)

    def _query(self, cell: str, name: str, options: Any, names: Mapping[str, Any]) -> Table | None:
        target = _target(name) if name else ""
        if options.rows < 0:
            raise UsageError(f"--rows {options.rows}", fix="give a number of rows, or 0 for all")
        if not cell.strip():
            raise UsageError("the cell holds no SQL", fix="write it below the line with %%sag")
        result = self._ask(cell, names if options.params else None)
        if not target:
            return Table(result, options.rows)
        self.shell.user_ns[target] = result.df()
        columns = visible(clip(", ".join(result.columns), 80))
        _say(f"{target}: {len(result):,} rows × {len(result.columns)} columns ({columns})")
        return None

    def _ask(self, query: str, names: Mapping[str, Any] | None) -> QueryResult:
        spelt, wanted = spell_parameters(query)
        values = bind(wanted, names) if names is not None else {}
        text = spelt if names is not None else query
        try:
            return self.workspace.sql(text, values or None)
        except QueryError as error:
            place = place_of(self.workspace.duckdb, text, values)
            fix = error.fix if names is not None or not wanted else _BINDS
            what = error.what if place is None else f"{error.what} at {place}"
            raise QueryError(what, why=error.why.partition(" LINE ")[0], fix=fix) from error


_BINDS: Final = "with --params, :x and $x are taken from the notebook's variables"


def _parsed(line: str) -> Any:
    return _arguments.parse_argstring(SagMagics.sag, line)


def _opened(path: str, create: bool) -> Workspace:
    try:
        return open_workspace(path, create=create)
    except StoreError as error:
        fix = "" if create else f"to make one: %sag workspace {path} --create"
        raise StoreError(error.what, why=error.why, fix=fix) from error


def _target(text: str) -> str:
    found = _NAMED.fullmatch(text)
    if found is None or not found[1].isidentifier() or keyword.iskeyword(found[1]):
        raise UsageError(
            f"{clip(text, 40)!r} names no variable", fix="write %%sag name <<, with SQL below"
        )
    return found[1]


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _one_line(error: BaseException) -> str:
    return clip(visible(str(error)), _LONGEST)


@contextmanager
def _in_one_line() -> Iterator[None]:
    """Let an error fail the cell with one line; others keep their traceback."""
    try:
        yield
    except (SagError, OSError) as error:
        raise ShellError(_one_line(error)) from None
