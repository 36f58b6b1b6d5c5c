"""ROUGE in every script, compared with the usual package on English."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from assay.metrics.core.score import Metric, Row
from assay.metrics.rouge import lcs_length, rouge
from assay.model.run import ScoreStatus
from assay.text.porter_stemmer import stem
from assay.text.word_tokens import tokenize

MEASURES = ("rouge1", "rouge2", "rougeL")
SUFFIXES = """
    ational tional enci anci izer bli alli entli eli ousli ization ation ator alism iveness fulness ousness aliti iviti
    biliti fulli logi icate ative alize iciti ical ful ness al ance ence er ic able ible ant ement ment ent ion ou ism
    ate iti ous ive ize ed ing eed ied ies sses ss s y yy ll e at bl iz
"""
ODD_WORDS = """
    sky skies dying lying tying news innings inning outings outing cannings canning howe proceed exceed succeed flies
    dies died spied enjoy happy spy by a geology archaeology syzygy yyyyyy sayyed
"""


@pytest.fixture(scope="module")
def scorer() -> Callable[[bool], Any]:
    """The usual package's scorer, with its own tokenizer; imported here because that takes seconds."""
    from rouge_score import rouge_scorer

    def build(use_stemmer: bool) -> Any:
        return rouge_scorer.RougeScorer(list(MEASURES), use_stemmer=use_stemmer)

    return build


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("عذرًا، البيانات غَيْر متـوفرة ٤٢", "عذرا البيانات غير متوفرة 42"),
        ("all-MiniLM_L6 don't café", "all minilm l6 don t café"),
        ("पूर्व प्रधानमन्त्री", "पूर्व प्रधानमन्त्री"),
        ("東京タワー is tall", "東 京 タ ワ ー is tall"),
        ("กิน๒a", "กิ น 2a"),
        ("a東b", "a 東 b"),
        ("ＡＢＣ １２ ﬁ", "abc 12 fi"),
        ("أإآٱا", "ااااا"),
        ("so\u00adft\u200b wa\u2060re", "soft ware"),
        ("Москва́ x²", "москва́ x2"),
        ("... ?!", ""),
        ("", ""),
    ],
)
def test_words_of_every_script(text: str, words: str) -> None:
    """Letters, numbers and marks make words; look-alikes are unified; unspaced scripts fall into characters."""
    assert tokenize(text, stemmed=False) == words.split()


def test_only_longer_ascii_words_are_stemmed() -> None:
    """Words of up to three characters and words of other scripts stay."""
    assert tokenize("killed was runs cafés ponies") == ["kill", "was", "run", "cafés", "poni"]
    assert tokenize("killed", stemmed=False) == ["killed"]


def test_stems_are_those_of_the_usual_stemmer() -> None:
    """20,000 words of every mix of suffixes and the irregular ones have the stem that ROUGE scores rest on."""
    from nltk.stem.porter import PorterStemmer

    usual = PorterStemmer()
    draw = random.Random(7)
    words = [
        "".join(draw.choices("aeioubcdfghlmnprstwxyz3", k=draw.randint(1, 6)))
        + "".join(draw.choices(SUFFIXES.split(), k=draw.randint(0, 3)))
        for _ in range(20_000)
    ]
    words += ODD_WORDS.split()
    assert [(word, stem(word)) for word in words] == [(word, usual.stem(word)) for word in words]
    longest = "hopeful" * 10 + "ness"
    assert stem(longest) == usual.stem(longest)


@pytest.mark.parametrize("stemmed", [True, False])
def test_ascii_texts_score_as_with_the_usual_package(scorer: Callable[[bool], Any], stemmed: bool) -> None:
    """Precision, recall and F1 of all three measures are the package's on 300 random pairs of texts."""
    usual = scorer(stemmed)
    for prediction, reference in _random_pairs(300):
        expected = usual.score(reference, prediction)
        measures = rouge(tokenize(prediction, stemmed=stemmed), tokenize(reference, stemmed=stemmed))
        assert measures is not None
        for measure in MEASURES:
            score = expected[measure]
            assert (measures[measure].precision, measures[measure].recall, measures[measure].f1) == pytest.approx(
                (score.precision, score.recall, score.fmeasure), abs=1e-12
            ), (prediction, reference, measure)


