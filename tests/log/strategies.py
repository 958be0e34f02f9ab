"""What a payload may hold, as Hypothesis strategies."""

from __future__ import annotations

from hypothesis import strategies as st

# Any text but half characters; NUL is allowed in values and not in keys.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
keys = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=10)

# Around the 512 bytes at which a text is kept beside the event, in one to four bytes a character.
threshold_texts = st.builds(
    lambda char, size, pad: char * (size // len(char.encode())) + "x" * pad,
    st.sampled_from(["a", "é", "€", "😀", "\n", "\x00", '"']),
    st.integers(500, 530),
    st.integers(0, 3),
)
# Texts that look like the mark of a text kept elsewhere.
mark_texts = st.sampled_from(
    ['{"\x00":"' + "ab" * 32 + '"}', '{"\\u0000":"' + "ab" * 32 + '"}', "\x00", '{"\\u0000":']
)
numbers = (
    st.integers(-(10**400), 10**400)
    | st.integers(-5, 5)
    | st.floats(allow_nan=False, allow_infinity=False)
)
scalars = st.none() | st.booleans() | numbers | texts | threshold_texts | mark_texts
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)
payloads = st.dictionaries(keys, values, max_size=5)
