"""Secrets are found however they were left, and nothing else is touched."""

from __future__ import annotations

import base64
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sag_research.ingest.secrets import Finding, find_secrets, kinds, redact_text
from sag_research.ingest.secrets._second import second_opinion, second_version
from tests.ingest.secrets.seeds import (
    LOW,
    SHAPES,
    VARIANTS,
    ansi,
    breaks,
    drawn,
    encoded,
    harmless,
    remains,
    secret_of,
    seeds,
)

GITHUB = drawn(random.Random(7), "ghp_<A36>")


def test_there_are_at_least_fifty_kinds() -> None:
    assert len(SHAPES) >= 50
    assert len(kinds()) >= 100
    names = [one.kind.name for one in kinds()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("second", [False, True])
def test_nothing_of_a_seeded_set_is_left(second: bool) -> None:
    left = []
    for one in seeds(seed=1):
        found = find_secrets(one.text, second=second)
        out = one.text
        for hit in reversed(found):
            out = out[: hit.start] + hit.token + out[hit.end :]
        assert remains(one.text, one.secret), one  # else the check could not fail
        if remains(out, one.secret):
            left.append((one.kind, one.variant))
    assert left == []


def test_ordinary_texts_stay_as_they_are() -> None:
    touched = [(kind, find_secrets(text)) for kind, text in harmless(seed=1) if find_secrets(text)]
    assert touched == []


def test_a_secret_has_one_token_wherever_it_stands() -> None:
    rng = random.Random(3)
    tokens = {
        hit.token
        for variant in VARIANTS.values()
        for hit in find_secrets(variant(rng, "{}", GITHUB))
    }
    assert len(tokens) == 1
    assert tokens.pop().startswith("[secret:github-token:")


def test_spans_are_those_of_the_text_as_it_was() -> None:
    text = f"a \x1b[1m{GITHUB[:9]}\x1b[0m{GITHUB[9:]}\x1b[m b"
    (hit,) = find_secrets(text)
    assert text[hit.start : hit.end] == f"{GITHUB[:9]}\x1b[0m{GITHUB[9:]}"
    text = f"a {GITHUB[:20]}\n    {GITHUB[20:]} b"
    (hit,) = find_secrets(text)
    assert text[hit.start : hit.end] == f"{GITHUB[:20]}\n    {GITHUB[20:]}"
    assert redact_text(text) == f"a {hit.token} b"


def test_inside_base64_only_the_part_that_holds_it_goes() -> None:
    text = base64.b64encode(f"{'x' * 300} {GITHUB} {'y' * 300}".encode()).decode()
    (hit,) = find_secrets(text)
    assert 3 * (hit.end - hit.start) / 4 < len(GITHUB) + 6
    assert base64.b64decode(text[: hit.start]).startswith(b"xxx")
    assert not remains(redact_text(text), GITHUB)


def test_what_a_person_chose_has_no_digest() -> None:
    rng = random.Random(5)
    for kind, shape, text in SHAPES:
        secret = secret_of(rng, kind, shape)
        tokens = [hit.token for hit in find_secrets(text.format(secret))]
        assert len(tokens) == 1, kind
        assert tokens[0].count(":") == (1 if kind in LOW else 2), (kind, tokens)


def test_a_cleaned_text_is_clean() -> None:
    for one in seeds(seed=2):
        clean = redact_text(one.text)
        assert find_secrets(clean) == [], (one.kind, one.variant, clean)


def test_what_follows_a_key_on_the_next_line_stays() -> None:
    for after in ("next", "Traceback", "done.", "src tests", "$ ls", "user1 logged in"):
        text = f"{GITHUB}\n{after}\n"
        assert redact_text(text).endswith(f"]\n{after}\n"), after
        assert redact_text(f"DB_PASSWORD=hunter2x\n{after}\n").endswith(f"]\n{after}\n"), after
    assert "port" not in redact_text("http://localhost:8000\nport@example.com").split("\n")[0]
    assert find_secrets("http://localhost:8000\nsomeone@example.com") == []


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("DB_PASSWORD=swordfish", "password"),
        ("password: hunter2", "password"),
        ("{'password': 'correct-horse'}", "password"),
        ('{\\"password\\": \\"s3cret-word\\"}', "password"),
        ("mysql --password=Tr0ub4dor -u root", "command-password"),
        ("Cookie: theme=dark; sid=1a2b3c4d5e6f7a8b9c0d", "cookie"),
        ("host:5432:app:svc:Tr0ub4dor", "pgpass-password"),
        ("Server=db;User Id=sa;Password=Tr0ub4dor;", "connection-string-password"),
    ],
)
def test_by_what_stands_before(text: str, kind: str) -> None:
    assert [hit.kind for hit in find_secrets(text, second=False)] == [kind]


