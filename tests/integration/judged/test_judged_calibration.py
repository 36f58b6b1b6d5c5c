"""A run names the calibration of its judge, or says that there is none."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from assay.client.calibrations import set_calibration
from assay.model.judge_calibration import JudgeCalibration
from assay.reports.document.document import judging_document
from assay.reports.words.calibration_text import NO_CALIBRATION, calibration_sentences
from assay.testing.judges import says

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.judged.conftest import Stage

    from assay.model.case import Case

    SetUp = Callable[..., Stage]
    CaseOf = Callable[..., Case]


async def test_a_run_names_the_calibration_of_its_judge(set_up: SetUp, case_of: CaseOf) -> None:
    """By fingerprint, with n, alpha and interval, and with the pass rate that people would have given."""
    stage = set_up(says({"reasoning": "Good.", "score": 5}))
    async with stage.judge(), stage.orchestrator() as client:
        made = await stage.create(
            client, stage.settings(judge=stage.who(canary_rate=0.0)), [case_of(n) for n in range(4)]
        )
        run = await stage.follow(client, made)
        assert calibration_sentences(run) == [NO_CALIBRATION]
        assert run.summary is not None
        assert run.summary.judging is not None
        (metric,) = [each for each in run.summary.metrics if each.metric == "quality"]
        found = JudgeCalibration(
            "quality", fingerprints=run.summary.judging.fingerprints, judge="openai:judge-1", n=60,
            measure="alpha_interval", alpha=0.86, low=0.79, high=0.91, trust="trusted",
            threshold=metric.threshold, rule=metric.rule, sensitivity=0.9, n_passed=40, specificity=0.8,
            n_failed=20, drawn="random",
        )  # fmt: skip
        await set_calibration(client, found)
        await set_calibration(
            client,
            JudgeCalibration(
                "quality", fingerprints=("sha256:another",), n=60, measure="alpha_interval", trust="unknown",
                drawn="unknown",
            ),
        )  # fmt: skip
        again = await client.get_run(run.run_id)
        (sentence,) = calibration_sentences(again)
        await set_calibration(client, dataclasses.replace(found, n_passed=54, n_failed=6))
        uneven = await client.get_run(run.run_id)
    assert sentence.startswith("quality: TRUSTED, alpha 0.86 [0.79, 0.91] with people on 60 answers (20")
    assert "; quality: 4 of 4 rows pass, as people would 100.0% [" in sentence
    document = judging_document(again)
    assert document is not None
    assert document["calibration_messages"] == [sentence]
    assert document["calibrations"][0]["corrected"]["quality"]["value"] == 1.0
    (caution,) = calibration_sentences(uneven)
    assert caution.endswith(
        "(people failed only 6 of 60 labelled answers: the interval is too narrow if these are not drawn from this run)"
    )
