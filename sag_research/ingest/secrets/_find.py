"""Finding secrets: in a text as it is, over line breaks, and inside base64."""

from __future__ import annotations

import re
from base64 import b64decode
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Final, NamedTuple

from sag_research.ingest.secrets._kinds import Compiled, kinds, kinds_for
from sag_research.ingest.secrets._second import second_opinion
from sag_research.ingest.secrets._views import View, joined, readings, whole

__all__ = ["Finding", "find_in_name", "find_secrets", "token_of"]

_LINES: Final = 6
"""Line breaks in one key at most."""
_WIDTH: Final = 60
"""Characters from which on a line may have been wrapped."""
_SHORT: Final = 3
_WORDS: Final = frozenset({"OK", "EOF", "END", "YES", "NO", "GET", "PUT"})
"""What stands alone on a line behind a key, and is none of it."""
_REACH: Final = 4_000
_SIDE: Final = 400
_DEEPEST: Final = 2
"""Levels of base64 inside base64."""
_SECOND_RANK: Final = 10_000


class Finding(NamedTuple):
    """A secret in a text. It does not hold the secret."""

    kind: str
    start: int
    """First character of its span in the text as given, 0-based."""
    end: int
    token: str
    """What takes its place."""


class _Hit(NamedTuple):
    start: int
    end: int
    rank: int
    kind: str
    token: str


def token_of(kind: str, secret: str, *, low: bool) -> str:
    """Return what stands for a secret, the same one wherever and whenever it is met.

    Examples
    --------
    >>> token_of("password", "hunter2", low=True)
    '[secret:password]'
    """
    if low:
        return f"[secret:{kind}]"
    digest = sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
    return f"[secret:{kind}:{digest[:8]}]"


def find_secrets(text: str, *, second: bool = True) -> list[Finding]:
    """Find secrets in a text.

    Parameters
    ----------
    text : str
        As it was read: with terminal codes, line breaks, escapes.
    second : bool
        Ask the detectors of detect-secrets too, where that package is installed.

    Returns
    -------
    list of Finding
        In order, and none over another.

    Examples
    --------
    >>> find_secrets("export DB_PASSWORD=hunter2")
    [Finding(kind='password', start=19, end=26, token='[secret:password]')]
    """
    return [Finding(one.kind, one.start, one.end, one.token) for one in _hits(text, 0, second)]


def find_in_name(text: str, *, second: bool = True) -> list[Finding]:
    """Find secrets in an id or the name of a file, where words run into one another.

    Keys with a prefix of their own are found there with letters before and behind them too.
    """
    hits = _hits(text, 0, second)
    blank = _TOKEN.sub(lambda found: " " * len(found[0]), text)
    for one in kinds():
        if one.loose is None:
            continue
        for at in _places(blank, one.kind.keywords):
            found = one.loose.match(blank, at)
            if found is not None and one.accepts(found[0], found[0]):
                hits.append(_hit(whole(blank), *found.span(), one.rank, one.kind.name, low=False))
    return [Finding(one.kind, one.start, one.end, one.token) for one in _apart(hits)]


_TOKEN: Final = re.compile(r"\[secret:[a-z0-9-]{1,60}(?::[0-9a-f]{8})?\]")


def _hits(text: str, depth: int, second: bool) -> list[_Hit]:
    if "[secret:" in text:  # a token is no secret, nor a part of one
        text = _TOKEN.sub(lambda found: " " * len(found[0]), text)
    hits: list[_Hit] = []
    for view in readings(text):
        hits += _hits_in(view, depth, second)
    return _apart(hits)


def _hits_in(view: View, depth: int, second: bool) -> Iterator[_Hit]:
    yield from _plain(view)
    if second:
        for kind, start, end in second_opinion(view.text):
            yield _hit(view, start, end, _SECOND_RANK, kind, low=False)
    both = joined(view)
    if both is not None:
        yield from _wrapped(*both)
    if depth < _DEEPEST:
        yield from _encoded(view, depth)
        if both is not None:
            yield from _encoded(both[0], depth, both[1])


def _hit(view: View, start: int, end: int, rank: int, kind: str, *, low: bool) -> _Hit:
    secret = view.text[start:end]
    return _Hit(*view.span(start, end), rank, kind, token_of(kind, secret, low=low))


