"""`python -m assay_embedder.library_speed`: how fast sentence-transformers alone embeds some texts.

`assay bench embedder` shows it beside the embedder. Reads a JSON object with `model` and `texts` from stdin; prints one
with what was measured.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

BATCH_SIZE = 32
_WARM_UP_TEXTS = 32
_LONE_PAIRS, _TEXTS_PER_LONE_PAIR = 20, 16


def measure(model_name: str, texts: list[str]) -> dict[str, Any]:
    """Return texts a second, the word pieces of all texts, milliseconds of a lone pair, and seconds until ready."""
    start = time.perf_counter()
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(model_name)
    model.encode(["ready"], show_progress_bar=False)
    ready_s = time.perf_counter() - start
    model.encode(texts[:_WARM_UP_TEXTS], batch_size=BATCH_SIZE, show_progress_bar=False)
    start = time.perf_counter()
    model.encode(texts, batch_size=BATCH_SIZE, show_progress_bar=False)
    seconds = time.perf_counter() - start
    lone = []
    for at in range(min(_LONE_PAIRS, len(texts) // _TEXTS_PER_LONE_PAIR)):
        start = time.perf_counter()
        model.encode(texts[2 * at : 2 * at + 2], show_progress_bar=False)
        lone.append((time.perf_counter() - start) * 1000)
    tokens = sum(len(ids) for ids in model.tokenizer(texts, truncation=True)["input_ids"])
    return {"texts_per_s": len(texts) / seconds, "token_count": tokens, "lone_pair_ms": lone, "ready_s": ready_s}


if __name__ == "__main__":
    request = json.load(sys.stdin)
    print(json.dumps(measure(request["model"], request["texts"])))  # noqa: T201 - read by the process that started this