def _random_pairs(count: int) -> Iterator[tuple[str, str]]:
    draw = random.Random(11)
    words = [
        "the",
        "cat",
        "Sat",
        "sitting",
        "tables",
        "tabled",
        "42",
        "e-mail",
        "don't",
        "relational",
        "\t",
        "!",
        "x_y",
    ]
    for _ in range(count):
        first, second = (" ".join(draw.choices(words, k=draw.randint(0, 30))) for _ in range(2))
        yield first, second


@pytest.mark.parametrize(
    ("prediction", "reference", "values"),
    [
        ("the cat sat on the mat", "the cat was on the mat", (0.833333, 0.6, 0.833333)),
        ("police killed the gunman", "police kill the gunman", (1.0, 1.0, 1.0)),
        ("the gunman kill police", "police kill the gunman", (1.0, 0.333333, 0.5)),
        ("word", "word", (1.0, 0.0, 1.0)),
        ("", "a b c", (0.0, 0.0, 0.0)),
        ("عدد المناقصات الحالية هو 42", "عدد المناقصات الحالية هو ٤٢", (1.0, 1.0, 1.0)),
        ("أكبر منطقة هي الرياض", "اكبر منطقة هي جدة", (0.75, 0.666667, 0.75)),
        ("القطة تنام 42", "عدد المناقصات 42", (0.333333, 0.0, 0.333333)),
    ],
)
def test_known_pairs(
    metric: Callable[..., Metric],
    row: Callable[..., Row],
    prediction: str,
    reference: str,
    values: tuple[float, float, float],
) -> None:
    """The F1 of each measure, which is the value when the measure is asked for."""
    for measure, value in zip(MEASURES, values, strict=True):
        score = metric("rouge", measure=measure).score(row(prediction, [reference]))
        assert score.value == score.detail[measure]["f1"] == pytest.approx(value, abs=1e-6)
        assert score.passed is None


def test_without_stemmer_forms_of_a_word_differ(metric: Callable[..., Metric], row: Callable[..., Row]) -> None:
    """killed is kill only by its stem."""
    pair = row("police killed the gunman", ["police kill the gunman"])
    assert metric("rouge", stemmer="none", measure="rouge1").score(pair).value == pytest.approx(0.75)


def test_swapping_the_texts_swaps_precision_and_recall(metric: Callable[..., Metric], row: Callable[..., Row]) -> None:
    """Precision is over the answer's words, recall over the reference's."""
    short, long = "the cat", "the cat sat on the mat"
    score, other = (metric("rouge").score(row(*pair)).detail for pair in ((short, [long]), (long, [short])))
    for measure in MEASURES:
        assert score[measure]["precision"] == other[measure]["recall"]
        assert score[measure]["recall"] == other[measure]["precision"]
    assert (score["rouge1"]["precision"], score["rouge1"]["recall"]) == (1.0, pytest.approx(1 / 3))


def test_the_best_reference_counts_by_the_measure(metric: Callable[..., Metric], row: Callable[..., Row]) -> None:
    """Each measure picks its own best reference, which the detail names."""
    references = ["", "mat the on sat cat the", "the cat sat", "?!"]
    answer = row("the cat sat on the mat", references)
    by_words = metric("rouge", measure="rouge1").score(answer)
    in_order = metric("rouge", measure="rougeL").score(answer)
    assert (by_words.value, by_words.detail["reference_index"]) == (1.0, 1)
    assert in_order.value == pytest.approx(2 / 3)
    assert in_order.detail["reference_index"] == 2