# ---- in a text as it is


def _plain(view: View) -> Iterator[_Hit]:
    for one, start, end in _matches(view.text):
        yield _hit(view, start, end, one.rank, one.kind.name, low=one.kind.low)


def _matches(text: str) -> Iterator[tuple[Compiled, int, int]]:
    lowered = _lowered(text)
    for one in kinds_for(text, lowered):
        done = -1
        for at in _places(lowered if one.kind.ignore_case else text, one.kind.keywords):
            if at < done:
                continue
            is_one, start, end, done = _match_at(one, text, at)
            if is_one:
                yield one, start, end


def _lowered(text: str) -> str:
    low = text.lower()
    # a few letters become two: then only ASCII is lowered, so that places stay
    return low if len(low) == len(text) else text.translate(_ASCII)


_ASCII: Final = {code: code + 32 for code in range(65, 91)}


def _places(text: str, keywords: Sequence[str]) -> list[int]:
    """Return where keywords stand, in order."""
    places: list[int] = []
    for word in keywords:
        at = text.find(word)
        while at >= 0:
            places.append(at)
            at = text.find(word, at + 1)
    return sorted(places) if len(keywords) > 1 else places


class _Match(NamedTuple):
    is_one: bool
    start: int = -1
    end: int = -1
    done: int = -1
    """Where to go on: what was looked at and is none is not looked at again."""


_NO_MATCH: Final = _Match(False)


def _match_at(one: Compiled, text: str, at: int) -> _Match:
    """Match a kind whose keyword stands at a place; gives the span of the secret."""
    if one.kind.near:
        found = one.regex.search(text, max(0, at - one.kind.near), at + _REACH)
        if found is not None and not found.start() <= at <= found.end():
            found = None
    else:
        found = one.regex.match(text, at)
    if found is None:
        return _NO_MATCH
    start, end = found.span(one.group)
    if one.kind.check == "pem":
        body = _pem_end(text, found.end())
        return _NO_MATCH if body is None else _Match(True, found.start(), body, body)
    is_one = one.accepts(text[start:end], text[found.start() : end])
    return _Match(is_one, start, end, end if is_one or one.group == 0 else start)


_PEM_LINES: Final = re.compile(
    r"(?:\s{0,8}(?:[A-Za-z0-9+/=]{16,80}|[A-Za-z-]{4,12}: [^\n]{0,80})){1,400}"
)
_PEM_END: Final = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_PEM_LONGEST: Final = 20_000
_PEM_SHORTEST: Final = 32


def _pem_end(text: str, at: int) -> int | None:
    """Find where a private key ends: at its last line, or where what looks like one does."""
    footer = _PEM_END.search(text, at, at + _PEM_LONGEST)
    between = text.find("-----BEGIN", at, footer.start()) if footer else -1
    if footer is not None and between < 0:
        body = re.sub(r"[^A-Za-z0-9+/=]", "", text[at : footer.start()])
        return footer.end() if len(body) >= _PEM_SHORTEST else None
    lines = _PEM_LINES.match(text, at)
    return lines.end() if lines is not None and lines.end() - at >= _PEM_SHORTEST else None


# ---- over line breaks


def _wrapped(view: View, breaks: list[int]) -> Iterator[_Hit]:
    """Look for keys that go on in the next line, from where their keyword stands.

    The lines behind are added one by one, so that where a line ends a key may end.
    """
    lowered = _lowered(view.text)
    for one in kinds_for(view.text, lowered):
        if not one.kind.wrap:
            continue
        done = -1
        for at in _places(lowered if one.kind.ignore_case else view.text, one.kind.keywords):
            if at >= done and (found := _over_breaks(one, view.text, breaks, at)) is not None:
                done = found[1]
                yield _hit(view, *found, one.rank, one.kind.name, low=one.kind.low)


