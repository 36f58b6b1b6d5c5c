"""Scripts for a provider that plays a judge, with verdicts that answer its requests exactly.

with ScriptedProvider(says({"reasoning": "Right.", "score": 4})) as provider:
    ...
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from assay.testing.providers import ProviderRequest, Reply, Tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def system_of(request: ProviderRequest) -> str:
    """Return the system part of a request of either protocol."""
    body = request.body
    if "system" in body:
        return "\n\n".join(part["text"] for part in body["system"])
    return str(body["messages"][0]["content"])


def user_of(request: ProviderRequest) -> str:
    """Return the material of a request."""
    return request.question


def verdict_id_of(request: ProviderRequest) -> str:
    """Return the verdict_id of a request, or the empty text."""
    match = re.search(r"verdict_id of this call is (\w+)", system_of(request))
    return match[1] if match else ""


def says(verdict: Mapping[str, Any], **reply: Any) -> Callable[[ProviderRequest], Reply]:
    """Return a script of a judge that gives this verdict, with the right verdict_id.

    Args:
        verdict: What it says besides that.
        reply: Further fields of the reply; it counts 1,200 and 150 tokens by default.
    """

    def script(request: ProviderRequest) -> Reply:
        text = json.dumps({"verdict_id": verdict_id_of(request), **verdict}, ensure_ascii=False)
        return Reply(text, **{"usage": Tokens(1_200, 150), **reply})

    return script
