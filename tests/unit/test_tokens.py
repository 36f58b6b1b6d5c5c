from __future__ import annotations

import itertools
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.identity.rights import RIGHTS, Right, Role, roles_with
from assay.identity.tokens import PREFIX, TOKEN_PATTERN, new_token, parse_token

_BASE62 = string.digits + string.ascii_letters


def test_new_tokens_are_read_back_and_differ() -> None:
    """A token has its prefix, id, 256 random bits and check, and none is made twice."""
    tokens = [new_token() for _ in range(500)]
    assert len({token.text for token in tokens}) == len({token.token_id for token in tokens}) == 500
    for token in tokens:
        assert token.text.startswith(PREFIX + token.token_id + "_")
        assert TOKEN_PATTERN.fullmatch(token.text)
        assert parse_token(token.text) == token
        assert len(token.text) == 66
    secrets = "".join(token.text.split("_")[2][:43] for token in tokens)
    assert set(secrets) == set(_BASE62)


@given(st.integers(0, 65), st.sampled_from(_BASE62 + "_-é \n"))
def test_a_changed_character_is_recognised_without_a_database(position: int, character: str) -> None:
    """The check finds every single wrong character."""
    text = new_token().text
    changed = text[:position] + character + text[position + 1 :]
    assert (parse_token(changed) is None) == (changed != text)


@given(st.integers(0, 65))
def test_a_cut_token_is_recognised(length: int) -> None:
    """Whatever is missing at its end, or comes behind it."""
    text = new_token().text
    assert parse_token(text[:length]) is None
    for more in ("\n", " ", "0"):
        assert parse_token(text + more) is None


def test_only_the_whole_token_has_its_hash() -> None:
    """Another secret under the same id is another token."""
    token, other = new_token(), new_token()
    assert token.has_digest(token.digest)
    assert not token.has_digest(other.digest)
    assert not token.has_digest("")


def test_a_token_is_not_in_its_repr() -> None:
    """A log line or a traceback that shows the object does not show the secret."""
    token = new_token()
    assert token.text not in repr(token)
    assert token.text.split("_")[2] not in repr(token)


@pytest.mark.parametrize("right", [right for right in Right if right is not Right.NONE])
def test_each_role_has_the_rights_of_the_one_before(right: Right) -> None:
    """Roles are a ladder: who may give out a role by its rights is unambiguous."""
    roles = list(Role)
    assert roles_with(right) == roles[roles.index(roles_with(right)[0]) :]
    assert all(RIGHTS[low] < RIGHTS[high] for low, high in itertools.pairwise(roles))