def _over_breaks(one: Compiled, text: str, breaks: list[int], at: int) -> tuple[int, int] | None:
    line = bisect_right(breaks, max(0, at - one.kind.near))
    if line == len(breaks) or breaks[line] > at + _REACH:
        return None  # no line ends near
    start = max(breaks[line - 1] if line else 0, at - _SIDE)
    best: tuple[int, int] | None = None
    for number in range(line, min(line + _LINES, len(breaks)) + 1):
        end = min(breaks[number] if number < len(breaks) else len(text), at + _REACH)
        if end <= at:
            continue
        found = _match_at(one, text[start:end], at - start)
        if not found.is_one:
            if best is not None:
                break
            continue
        span = found.start + start, found.end + start
        if best is not None and not _goes_on(one, text, breaks, best[1], span[1]):
            break
        best = span
        if span[1] < end:
            break
    if best is None or bisect_left(breaks, best[1]) == bisect_right(breaks, best[0]):
        return None
    begun = text[best[0] : breaks[bisect_right(breaks, best[0])]]
    # what a person chose goes on; it does not begin on the line behind its name, nor is it a port
    return None if one.kind.low and (len(begun) < 2 or begun.isdigit()) else best


def _goes_on(one: Compiled, text: str, breaks: list[int], old: int, new: int) -> bool:
    """Tell whether what stands in the next line belongs to a key that might end before it."""
    more = text[old:new]
    number = bisect_left(breaks, old)
    width = old - (breaks[number - 1] if number else 0)
    line = breaks[number + 1] if number + 1 < len(breaks) else len(text)
    alone = new == line or text[new : new + 1] in ("'", '"')
    if one.kind.low:
        short = len(more) <= _SHORT or (_is_random(more) and not more.isdigit())
        return short if alone else len(more) >= 2 * _SHORT and _is_mixed(more)
    if alone and len(more) <= _SHORT:
        return not more.islower() and more.upper() not in _WORDS
    return _is_random(more) or (alone and width >= _WIDTH and not more.istitle())


def _is_mixed(text: str) -> bool:
    tests = (str.isdigit, str.isupper, str.islower)
    return all(any(map(test, text)) for test in tests)


def _is_random(text: str) -> bool:
    if any(map(str.isdigit, text)):
        return True
    return any(map(str.isupper, text[1:])) and any(map(str.islower, text))


# ---- inside base64


_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]{24,}={0,2}")
_READABLE: Final = re.compile(rb"[\t\n\r\x20-\x7e]{12,}")
_STANDARD: Final = str.maketrans("-_", "+/")


def _encoded(view: View, depth: int, breaks: list[int] | None = None) -> Iterator[_Hit]:
    """Look inside of what may be base64: at each of the four places where it may begin."""
    for run in _BASE64.finditer(view.text):
        start, end = run.span()
        if breaks is not None and bisect_right(breaks, start) == bisect_left(breaks, end):
            continue  # within one line: it was looked at before
        text = run[0].rstrip("=")
        if text.islower() or text.isdigit() or text.isupper():
            continue  # a name or a digest
        text = text.translate(_STANDARD)
        for skipped in range(4):
            for hit in _decoded(text[skipped:], depth):
                first, last = run.start() + skipped + hit.start, run.start() + skipped + hit.end
                start, end = view.span(first, last)
                yield hit._replace(start=start, end=end)


def _decoded(text: str, depth: int) -> Iterator[_Hit]:
    size = len(text) // 4 * 4
    rest = text[size:]
    tail = rest + "=" * (4 - len(rest)) if len(rest) > 1 else ""
    data = b64decode(text[:size] + tail)
    for part in _READABLE.finditer(data):
        for hit in _hits(part[0].decode("ascii"), depth + 1, False):
            start, end = part.start() + hit.start, part.start() + hit.end
            chars = start // 3 * 4, min(len(text), -(-end // 3) * 4)
            yield hit._replace(start=chars[0], end=chars[1])


# ---- one finding a place


def _apart(hits: Iterable[_Hit]) -> list[_Hit]:
    """Join hits over one another: the span of all of them, named by the most certain one."""
    found: list[_Hit] = []
    for hit in sorted(set(hits)):
        if found and hit.start < found[-1].end:
            last = found[-1]
            best = min(last, hit, key=_certainty)
            found[-1] = best._replace(start=last.start, end=max(last.end, hit.end))
        else:
            found.append(hit)
    return found


def _certainty(hit: _Hit) -> tuple[int, int]:
    return hit.rank, hit.start - hit.end
