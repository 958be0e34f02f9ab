"""Read the hand-labelled steps and check that they still fit the real trajectories.

The labels in ``steps.jsonl`` hold offsets, digests and entity names, no text:
the texts are resolved here from the folder named by ``SAG_REAL_DATA``.
``python check.py`` checks everything and prints the number of mentions a kind.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import os
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

__all__ = ["KINDS", "check", "load_gold", "model_turns", "read_document"]

KINDS = (
    "File",
    "Module",
    "Symbol",
    "Error",
    "Test",
    "Command",
    "Configuration",
    "System",
    "Host",
    "Commit",
)
FIELDS = ("action", "observation")
STEPS = Path(__file__).with_name("steps.jsonl")
# The two mini-swe-agent versions differ in the word behind the fence.
FENCE = re.compile(r"```(?:bash|mswea_bash_command)\n(.*?)\n?```", re.DOTALL)

Turn = dict[str, str] | None


@functools.lru_cache(maxsize=4)
def read_document(path: Path) -> tuple[str, Any]:
    """Return the SHA-256 of a file's decompressed bytes, and its parsed JSON."""
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    return hashlib.sha256(data).hexdigest(), json.loads(data)


def _mini_turns(messages: list[dict[str, Any]]) -> list[Turn]:
    """Fenced block and following user message of each reply; None where rejected."""
    turns: list[Turn] = []
    for index, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        blocks = FENCE.findall(message["content"])
        following = messages[index + 1 : index + 2]
        if len(blocks) != 1 or not following:
            turns.append(None)
            continue
        turns.append({"action": blocks[0], "observation": following[0]["content"]})
    return turns


def _tau_turns(messages: list[dict[str, Any]]) -> list[Turn]:
    """Tool name and arguments, and the tool's answer; None for plain replies."""
    turns: list[Turn] = []
    for index, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        calls = message.get("tool_calls") or []
        following = messages[index + 1 : index + 2]
        if len(calls) != 1 or not following or following[0]["role"] != "tool":
            turns.append(None)
            continue
        function = calls[0]["function"]
        action = f"{function['name']} {function['arguments']}"
        turns.append({"action": action, "observation": following[0]["content"]})
    return turns


def _intercode_turns(episode: dict[str, Any]) -> list[Turn]:
    """Action and observation of each turn, in either of the two layouts."""
    if "trajectory" in episode:
        pairs = [(turn["action"], turn["observation"]) for turn in episode["trajectory"]]
    else:
        history = episode["turn_history"]
        pairs = list(zip(history["actions"], history["observations"], strict=False))
    return [
        {"action": action, "observation": observation}
        if isinstance(action, str) and isinstance(observation, str)
        else None
        for action, observation in pairs
    ]


def model_turns(file: str, document: Any, record: str | int | None) -> list[Turn]:
    """Return one entry per turn of the model: its field texts, or None.

    Parameters
    ----------
    file : str
        Path below the trajectories root; its first folder tells the format.
    document : Any
        Parsed JSON of the file.
    record : str or int or None
        Key or index of the episode where a file holds several.

    Raises
    ------
    ValueError
        If the folder is none of those labelled here.
    """
    folder = file.split("/", 1)[0]
    if folder == "mini_swe_agent_v1_gemini3pro_verified":
        return _mini_turns(document["messages"])
    if folder == "mini_swe_agent_v2_tests":
        return _mini_turns(document)
    if folder == "taubench":
        return _tau_turns(document[record]["traj"])
    if folder == "intercode":
        return _intercode_turns(document[record])
    if folder in ("sweagent_demos", "swesmith_sweagent_v1"):
        return [{name: turn[name] for name in FIELDS} for turn in document["trajectory"]]
    raise ValueError(f"no reader for {file}: its folder {folder!r} is not labelled here")


