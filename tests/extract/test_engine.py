"""The engine finds exactly what ``re.finditer`` finds, on any text."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sag_research._text import repair
from sag_research.extract import _engine
from sag_research.extract._engine import find, find_with_re
from sag_research.extract._rules import Compiled, load_rulebook

RULES = load_rulebook().rules
EXAMPLES = [compiled.rule.example for compiled in RULES]
PIECES = [
    *EXAMPLES, "a/b.py", "/x.py", "::", "test_", "[p]", "\n", "\r\n", " ", ":", "3", "1.2.3.4:80",
    'File "', '", line 3', "é", "🎉", "ſ", "K", "İ", "import ", "from ", ", ", "as b", "Error",
    "TIMEOUT", "fail ", "pG", "://", "@", "$", "{", "A_B=", "=", "git ", "deadbeef1", "^", "\x85",
    "\u2028", "\x0b", "\x1c", "-", ".", "/", "'", '"', "`", "(", ")",
]  # fmt: skip
texts_of_pieces = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=25).map("".join)


def by_engine(texts: list[str], rules: tuple[Compiled, ...] = RULES) -> dict[str, list[object]]:
    return {
        rule.rule.name: [
            (text, start, end, found.names[code])
            for text, start, end, code in zip(
                found.text.tolist(), found.start.tolist(), found.end.tolist(), found.code.tolist(),
                strict=True,
            )
        ]
        for rule, found in zip(rules, find(texts, rules), strict=True)
    }  # fmt: skip


def by_re(texts: list[str]) -> dict[str, list[object]]:
    return {rule.rule.name: list(find_with_re(texts, rule)) for rule in RULES}


@pytest.fixture(params=["tiny", "few", "many"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each of the three ways through the engine, whatever the size of the texts."""
    if request.param != "tiny":
        monkeypatch.setattr(_engine, "TINY", -1)
    if request.param == "many":
        monkeypatch.setattr(_engine, "FEW", -1)
        monkeypatch.setattr(_engine, "CHUNK", 200)
    return str(request.param)


def test_examples_in_every_way(path: str) -> None:
    texts = [*EXAMPLES, "", "é" + EXAMPLES[1], "\n".join(EXAMPLES)]
    found = by_engine(texts)
    assert found == by_re(texts), path
    assert all(found.values())


@given(st.lists(texts_of_pieces, max_size=4))
def test_any_text_like_re(texts: list[str]) -> None:
    texts = [repair(text) for text in texts]
    expected = by_re(texts)
    for tiny, few, chunk in ((-1, 100, 10**6), (-1, -1, 60)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_engine, "TINY", tiny)
            patch.setattr(_engine, "FEW", few)
            patch.setattr(_engine, "CHUNK", chunk)
            assert by_engine(texts) == expected


def test_real_text_like_re(real_data: Path) -> None:
    paths = sorted(real_data.glob("mini_swe_agent_v1*/trajs/*.traj.json.gz"))[::60]
    assert paths
    texts = []
    for path in paths:
        messages = json.loads(gzip.decompress(path.read_bytes()))["messages"]
        texts += [repair(message["content"])[:20_000] for message in messages]
    assert sum(map(len, texts)) > _engine.FEW
    assert by_engine(texts) == by_re(texts)
