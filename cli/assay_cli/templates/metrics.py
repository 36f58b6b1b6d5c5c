"""Your own metrics. The spec names them as `metrics:FUNCTION`; see docs/metrics/composites.md of Assay.

Assay passes the arguments that the parameters name:

    answer       the text of the answer (also: text)
    response     the whole answer: sources, tool_calls, usage, sql, output, latency_ms ...
    case         the case with references and expectations, which agents never see
    reference    the first reference, or None (also: references, all of them)
    request      the request to the agent; question is its text

The function returns a number, True or False, an assay.MetricResult with its reasoning, or None if it does not apply. An
exception becomes an error of the row, with the traceback in the report. It may be `async def`, e.g. to call a service.
"""

import assay


def helpfulness(answer: str, reference: str | None) -> assay.MetricResult:
    """Return the share of the reference's words in the answer, and the missing words."""
    if not reference:
        return assay.MetricResult(None, "the case has no reference")
    due = set(reference.lower().split())
    missing = sorted(due - set(answer.lower().split()))
    return assay.MetricResult(1 - len(missing) / len(due), f"lacks {', '.join(missing) or 'nothing'}")


async def is_brief(answer: str) -> bool:
    """Return whether the answer has at most 100 words; without a threshold, a row passes if this is true."""
    return len(answer.split()) <= 100