def test_what_is_skipped_and_what_fails(metric: Callable[..., Metric], row: Callable[..., Row]) -> None:
    """A row without references is skipped; an agent error is not scored and fails where there is a threshold."""
    for references in ([], [" "], ["?!"]):
        for failed in (False, True):
            score = metric("rouge", threshold=0.5).score(row("a", references, failed=failed))
            assert (score.status, score.reason, score.passed) == (ScoreStatus.SKIPPED, "no_reference", None)
    failed_row = row("a", ["a"], failed=True)
    score = metric("rouge", threshold=0.5).score(failed_row)
    assert (score.status, score.reason, score.passed) == (ScoreStatus.ERROR, "agent_error", False)
    assert metric("rouge").score(failed_row).passed is None
    empty = metric("rouge", threshold=0.5).score(row(" ", ["a"]))
    assert (empty.value, empty.passed, empty.reason) == (0.0, False, "empty_output")


def test_the_threshold_decides_rows(
    metric: Callable[..., Metric], row: Callable[..., Row], fold: Callable[..., Any]
) -> None:
    """A row passes from the threshold on; the run is compared by its mean; failed agents lower the pass rate."""
    rows = [row("a b", ["a b"]), row("a b", ["a c"]), row("x", ["a"]), row("", ["a"], failed=True), row("a", [])]
    built = metric("rouge", threshold=0.5)
    assert [built.score(one).passed for one in rows] == [True, True, False, False, None]
    summary = fold(built, rows)
    assert (summary.value, summary.meets_threshold) == (0.5, True)
    assert (summary.scored_count, summary.skipped_count, summary.error_count, summary.own_error_count) == (3, 1, 1, 0)
    assert summary.detail["pass_rate"] == 0.5


def test_the_summary_has_the_means_of_every_measure(
    metric: Callable[..., Metric], row: Callable[..., Row], fold: Callable[..., Any]
) -> None:
    """F1 by name, precision and recall beside it; without rows all are absent."""
    rows = [row("the cat", ["the cat sat on the mat"]), row("the cat", ["the cat"])]
    detail = fold(metric("rouge"), rows).detail
    assert [detail[measure] for measure in MEASURES] == pytest.approx([0.75, (1 / 3 + 1) / 2, 0.75])
    assert [detail["recall"][measure] for measure in MEASURES] == pytest.approx([2 / 3, 0.6, 2 / 3])
    assert [detail["precision"][measure] for measure in MEASURES] == [1.0, 1.0, 1.0]
    empty = fold(metric("rouge"), []).detail
    assert {empty[measure] for measure in MEASURES} == {None}
    assert empty["pass_rate"] is None


@given(st.text(max_size=60), st.booleans())
def test_a_text_with_itself_scores_one(text: str, stemmed: bool) -> None:
    """In every script, given one word, two for pairs."""
    words = tokenize(text, stemmed=stemmed)
    assume(words)
    overlaps = rouge(words, words)
    assert overlaps is not None
    assert overlaps["rouge1"].f1 == overlaps["rougeL"].f1 == 1.0
    assert overlaps["rouge2"].f1 == float(len(words) > 1)


@given(st.lists(st.sampled_from("abcde")), st.lists(st.sampled_from("abcdx")))
def test_the_longest_common_subsequence_is_the_one_by_table(first: list[str], second: list[str]) -> None:
    """Bits and the textbook's table agree, whichever text comes first."""
    table = [[0] * (len(second) + 1) for _ in range(len(first) + 1)]
    for i, one in enumerate(first):
        for j, other in enumerate(second):
            table[i + 1][j + 1] = table[i][j] + 1 if one == other else max(table[i][j + 1], table[i + 1][j])
    assert lcs_length(first, second) == lcs_length(second, first) == table[-1][-1]


def test_texts_of_a_megabyte_are_refused_only_when_both_are(
    metric: Callable[..., Metric], row: Callable[..., Row]
) -> None:
    """One huge answer costs neither the run nor a made-up number."""
    huge = "a b c " * 70_000
    score = metric("rouge").score(row(huge, [huge]))
    assert (score.status, score.reason, score.detail["advisory"]) == (ScoreStatus.ERROR, "texts_too_long", True)
    assert metric("rouge").score(row(huge, ["a b c d"])).status is ScoreStatus.SCORED
