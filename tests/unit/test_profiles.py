"""The profile of a user in the claims of a provider."""

from __future__ import annotations

from typing import Any

import pytest

from cms.config.providers import Provider, with_driver_defaults
from cms.sso.profile import MAX_IDENTIFIER_LENGTH, MAX_NAME_LENGTH, Profile, profile_from_claims
from cms.sso.provider_errors import ProviderError


def profile(claims: dict[str, Any], **options: Any) -> Profile:
    keys = {"identifier_key": "sub", "email_key": "email", "group_claim_name": "groups"}
    provider = Provider(name="id", driver="openid", **keys | options)
    return profile_from_claims(with_driver_defaults(provider), claims)


def test_claims_become_a_profile() -> None:
    claims = {
        "sub": "7",
        "email": " ada@example.com ",
        "email_verified": True,
        "given": "Ada ",
        "groups": ["a", "b"],
    }
    assert profile(claims, first_name_key="given", last_name_key="") == Profile(
        "7", "ada@example.com", True, "Ada", None, ("a", "b")
    )


@pytest.mark.parametrize(
    ("claims", "key", "identifier"),
    [
        ({"sub": "ada "}, "sub", "ada "),
        ({"id": 7}, "id", "7"),
        ({"user": {"id": "x"}}, "user.id", "x"),
        ({"user.id": "dotted", "user": {"id": "x"}}, "user.id", "dotted"),
    ],
)
def test_the_identifier_is_taken_as_it_is(
    claims: dict[str, Any], key: str, identifier: str
) -> None:
    assert profile(claims, identifier_key=key).identifier == identifier


@pytest.mark.parametrize(
    "value", [None, "", " ", True, ["7"], "a\x00", "a\ud800", "x" * (MAX_IDENTIFIER_LENGTH + 1)]
)
def test_without_an_identifier_there_is_no_profile(value: object) -> None:
    with pytest.raises(ProviderError, match='no identifier at "sub"'):
        profile({"sub": value})


@pytest.mark.parametrize("verified", [False, None, "True", "yes", 1])
def test_an_address_counts_as_verified_only_if_the_provider_confirms_it(verified: object) -> None:
    claims = {"sub": "7", "email": "ada@example.com", "email_verified": verified}
    assert not profile(claims).is_email_verified
    assert profile(claims | {"email_verified": "true"}).is_email_verified


@pytest.mark.parametrize("email", ["ada", 7, None, "a@b@c"])
def test_what_is_no_address_is_left_out(email: object) -> None:
    assert profile({"sub": "7", "email": email}).email is None


def test_names_are_cut_to_their_columns() -> None:
    name = profile({"sub": "7", "n": "x" * 300}, first_name_key="n").first_name
    assert name == "x" * MAX_NAME_LENGTH


@pytest.mark.parametrize(
    ("groups", "expected"),
    [("one", ("one",)), (["a", 2, None, " ", {"x": 1}], ("a", "2")), (None, ()), ({}, ())],
)
def test_groups_are_texts_alone_or_in_a_list(groups: object, expected: tuple[str, ...]) -> None:
    assert profile({"sub": "7", "groups": groups}).groups == expected