def load_gold(root: str | Path, steps: str | Path = STEPS) -> list[dict[str, Any]]:
    """Return the labelled steps with their texts.

    Parameters
    ----------
    root : str or Path
        The folder of real trajectories (``SAG_REAL_DATA``).
    steps : str or Path
        The labels; by default ``steps.jsonl`` beside this file.

    Returns
    -------
    list of dict
        The entries of the file, each with two more keys: ``texts`` (field name to
        full text, or None for a turn without fields) and ``found_digest`` (SHA-256
        of the bytes that were read). Mentions and optional mentions are tuples
        ``(field, start, end, kind, name)``; offsets count Unicode code points.
        Where a field has ``upto``, text behind that offset is not labelled.
    """
    gold = []
    for line in Path(steps).read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        digest, document = read_document(Path(root) / entry["file"])
        turns = model_turns(entry["file"], document, entry["record"])
        entry["texts"] = turns[entry["step"]]
        entry["found_digest"] = digest
        entry["mentions"] = [tuple(mention) for mention in entry["mentions"]]
        entry["optional"] = [tuple(mention) for mention in entry.get("optional", [])]
        gold.append(entry)
    return gold


def _field_problems(entry: dict[str, Any]) -> list[str]:
    problems = []
    for field in FIELDS:
        text, facts = entry["texts"][field], entry["fields"][field]
        if len(text) != facts["chars"]:
            problems.append(f"{field}: {len(text)} characters, not {facts['chars']}")
        if hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() != facts["sha256"]:
            problems.append(f"{field}: another text")
        if not 0 < facts.get("upto", 1) <= max(len(text), 1):
            problems.append(f"{field}: upto {facts['upto']} lies outside the text")
    return problems


def _span_problems(entry: dict[str, Any], key: str) -> list[str]:
    problems = []
    last: dict[str, int] = {}
    for field, start, end, kind, name in sorted(entry[key]):
        where = f"{field}[{start}:{end}]"
        facts = entry["fields"].get(field)
        if facts is None or kind not in KINDS or not name:
            problems.append(f"{where}: unknown field or kind, or no name: {kind} {name!r}")
            continue
        if not 0 <= start < end <= facts.get("upto", facts["chars"]):
            problems.append(f"{where}: outside the labelled text")
        elif entry["texts"][field][start:end].strip() != entry["texts"][field][start:end]:
            problems.append(f"{where}: begins or ends with white space")
        if start < last.get(field, 0):
            problems.append(f"{where}: overlaps the mention before it")
        last[field] = end
    return problems


def check(gold: list[dict[str, Any]]) -> list[str]:
    """Return what is wrong with loaded labels, one line a problem; empty when sound."""
    problems = []
    seen: set[tuple[str, str | int | None, int]] = set()
    for entry in gold:
        key = (entry["digest"], entry["record"], entry["step"])
        found = []
        if key in seen:
            found.append("labelled twice")
        seen.add(key)
        if entry["digest"] != entry["found_digest"]:
            found.append("the file has other bytes")
        if entry["texts"] is None:
            found.append("a turn without action and observation")
        else:
            found += _field_problems(entry)
            found += _span_problems(entry, "mentions") + _span_problems(entry, "optional")
            if set(entry["mentions"]) & set(entry["optional"]):
                found.append("a mention is also optional")
        where = f"{entry['file']} record {entry['record']} step {entry['step']}"
        problems += [f"{where}: {problem}" for problem in found]
    return problems


def main() -> int:
    """Check the labels against ``SAG_REAL_DATA``; 1 when something is wrong."""
    root = os.environ.get("SAG_REAL_DATA")
    if not root:
        print("set SAG_REAL_DATA to the folder of real trajectories", file=sys.stderr)
        return 2
    gold = load_gold(root)
    problems = check(gold)
    for problem in problems:
        print(problem, file=sys.stderr)
    counts = Counter(mention[3] for entry in gold for mention in entry["mentions"])
    optional = Counter(mention[3] for entry in gold for mention in entry["optional"])
    print(f"{'kind':<14} {'mentions':>8} {'optional':>8}")
    for kind in KINDS:
        print(f"{kind:<14} {counts[kind]:>8} {optional[kind]:>8}")
    print(f"{'total':<14} {counts.total():>8} {optional.total():>8}")
    print(f"{len(gold)} steps, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
