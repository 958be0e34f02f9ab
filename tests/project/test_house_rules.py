"""Rules of the package that no linter knows, each a function over a tree of source."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.project.source import PACKAGE, ROOT, Module, docstrings, modules, write_tree

MAX_LINES = 60  # of code: a docstring is not counted, so that explaining costs nothing

# What runs code of others must outlive whatever it raises, and write down what it caught. An entry
# is "path::function", with the reason beside it.
BROAD_EXCEPT_ALLOWED: frozenset[str] = frozenset(
    {
        "sag_research/errors.py::Caught.__exit__",  # behaviours, agents, worlds, plug-ins
    }
)

RUNS_DATA = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
ESCAPES = {
    "html": None,  # None: the whole module; else the names in it
    "markupsafe": None,
    "xml.sax.saxutils": None,
    "urllib.parse": {"quote", "quote_plus", "quote_from_bytes"},
}
RAW_HTML = re.compile(
    r"\b(innerHTML|outerHTML|insertAdjacentHTML|document\.write(ln)?)\b|\|\s*safe\b"
)
# Code of others, shipped unchanged: its digest is pinned, and what of it reads markup is not used.
VENDORED = frozenset({"sag_research/viz/js/vendor/3d-force-graph.min.js"})
Rule = Callable[[Module], Iterator[str]]


def no_code_from_data(module: Module) -> Iterator[str]:
    """No pickle and its kin, no eval, no exec, no shell."""
    for node in ast.walk(module.tree):
        for name in imported(node):
            if name.split(".")[0] in RUNS_DATA:
                yield module.at(node, f"{name} can run code from data")
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id in {"eval", "exec"}:
            yield module.at(node, f"{node.func.id}()")
        if ast.unparse(node.func) in {"os.system", "os.popen", "subprocess.getoutput"}:
            yield module.at(node, f"{ast.unparse(node.func)}() starts a shell")
        for keyword in node.keywords:
            if keyword.arg in {"shell", "allow_pickle"} and not is_constant(keyword.value, False):
                yield module.at(node, f"{keyword.arg}={ast.unparse(keyword.value)}")


def no_broad_except(module: Module) -> Iterator[str]:
    """Catch what you expect; a broad handler is fine only if it raises again."""
    for function, node in with_function(module.tree):
        if not isinstance(node, ast.ExceptHandler) or is_bare_raise(node.body[-1]):
            continue
        caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        names = {"" if name is None else ast.unparse(name).split(".")[-1] for name in caught}
        allowed = f"{module.where}::{function}" in BROAD_EXCEPT_ALLOWED
        if names & {"", "Exception", "BaseException"} and not allowed:
            yield module.at(node, f"broad except in {function or 'the module'}")


def no_hidden_broad_except(module: Module) -> Iterator[str]:
    """No other way to keep any error: ``suppress(Exception)``, or an ``__exit__`` that does so."""
    broad = {"Exception", "BaseException"}
    for function, node in with_function(module.tree):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func).split(".")[-1]
        classes = {leaf.id for arg in node.args for leaf in ast.walk(arg)
                   if isinstance(leaf, ast.Name)}  # fmt: skip
        leaves = name == "isinstance" and function.rpartition(".")[2] in {"__exit__", "__aexit__"}
        allowed = f"{module.where}::{function}" in BROAD_EXCEPT_ALLOWED
        if classes & broad and (name == "suppress" or leaves) and not allowed:
            yield module.at(node, f"broad except by {name}() in {function or 'the module'}")


def text_files_name_their_encoding(module: Module) -> Iterator[str]:
    """``open`` of a text file, ``read_text`` and ``write_text`` say which encoding."""
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Call) or {k.arg for k in node.keywords} & {"encoding", None}:
            continue
        name = ast.unparse(node.func)
        is_open = name in {"open", "io.open", "os.fdopen"} and "b" not in mode_of(node, "r")
        compressed = name in {"gzip.open", "bz2.open", "lzma.open"} and "t" in mode_of(node, "rb")
        at = {"read_text": 0, "write_text": 1}.get(name.rpartition(".")[2])
        is_text = "." in name and at is not None and len(node.args) <= at
        if is_open or compressed or is_text:
            yield module.at(node, f"{name}() without encoding")


def only_text_escapes(module: Module) -> Iterator[str]:
    """HTML and IRIs are escaped in ``_text`` and nowhere else."""
    if module.parts == ("_text",):
        return
    for node in ast.walk(module.tree):
        for name in imported(node):
            base, _, last = name.rpartition(".")
            if ESCAPES.get(name, ()) is None or ESCAPES.get(base, ()) is None:
                yield module.at(node, f"{name}: escape through _text")
            elif last in (ESCAPES.get(base) or ()):
                yield module.at(node, f"{name}: build addresses through _text")
        if (
            isinstance(node, ast.Attribute)
            and node.attr in (ESCAPES["urllib.parse"] or ())
            and ast.unparse(node) != "shlex.quote"  # words of a command, not an address
        ):
            yield module.at(node, f"{ast.unparse(node)}: build addresses through _text")


def no_raw_html(module: Module) -> Iterator[str]:
    """No string of the package may hand text to the HTML parser of a page."""
    prose = docstrings(module.tree)
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        if id(node) not in prose and (hit := RAW_HTML.search(node.value)):
            yield module.at(node, f"raw HTML: {hit.group()}")


def functions_fit_a_screen(module: Module) -> Iterator[str]:
    """No function has more than `MAX_LINES` lines of code."""
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        if ast.get_docstring(node, clean=False) is not None:
            docstring = node.body[0]
            lines -= (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
        if lines > MAX_LINES:
            yield module.at(node, f"{node.name} has {lines} lines, more than {MAX_LINES}")


RULES: tuple[Rule, ...] = (
    no_code_from_data,
    no_broad_except,
    no_hidden_broad_except,
    text_files_name_their_encoding,
    only_text_escapes,
    no_raw_html,
    functions_fit_a_screen,
)


def imported(node: ast.AST) -> list[str]:
    """Dotted names that an import statement brings in (absolute ones)."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0:
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def is_constant(node: ast.expr, value: object) -> bool:
    """Whether a node is this very constant."""
    return isinstance(node, ast.Constant) and node.value is value