@pytest.mark.parametrize(
    "text",
    [
        "password=password",
        "password = None",
        'password="your-password"',
        "password=os.environ['DB_PASSWORD']",
        "password = get_password(user)",
        "self.password = raw_password",
        "api_key = settings.API_KEY",
        "token: str",
        "tokens: 12345678901234567890",
        "-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----",
        "https://user@example.com:443/x",
        "[secret:github-token:1a2b3c4d] and password=[secret:password]",
    ],
)
def test_code_and_placeholders_are_none(text: str) -> None:
    assert find_secrets(text, second=False) == []


def test_a_key_in_a_cut_off_pem_is_found() -> None:
    whole = secret_of(random.Random(1), "private-key-rsa", "")
    cut = "\n".join(whole.splitlines()[:6])
    assert not remains(redact_text(cut + "\n... (output cut)"), whole)


@given(st.text(max_size=300))
@settings(max_examples=200, deadline=None)
def test_any_text_can_be_looked_through(text: str) -> None:
    last = 0
    for hit in find_secrets(text, second=False):
        assert isinstance(hit, Finding)
        assert last <= hit.start < hit.end <= len(text)
        last = hit.end


@given(
    st.text(max_size=80),
    st.text(max_size=80),
    st.sampled_from([ansi, breaks, encoded]),
    st.integers(0, 2**16),
)
@settings(max_examples=150, deadline=None)
def test_whatever_stands_around_it(before: str, after: str, variant, seed: int) -> None:
    made = variant(random.Random(seed), "{}", GITHUB)
    text = f"{before} {made} {after}"
    assert not remains(redact_text(text), GITHUB)


def test_lone_surrogates_and_letters_that_grow_when_lowered() -> None:
    text = f"İİİ \ud800 password='tr0ub4dor' {GITHUB}"
    clean = redact_text(text)
    assert clean.startswith("İİİ \ud800 password='[secret:password]' [secret:github-token:")


LONG = {
    "letters": "a" * 10**6,
    "spaces": " " * 10**6 + "\n",
    "prefixes": "sk-" * 333_000,
    "jwt heads": "eyJ" * 333_000,
    "urls": "a://" * 250_000,
    "escapes": "\\" * 10**6,
    "codes": "\x1b]" * 500_000,
    "pem heads": ("-" * 5 + "BEGIN PRIVATE KEY" + "-" * 5) * 30_000,
}


@pytest.mark.timeout(60)  # what takes the square of a megabyte takes hours
@pytest.mark.parametrize("name", LONG)
def test_a_long_line_ends(name: str) -> None:
    clean = redact_text(f"{LONG[name]}\n{GITHUB}\n{LONG[name][:1_000]}")
    assert GITHUB not in clean


def test_the_second_opinion_is_that_of_the_package() -> None:
    pytest.importorskip("detect_secrets")
    assert second_version() is not None
    key = drawn(random.Random(1), "AKIA<L16>")
    assert ("ds-aws", 4, 24) in set(second_opinion(f"id: {key} is one"))
    assert list(second_opinion("x" * 10_000 + key)) == []
