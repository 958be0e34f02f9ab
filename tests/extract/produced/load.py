"""Read the produced steps and their labels, in the shape that the scorer takes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

__all__ = ["KINDS", "LANGUAGES", "check_seal", "load_produced"]

HERE = Path(__file__).resolve().parent
KINDS = ("File", "Error", "Test", "Symbol")
"""Kinds that are labelled in these steps; predictions of others do not count."""
LANGUAGES = ("python", "javascript", "typescript", "go", "rust", "java", "c", "cpp", "shell")


def load_produced(part: str = "open") -> list[dict[str, Any]]:
    """Return the labelled steps of one part, with their texts.

    ``open`` and ``sealed`` are the halves; ``fresh`` came after the rules were finished.
    """
    name = "steps-fresh.jsonl" if part == "fresh" else "steps.jsonl"
    steps = {step["id"]: step for step in _lines(HERE / name)}
    entries = []
    for entry in _lines(HERE / f"labels-{part}.jsonl"):
        step = steps[entry["id"]]
        texts = {field: step[field] for field in ("action", "observation")}
        entries.append(
            {
                "id": entry["id"], "root": step["root"], "texts": texts,
                "fields": {field: {"chars": len(text)} for field, text in texts.items()},
                "mentions": [tuple(mention) for mention in entry["mentions"]],
                "optional": [tuple(mention) for mention in entry["optional"]],
            }
        )  # fmt: skip
    return entries


def check_seal() -> list[str]:
    """Return the names of files that are not what was sealed."""
    manifest = json.loads((HERE / "manifest.json").read_text(encoding="utf-8"))
    return [
        name
        for name, digest in manifest.items()
        if name.endswith(".jsonl")
        and hashlib.sha256((HERE / name).read_bytes()).hexdigest() != digest
    ]


def _lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
