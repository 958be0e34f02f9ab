"""The one place that makes text safe in LaTeX, Markdown and CSV.

Names of models, tasks and tools come from other people's files. In a table they are text: never a
command, never markup, never a formula.
"""

from __future__ import annotations

import re
from typing import Final

from sag_research._text import clip, visible

__all__ = ["csv_text", "latex", "markdown"]

LONGEST: Final = 60
"""More characters than this do not fit into a cell."""

_LATEX: Final = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#",
    "%": r"\%", "_": r"\_", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}",
    "`": r"\textasciigrave{}", "'": r"\textquotesingle{}",
    "–": r"\textendash{}", "—": r"\textemdash{}", "…": r"\ldots{}", "·": r"\textperiodcentered{}",
    "≤": r"$\leq$", "≥": r"$\geq$", "×": r"$\times$", "α": r"$\alpha$", "±": r"$\pm$",
    "⟨": "[", "⟩": "]", "[": "{[}", "]": "{]}", "*": "{*}",
}  # fmt: skip
"""Brackets stand in braces, for after ``\\\\`` they would be its argument."""

_LETTERS: Final = frozenset("äöüÄÖÜßéèêëáàâåãñçíìîïóòôõøúùûýÿÁÀÂÅÃÉÈÊËÍÌÎÏÑÓÒÔÕØÚÙÛÝÇæÆœŒ")
"""Letters beyond ASCII that every LaTeX engine knows in UTF-8."""

_MARKDOWN: Final = (
    {"<": "&lt;", ">": "&gt;", "&": "&amp;", "@": "&#64;"}
    | {sign: "\\" + sign for sign in "\\`*_[]|~$#!{}^"}
)  # fmt: skip
_LINK: Final = re.compile(r"://|www\.", re.IGNORECASE)
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def latex(text: object, limit: int = LONGEST) -> str:
    r"""Write text so that LaTeX prints it, whatever it is.

    Characters that not every engine has are named, as ``[U+4E2D]``.

    Examples
    --------
    >>> latex(r"a_b & \input{/etc/passwd}")
    'a\\_b \\& \\textbackslash{}input\\{/etc/passwd\\}'
    """
    signs = "".join(map(_latex_sign, visible(clip(text, limit))))
    return signs.replace("--", "-{}-{}")  # two hyphens would become a dash


def _latex_sign(sign: str) -> str:
    if sign in _LATEX:
        return _LATEX[sign]
    if sign.isascii() or sign in _LETTERS:
        return sign
    return f"{{[}}U+{ord(sign):04X}{{]}}"


def markdown(text: object, limit: int = LONGEST) -> str:
    r"""Write text so that Markdown shows it: no markup, no HTML, no link, no mention.

    Examples
    --------
    >>> markdown("a_b | <b>")
    'a\\_b \\| &lt;b&gt;'
    """
    shown = "".join(_MARKDOWN.get(sign, sign) for sign in visible(clip(text, limit)))
    return _LINK.sub(lambda found: found[0].replace(":", "&#58;").replace(".", "&#46;"), shown)


def csv_text(text: object) -> str:
    """Write text for a spreadsheet: on one line, and with ``'`` before what would be a formula.

    Examples
    --------
    >>> csv_text("=1+1"), csv_text("worker-clumsy")
    ("'=1+1", 'worker-clumsy')
    """
    line = visible(clip(text, 10_000))
    return f"'{line}" if line.startswith(_FORMULA) else line
