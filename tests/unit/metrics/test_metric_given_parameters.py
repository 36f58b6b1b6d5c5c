"""Parameters as they are sent: without those at their defaults, and none is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import SpecError
from assay.metrics import METRICS, complete_parameters, given_parameters

CHANGED = {kind: {parameter.name: parameter.default for parameter in METRICS[kind].info.parameters} for kind in METRICS}
VALUES = st.one_of(st.none(), st.booleans(), st.floats(0, 1), st.integers(1, 9), st.sampled_from(["a", "other", ["a"]]))


@given(st.data())
def test_the_defaults_make_them_complete_again(data: st.DataObject) -> None:
    """Whatever is set, the receiver has the parameters that the sender had; what is not set is not sent."""
    kind = data.draw(st.sampled_from(sorted(METRICS)))
    wanted = data.draw(st.dictionaries(st.sampled_from(sorted(CHANGED[kind]) or ["none"]), VALUES, max_size=3))
    try:
        complete = complete_parameters(kind, wanted, where=kind)
    except SpecError:
        return
    sent = given_parameters(kind, complete)
    assert complete_parameters(kind, sent, where=kind) == complete
    assert sent.items() <= complete.items()
    assert set(sent) <= set(wanted)


@pytest.mark.parametrize("threshold", [0.75, None])
def test_a_threshold_that_belongs_to_another_model_is_sent(threshold: float | None) -> None:
    """With another model the default has no threshold: the usual one has to be sent."""
    wanted = {"model": "other", "threshold": threshold}
    sent = given_parameters("semantic_similarity", complete_parameters("semantic_similarity", wanted, where="m"))
    assert sent == ({"model": "other", "threshold": 0.75} if threshold else {"model": "other"})


def test_an_unknown_kind_is_sent_as_it_is() -> None:
    """What it means is for the server to say."""
    assert given_parameters("nothing", {"a": 1}) == {"a": 1}