def is_bare_raise(node: ast.stmt) -> bool:
    """Whether a statement is ``raise`` alone."""
    return isinstance(node, ast.Raise) and node.exc is None


def mode_of(node: ast.Call, default: str) -> str:
    """The mode argument of a call to ``open``; one that is computed counts as the default."""
    given = [k.value for k in node.keywords if k.arg == "mode"] or node.args[1:2]
    modes = [m.value for m in given if isinstance(m, ast.Constant) and isinstance(m.value, str)]
    return modes[0] if modes else default


def with_function(node: ast.AST, function: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Every node below `node`, with the dotted name of the function or class it stands in."""
    for child in ast.iter_child_nodes(node):
        yield function, child
        named = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        yield from with_function(
            child, f"{function}.{child.name}".strip(".") if named else function
        )


def check_rules(root: Path) -> list[str]:
    """List every breach of a rule by the package under `root`."""
    return [breach for module in modules(root) for rule in RULES for breach in rule(module)]


def check_page_files(root: Path) -> list[str]:
    """List the lines of shipped pages and scripts that would parse text as HTML."""
    pages = [p for p in sorted((root / PACKAGE).rglob("*")) if p.suffix in {".html", ".js", ".j2"}]
    pages = [page for page in pages if page.relative_to(root).as_posix() not in VENDORED]
    return [
        f"{page.relative_to(root).as_posix()}:{number}: raw HTML: {hit.group()}"
        for page in pages
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
        if (hit := RAW_HTML.search(line))
    ]


def test_package_keeps_the_rules() -> None:
    assert check_rules(ROOT) == []


def test_pages_keep_the_rules() -> None:
    assert check_page_files(ROOT) == []


def test_allowed_broad_excepts_exist() -> None:
    for entry in BROAD_EXCEPT_ALLOWED:
        path, _, function = entry.partition("::")
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        assert function in {name for name, _ in with_function(tree)}, f"{entry} is gone"


LONG = "def f():\n" + "    x = 1\n" * MAX_LINES


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("import pickle", "pickle can run code"),
        ("from joblib import load", "joblib.load can run code"),
        ("def f():\n    import marshal", "marshal can run code"),
        ("eval('1')", "eval()"),
        ("exec('1')", "exec()"),
        ("os.system('ls')", "starts a shell"),
        ("subprocess.run('ls', shell=True)", "shell=True"),
        ("subprocess.run('ls', shell=flag)", "shell=flag"),
        ("np.load(path, allow_pickle=True)", "allow_pickle=True"),
        ("try:\n    f()\nexcept Exception:\n    pass", "broad except in the module"),
        ("def g():\n    try:\n        f()\n    except:\n        pass", "broad except in g"),
        ("try:\n    f()\nexcept (OSError, BaseException) as e:\n    log(e)", "broad except"),
        ("with suppress(OSError, Exception):\n    f()", "broad except by suppress()"),
        (
            "class A:\n    def __exit__(self, k, e, t):\n        return isinstance(e, Exception)",
            "broad except by isinstance() in A.__exit__",
        ),
        ("open('a')", "open() without encoding"),
        ("open('a', 'w')", "open() without encoding"),
        ("open('a', mode='w', newline='')", "open() without encoding"),
        ("gzip.open('a', 'rt')", "gzip.open() without encoding"),
        ("path.read_text()", "path.read_text() without encoding"),
        ("path.write_text(x)", "path.write_text() without encoding"),
        ("import html", "escape through _text"),
        ("from html import escape", "escape through _text"),
        ("from xml.sax.saxutils import escape", "escape through _text"),
        ("from urllib.parse import quote", "build addresses through _text"),
        ("urllib.parse.quote(x)", "build addresses through _text"),
        ("x = 'e.innerHTML = t'", "raw HTML: innerHTML"),
        ("x = f'{{{{ a | safe }}}} {b}'", "raw HTML: | safe"),
        (LONG, f"f has {MAX_LINES + 1} lines"),
        ("class A:\n" + "".join(f"    {line}\n" for line in LONG.splitlines()), "f has"),
    ],
)
def test_a_breach_is_found(tmp_path: Path, text: str, finding: str) -> None:
    found = check_rules(write_tree(tmp_path, {f"{PACKAGE}/log/_a.py": text}))
    assert len(found) == 1
    assert finding in found[0]


@pytest.mark.parametrize(
    "text",
    [
        "frame.eval('a + b'); model.eval()",
        "subprocess.run(['ls'], shell=False)",
        "try:\n    f()\nexcept (OSError, ValueError):\n    pass",
        "try:\n    f()\nexcept BaseException:\n    undo()\n    raise",
        "open('a', 'rb'); open('a', encoding='utf-8'); gzip.open('a'); open(*a, **k)",
        "path.read_text(encoding='utf-8'); path.read_text('utf-8'); path.write_text(x, 'utf-8')",
        "from urllib.parse import urlsplit\nurlsplit(x)",
        '"""Never uses innerHTML."""\ndef f():\n    """Nor innerHTML here."""',
        LONG.replace("    x = 1\n", '    """Say.\n' + "\n" * 90 + '    """\n', 1),
    ],
)
def test_proper_code_is_let_through(tmp_path: Path, text: str) -> None:
    assert check_rules(write_tree(tmp_path, {f"{PACKAGE}/log/_a.py": text})) == []


def test_text_room_may_escape(tmp_path: Path) -> None:
    text = "import html\nfrom urllib.parse import quote"
    assert check_rules(write_tree(tmp_path, {f"{PACKAGE}/_text.py": text})) == []


def test_raw_html_in_a_page_is_found(tmp_path: Path) -> None:
    files = {f"{PACKAGE}/viz/a.js": "a.textContent = t;\nb.innerHTML = t;\n"}
    found = check_page_files(write_tree(tmp_path, files))
    assert found == [f"{PACKAGE}/viz/a.js:2: raw HTML: innerHTML"]
