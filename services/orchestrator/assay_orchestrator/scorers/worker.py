"""`python -m assay_orchestrator.scorers.worker`: a scorer process, one job at a time over its standard input.

The kernel ends it when a job exceeds its processor time: an interval timer of consumed time, which code that holds the
interpreter cannot delay and which a busy machine does not speed up. It dies with its parent.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import pickle
import resource
import signal
import sys
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import SetupError
from assay.process.logs import LogSettings, configure_logging
from assay_orchestrator.scorers.jobs import HEADER, MAX_REPLY_BYTES, READY, MapReply, ScoreRow, reply_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import BinaryIO

    from assay.metrics.core.score import Metric
    from assay_orchestrator.scorers.reply_mapping import ReplyMapping

NICENESS = 10
_SET_PARENT_DEATH_SIGNAL = 1  # prctl's PR_SET_PDEATHSIG
_MIB = 1024 * 1024

_log = logging.getLogger(__name__)


def main(arguments: Sequence[str]) -> None:
    """Run jobs until the parent closes the connection or ends.

    Args:
        arguments: The parent's process id, the processor time of a job in seconds, the memory in MiB, and the level and
            format of the log.
    """
    parent, limit_s, memory_mib = int(arguments[0]), float(arguments[1]), int(arguments[2])
    configure_logging(LogSettings(*arguments[3:]))
    _follow(parent)
    incoming, outgoing = _take_streams()
    os.nice(NICENESS)
    _import_all()
    _limit_memory(memory_mib)
    idle_bytes = _peak_bytes()
    _write(outgoing, READY)
    while (payload := _read(incoming)) is not None:
        signal.setitimer(signal.ITIMER_PROF, limit_s)
        result, failure = _done(payload)
        is_last = failure == "scoring_memory" or _peak_bytes() - idle_bytes > memory_mib * _MIB // 2
        reply = reply_of(result, failure=failure, is_last=is_last)
        if len(reply) > MAX_REPLY_BYTES:
            reply = reply_of(None, failure="scoring_result_too_large", is_last=is_last)
        signal.setitimer(signal.ITIMER_PROF, 0)
        _write(outgoing, reply)
        if is_last:
            return


def _follow(parent: int) -> None:
    """End with the parent, however it ends; signals to the process group are the parent's concern."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError, AttributeError):  # on systems other than Linux the end of the connection ends it
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(0)


def _take_streams() -> tuple[BinaryIO, BinaryIO]:
    """Return the connection; prints go to standard error."""
    connection = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return os.fdopen(connection, "rb"), os.fdopen(os.dup(connection), "wb")


def _import_all() -> None:
    from assay.metrics import METRICS

    for kind in METRICS:
        METRICS[kind]
    with contextlib.suppress(ImportError, SetupError):  # no run needs modules that are not installed
        import re2

        from assay.metrics.checks.schema_validation import schema_validator
        from assay_orchestrator.scorers import reply_mapping

        schema_validator("{}")
        _ = re2, reply_mapping


def _limit_memory(memory_mib: int) -> None:
    """Limit the memory beyond that of the imports; if the kernel runs out, it ends a scorer first."""
    with contextlib.suppress(OSError, ValueError):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + memory_mib * _MIB
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        Path("/proc/self/oom_score_adj").write_text("1000")


def _peak_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _read(incoming: BinaryIO) -> bytes | None:
    header = incoming.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    (size,) = HEADER.unpack(header)
    payload = incoming.read(size)
    return payload if len(payload) == size else None


def _write(outgoing: BinaryIO, payload: bytes) -> None:
    outgoing.write(HEADER.pack(len(payload)) + payload)
    outgoing.flush()


def _done(payload: bytes) -> tuple[Any, str]:
    """Return a job's result and an empty word, or None and why there is no result."""
    try:
        job = pickle.loads(payload)  # noqa: S301 - of the parent's own objects
        result = _scores(job) if isinstance(job, ScoreRow) else _answer(job)
    except MemoryError:
        return None, "scoring_memory"
    except Exception:  # noqa: BLE001 - the boundary of a case
        _log.exception("scoring job failed")
        return None, "scoring_failed"
    return result, ""


def _scores(job: ScoreRow) -> list[dict[str, Any]]:
    from assay.metrics.core.score import score_to_json
    from assay.metrics.rows.row_scores import score_row

    return [score_to_json(score) for score in score_row(_metrics(job.metrics), job.row)]


@lru_cache(maxsize=64)
def _metrics(settings: bytes) -> list[Metric]:
    from assay.metrics import build_metric

    return [build_metric(metric) for metric in pickle.loads(settings)]  # noqa: S301 - as above


def _answer(job: MapReply) -> dict[str, Any]:
    from assay.model.answers.agent_response import MalformedAnswerError, response_to_json
    from assay.model.answers.response_fields import UnmappedReplyError
    from assay.model.answers.response_limits import AnswerTooLargeError

    try:
        return {"answer": response_to_json(_mapping(job.expressions).read(job.reply))}
    except UnmappedReplyError as problem:
        return {"unmapped": str(problem)}
    except MalformedAnswerError as problem:
        return {"malformed": str(problem)}
    except AnswerTooLargeError as problem:
        return {"too_large": str(problem)}


@lru_cache(maxsize=64)
def _mapping(expressions: tuple[tuple[str, str], ...]) -> ReplyMapping:
    from assay_orchestrator.scorers.reply_mapping import ReplyMapping

    return ReplyMapping(dict(expressions))


if __name__ == "__main__":
    main(sys.argv[1:])
    logging.shutdown()
    os._exit(0)  # unloading modules one by one takes longer than a small job
