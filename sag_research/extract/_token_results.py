"""From what came back to a result symbol: exit codes, and signs in a bounded part of the text.

Signs are plain words, looked for with ``in``; patterns meet short texts only. So one observation
costs a few microseconds, whatever it holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from .._text import strip_terminal
from ._terminal import ESCAPE
from ._token_rules import Limits, Observed, Replies

__all__ = ["ResultClasses"]

_END: Final = 1500
"""Characters at the end in which a test runner says how it went."""
_AROUND: Final = ("<output", "<returncode>", "<warning>", "(Open file: ", "bash-$", "xit code ")
"""Without one of these, nothing stands around an observation."""
_SUMMARY: Final = "====="
_TIMED_OUT: Final = frozenset({124, 137, -9, 143})
_PYTEST_EMPTY: Final = 5


class ResultClasses:
    """Says of observations how the step went."""

    def __init__(self, observed: Observed, replies: Replies, limits: Limits) -> None:
        self._signs = observed
        self._replies = replies
        self._limits = limits
        self._around = re.compile(observed.around)
        self._code = re.compile(observed.exit_code)
        self._fail = re.compile(observed.test_fail, re.MULTILINE)
        self._pass = re.compile(observed.test_pass, re.MULTILINE)
        self._none = re.compile(observed.test_none)
        self._yes = re.compile("|".join(rf"{re.escape(word)}\b" for word in replies.yes))
        self._no = re.compile("|".join(rf"{re.escape(word)}(?!\w)" for word in replies.no))

    def of(self, verb: str, observation: str, exit_code: int | None) -> str:
        """Return the result of a step that did something."""
        notice = self._limits.notice
        head, tail = observation[:notice], observation[-notice:]
        if exit_code is None:
            exit_code = self._exit_code(head, tail)
        short = len(observation) <= notice
        body = self._inside(observation) if short else head
        if not body or (len(body) < 120 and body.startswith(self._signs.empty)):
            return self._of_nothing(verb, exit_code)
        if self._timed_out(verb, head, tail, exit_code):
            return "timeout"
        if verb in self._signs.reading:
            found = self._read(body if short else "", exit_code)
        else:
            found = self._done(verb, observation, body, tail, exit_code)
        if found or verb in self._signs.silent:
            return found or "ok"
        long = len(observation) > self._limits.long or (not short and self._cut(head, tail))
        return "long" if long else "ok"

    def of_reply(self, text: str) -> str:
        """Return how a person answered."""
        if not text.strip():
            return "none"
        opening = self._limits.opening
        if any(sign in text[:opening] or sign in text[-opening:] for sign in self._replies.end):
            return "reply-end"
        start = text[:opening].lstrip().lower().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
        if "?" in text[-opening:]:
            return "reply-question"
        if self._yes.match(start):
            return "reply-yes"
        return "reply-no" if self._no.match(start) else "reply"

    def said(self, text: str) -> str:
        """Return what kind of thing an agent says to a person."""
        opening, words = self._limits.opening, self._replies
        start, end = text[:opening].lower(), text[-opening:].lower()
        if _any(words.refusal, start):
            return "refusal"
        if _any(words.report, start):
            return "report"
        if _any(words.confirm, end):
            return "confirm"
        if _any(words.offer, start):
            return "offer"
        return "question" if "?" in end else "statement"

    def _timed_out(self, verb: str, head: str, tail: str, exit_code: int | None) -> bool:
        if exit_code in _TIMED_OUT:
            return True
        if exit_code == 0 or (verb in self._signs.reading and exit_code is None):
            return False
        words, opening = self._signs.timeout, self._limits.opening
        if not (_any(words, head[:opening]) or _any(words, tail[-opening:])):
            return False
        # a program that caught a timeout of its own tells so in a traceback
        return not (_any(self._signs.traceback, head) or _any(self._signs.traceback, tail))

    def _inside(self, observation: str) -> str:
        """Return a short observation without what an agent puts around all of them."""
        if _any(_AROUND, observation):
            observation = self._around.sub("", observation)
        return observation.strip()

    def _exit_code(self, head: str, tail: str) -> int | None:
        if head.startswith("<returncode>"):
            found = self._code.match(head)
        elif "with exit code " in tail:
            found = self._code.search(tail)
        else:
            return None
        return int(found[1] or found[2]) if found else None

    def _of_nothing(self, verb: str, exit_code: int | None) -> str:
        if not exit_code or (verb == "search" and exit_code == 1):
            return "ok" if verb in self._signs.silent else "empty"
        return "timeout" if exit_code in _TIMED_OUT else "error"

    def _read(self, notice: str, exit_code: int | None) -> str:
        """Result of reading: contents say nothing, a short notice of the tool may."""
        opening = notice[: self._limits.opening]
        if exit_code == 0 or (exit_code == 1 and not _any(self._signs.not_found, opening)):
            return ""  # grep says 1 where it finds nothing, diff where it finds something
        signs = self._signs
        if exit_code or _begins(opening, signs.error) or _begins(opening, signs.complaint):
            return "not-found" if _any(signs.not_found, opening) else "error"
        return ""

    def _done(
        self, verb: str, observation: str, body: str, tail: str, exit_code: int | None
    ) -> str:
        """Result of a step that changed or ran something."""
        ended = self._tests(verb, tail[-_END:], exit_code)
        if ended:
            return ended
        window = self._limits.observation
        whole = len(observation) <= 2 * window
        text = observation if whole else observation[:window] + "\n" + observation[-window:]
        signs = self._signs
        if _any(signs.traceback, text):
            return self._kind(tail) or "traceback"
        if exit_code and _any(signs.not_found, tail) and exit_code in (2, 126, 127):
            return self._kind(tail) or "not-found"
        if exit_code:
            return self._kind(tail) or "error"
        if exit_code is None:
            return self._notice(verb, body, tail)
        return ""

    def _notice(self, verb: str, body: str, tail: str) -> str:
        """Result by words alone, where no exit code is known."""
        signs = self._signs
        opening = body[: self._limits.opening]
        complains = _begins(opening, signs.error)
        if complains and (no := self._service(opening)):
            return no
        if verb in ("edit", "create", "undo"):
            done = body.startswith(signs.edit_done) or not (
                complains or _any(signs.edit_error, opening)
            )
            return "" if done else self._kind(opening) or "error"
        if complains:
            return self._kind(opening) or "error"
        if _short(body, signs.not_found):
            return "not-found"
        last = tail.rstrip().rpartition("\n")[2]
        return self._kind(last) or ("error" if _any(signs.run_error, last) else "")

    def _service(self, complaint: str) -> str:
        """Return what a complaint says is wrong, if it says so."""
        signs = self._signs
        for result, words in (
            ("unavailable", signs.unavailable), ("mismatch", signs.mismatch),
            ("not-found", signs.not_found), ("forbidden", signs.forbidden),
        ):  # fmt: skip
            if _any(words, complaint):
                return result
        return ""

    def _kind(self, text: str) -> str:
        if _any(self._signs.imports, text):
            return "import"
        return "syntax" if _any(self._signs.syntax, text) else ""

    def _tests(self, verb: str, end: str, exit_code: int | None) -> str:
        """Result by the last lines of a test runner, if there are such."""
        if verb in ("install", "browse", "delete"):
            return ""
        signs = self._signs
        if ESCAPE in end:
            end = strip_terminal(end)
        if verb == "test" and (
            exit_code == _PYTEST_EMPTY
            or (_any(signs.test_none_words, end) and self._none.search(end))
        ):
            return "empty"
        # words of failure in the output of another program are no verdict of a test runner
        if verb != "test" and not self._ran_tests(end):
            return ""
        if _any(signs.test_fail_words, end) and self._fail.search(end):
            return "test-fail"
        passed = not exit_code and _any(signs.test_pass_words, end) and self._pass.search(end)
        return "test-pass" if passed else ""

    def _ran_tests(self, end: str) -> bool:
        return ("Ran " in end and " in " in end) or "FAILED (" in end or _SUMMARY in end

    def _cut(self, head: str, tail: str) -> bool:
        return _any(self._signs.cut, head) or _any(self._signs.cut, tail)


def _any(words: Iterable[str], text: str) -> bool:
    """Whether one of the words stands in the text."""
    for word in words:  # noqa: SIM110 - a generator would double the time of a token
        if word in text:
            return True
    return False


def _begins(text: str, words: Iterable[str]) -> bool:
    """Whether the first line begins with, or is a program's complaint with, one of the words."""
    first = text.lstrip().partition("\n")[0]
    return first.startswith(tuple(words)) or (first[:2] == '{"' and '"error"' in first[:20])


def _short(text: str, words: Iterable[str]) -> bool:
    """Whether a text of one or two lines holds one of the words."""
    return 0 < len(text) < 200 and text.count("\n") < 2 and _any(words, text)
