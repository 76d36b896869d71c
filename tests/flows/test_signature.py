"""Signatures of outgoing webhooks, checked by the reference library of Standard Webhooks."""

from __future__ import annotations

import base64
import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from cms.flows.definition.signature import parse_secret, signature_headers

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def test_the_example_of_the_specification_has_its_signature() -> None:
    headers = signature_headers(
        [parse_secret(SECRET)],
        message="msg_p5jXN8AQM9LWM0D4loKWxJek",
        seconds=1614265330,
        body=b'{"test": 2432232314}',
    )
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@given(st.binary(min_size=24, max_size=64), st.text(max_size=200))
def test_the_reference_library_verifies_every_signature(key: bytes, body: str) -> None:
    secret = "whsec_" + base64.b64encode(key).decode()
    headers = signature_headers(
        [parse_secret(secret)], message="msg_1", seconds=int(time.time()), body=body.encode()
    )
    Webhook(secret).verify(body, headers, json_parse=False)


def test_another_body_secret_or_time_is_not_verified() -> None:
    now = int(time.time())
    headers = signature_headers([parse_secret(SECRET)], message="msg_1", seconds=now, body=b"{}")
    for secret, body, changed in (
        (SECRET, "{} ", {}),
        (SECRET, "{}", {"webhook-timestamp": str(now - 1)}),
        (SECRET, "{}", {"webhook-id": "msg_2"}),
        (base64.b64encode(os.urandom(24)).decode(), "{}", {}),
    ):
        with pytest.raises(WebhookVerificationError):
            Webhook(secret).verify(body, {**headers, **changed})


def test_while_a_secret_is_replaced_both_verify() -> None:
    secrets = [SECRET, "whsec_" + base64.b64encode(os.urandom(32)).decode()]
    headers = signature_headers(
        [parse_secret(secret) for secret in secrets],
        message="msg_1",
        seconds=int(time.time()),
        body=b"{}",
    )
    for secret in secrets:
        assert Webhook(secret).verify("{}", headers) == {}


@pytest.mark.parametrize("text", [SECRET, SECRET.removeprefix("whsec_"), f"{SECRET}=="])
def test_a_secret_may_lack_its_prefix_or_its_padding(text: str) -> None:
    assert parse_secret(text) == base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")


@pytest.mark.parametrize("text", ["", "whsec_", "short", "whsec_" + "A" * 31, "ü" * 40, "!" * 40])
def test_what_is_no_secret_is_not_repeated(text: str) -> None:
    with pytest.raises(ValueError) as error:
        parse_secret(text)
    assert not text or text == "whsec_" or text not in str(error.value)
