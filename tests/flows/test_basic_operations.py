"""Operations that need nothing but the values of their run."""

from __future__ import annotations

import logging
import math
import time
from decimal import Decimal
from typing import Any, cast

import jwt
import pytest

from cms.flows.definition.operation_types import OPERATION_TYPES
from cms.flows.operations import OPERATIONS, basic
from cms.flows.run import Run, Services
from cms.store.identity import ANONYMOUS
from tests.flows.runs import do, rejection

SECRET = "a secret of at least sixty-four bytes" * 2
USER = "6d82432b-98a5-4064-a153-8f8c8bb1257b"

VALUES = {
    "$trigger": {
        "body": {"price": 10, "title": "Blue chair", "tags": ["a", "b"], "note": None},
        "date": "2020-01-01T00:00:00Z",
    },
    "$accountability": {"user": USER, "role": None, "ip": "192.0.2.1"},
    "$last": [{"price": 10}, {"price": 2}],
    "read-it": {"status": "published"},
}


@pytest.fixture
def run() -> Run:
    # None of these operations needs anything of the process.
    return Run(cast(Services, None), "flow", ANONYMOUS, dict(VALUES))


def test_every_type_that_can_be_saved_has_an_operation() -> None:
    assert set(OPERATIONS) == set(OPERATION_TYPES)


def body(**tests: object) -> dict[str, object]:
    return {"$trigger": {"body": dict(tests)}}


@pytest.mark.parametrize(
    ("rule", "is_fulfilled"),
    [
        (body(price={"_gt": 5}), True),
        (body(price={"_gt": "9"}), True),
        (body(price={"_between": [11, 20]}), False),
        (body(title={"_icontains": "CHAIR"}), True),
        (body(note={"_null": True}), True),
        (body(missing={"_null": True}), True),
        (body(missing={"_eq": 1}), False),
        ({"nothing": {"at": {"all": {"_nnull": True}}}}, False),
        ({"read-it": {"status": {"_in": ["draft", "published"]}}}, True),
        ({"$last": {"_some": {"price": {"_lt": 5}}}}, True),
        ({"$last": {"_none": {"price": {"_lt": 5}}}}, False),
        ({"$accountability": {"user": {"_eq": "$CURRENT_USER"}}}, True),
        ({"$trigger": {"date": {"_lt": "$NOW(-1 year)"}}}, True),
        ({"$trigger": {"date": {"_gt": "$NOW(-1 hour)"}}}, False),
        ({"_or": [body(price={"_eq": 1}), body(price={"_eq": 10})]}, True),
        ({"_and": [body(price={"_eq": 10}), body(title={"_empty": True})]}, False),
        ({}, True),
    ],
)
def test_a_condition_is_a_filter_on_the_values(
    run: Run, rule: dict[str, object], *, is_fulfilled: bool
) -> None:
    if is_fulfilled:
        assert do(run, "condition", filter=rule) is None
    else:
        assert rejection(run, "condition", filter=rule)


def test_a_condition_with_a_path_from_the_caller_rejects(run: Run) -> None:
    rule = body(title={"_eq": "$CURRENT_USER.first_name"})
    assert "message" in rejection(run, "condition", filter=rule)


@pytest.mark.parametrize(
    ("message", "line"), [("Hello", "Hello"), ({"a": [1]}, '{"a":[1]}'), (5, "5")]
)
def test_log_writes_to_the_log_of_the_run_and_of_the_service(
    run: Run, caplog: pytest.LogCaptureFixture, message: object, line: str
) -> None:
    with caplog.at_level(logging.INFO, "cms"):
        assert do(run, "log", message=message) is None
    assert run.lines == [line]
    assert line in caplog.text


def test_large_filters_are_not_kept(run: Run) -> None:
    before = len(basic._RULES)
    for size, kept in ((10_000, 0), (10, 1)):
        text = "x" * size
        run.values["$trigger"] = {"text": text}
        do(run, "condition", filter={"$trigger": {"text": {"_eq": text}}})
        assert len(basic._RULES) == before + kept


def test_a_line_of_the_log_has_a_bound(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "cms"):
        do(run, "log", message={"texts": ["a text"] * 100_000})
    assert len(run.lines[0]) == 10_000
    assert len(caplog.text) < 11_000


def test_the_log_of_the_service_has_no_secrets(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    run.secrets.add("hunter2")
    run.secrets.add("signed")
    run.secrets.collect({"access_token": "abc.def"})
    with caplog.at_level(logging.INFO, "cms"):
        do(run, "log", message={"texts": ["hunter2 abc.def signed"], "token": "x", "shown": 1})
    assert run.lines == [
        '{"texts":["********** ********** **********"],"token":"**********","shown":1}'
    ]
    assert "hunter2" not in caplog.text


def test_sleep_waits(run: Run) -> None:
    start = time.monotonic()
    assert do(run, "sleep", milliseconds=50) is None
    assert do(run, "sleep", milliseconds="50") is None
    assert time.monotonic() - start >= 0.1


def test_transform_returns_what_it_describes(run: Run) -> None:
    assert do(run, "transform", json={"a": [1, None]}) == {"a": [1, None]}


def test_throw_error_rejects_with_its_options(run: Run) -> None:
    options = {"code": "OUT_OF_STOCK", "status": "409", "message": "Sold."}
    assert rejection(run, "throw-error", **options) == {**options, "status": 409}
    assert rejection(run, "throw-error") == {
        "code": "UNPROCESSABLE_CONTENT",
        "status": 422,
        "message": "The flow was rejected.",
    }


def token(run: Run, **settings: Any) -> str:
    options = {"payload": {"id": 5}, "secret": SECRET, "options": settings}
    return str(do(run, "json-web-token", operation="sign", **options))


def test_a_token_is_signed_with_its_claims(run: Run) -> None:
    signed = token(run, expiresIn="15m", issuer="cms", subject="a", algorithm="HS512")
    claims = jwt.decode(signed, SECRET, algorithms=["HS512"], issuer="cms")
    assert claims["exp"] - claims["iat"] == 900
    assert (claims["id"], claims["iss"], claims["sub"]) == (5, "cms", "a")
    # It opens doors, so no log shows it.
    assert signed in run.secrets


@pytest.mark.parametrize(("time", "seconds"), [(60, 60), ("60", 60), ("2h", 7200), ("7d", 604800)])
def test_times_are_seconds_or_have_a_unit(run: Run, time: object, seconds: int) -> None:
    claims = jwt.decode(token(run, expiresIn=time), SECRET, algorithms=["HS256"])
    assert claims["exp"] - claims["iat"] == seconds


@pytest.mark.parametrize(
    ("signed", "verified"),
    [
        ({}, {}),
        ({"audience": "shop"}, {"audience": "shop"}),
        ({"audience": "shop"}, {}),
        ({"issuer": "cms"}, {"issuer": "cms"}),
        ({"algorithm": "HS384"}, {"algorithms": ["HS256", "HS384"]}),
        ({"expiresIn": -5}, {"clockTolerance": 60}),
    ],
)
def test_a_token_that_fits_is_verified(
    run: Run, signed: dict[str, object], verified: dict[str, object]
) -> None:
    options = {"token": token(run, **signed), "secret": SECRET, "options": verified}
    assert do(run, "json-web-token", operation="verify", **options)["id"] == 5


@pytest.mark.parametrize(
    ("signed", "verified"),
    [
        ({"audience": "shop"}, {"audience": "other"}),
        ({}, {"issuer": "cms"}),
        ({"expiresIn": -5}, {}),
        ({"notBefore": 60}, {}),
        ({"algorithm": "HS384"}, {}),
        ({}, {"algorithms": ["none"]}),
        ({}, {"algorithms": ["RS256"]}),
        ({}, {"maxage": 5}),
    ],
)
def test_a_token_that_does_not_fit_rejects(
    run: Run, signed: dict[str, object], verified: dict[str, object]
) -> None:
    options = {"token": token(run, **signed), "secret": SECRET, "options": verified}
    result = rejection(run, "json-web-token", operation="verify", **options)
    assert result["message"].startswith("The token cannot be used: ")


def test_a_token_is_decoded_without_its_secret(run: Run) -> None:
    assert do(run, "json-web-token", operation="decode", token=token(run))["id"] == 5
    for broken in ("", "x.y.z", "eyJhbGciOiJub25lIn0.e30"):
        options: dict[str, Any] = {"operation": "decode", "token": broken or None, "payload": {}}
        assert rejection(run, "json-web-token", **options)["message"]


@pytest.mark.parametrize(
    "settings", [{"expiresin": 5}, {"expiresIn": "soon"}, {"algorithm": "none"}]
)
def test_a_token_with_wrong_options_is_not_signed(run: Run, settings: dict[str, object]) -> None:
    options = {"payload": {}, "secret": SECRET, "options": settings}
    assert rejection(run, "json-web-token", operation="sign", **options)["message"]


def test_a_token_needs_a_secret(run: Run) -> None:
    message = rejection(run, "json-web-token", operation="sign", payload={})["message"]
    assert message == "The token cannot be used: secret is needed."


@pytest.mark.parametrize("subject", ["ada", 5])
def test_a_token_without_a_subject_is_of_no_subject(run: Run, subject: object) -> None:
    options = {"token": token(run), "secret": SECRET, "options": {"subject": subject}}
    assert (
        "cannot be used"
        in rejection(run, "json-web-token", operation="verify", **options)["message"]
    )
    options["token"] = token(run, subject="ada")
    options["options"] = {"subject": "ada"}
    assert do(run, "json-web-token", operation="verify", **options)["sub"] == "ada"


def test_claims_may_have_decimal_numbers(run: Run) -> None:
    options = {"payload": {"price": Decimal("1.5")}, "secret": SECRET}
    signed = do(run, "json-web-token", operation="sign", **options)
    claims = do(run, "json-web-token", operation="verify", token=signed, secret=SECRET)
    assert claims["price"] == Decimal("1.5")


@pytest.mark.parametrize(
    "options",
    [
        {"operation": "sign", "payload": {"iss": 5}},
        {"operation": "sign", "payload": {}, "options": {"algorithm": ["HS256", "HS512"]}},
        {"operation": "verify", "token": jwt.encode({}, SECRET), "options": {"audience": 5}},
        {"operation": "decode", "token": jwt.encode({"a": "\0"}, SECRET)},
        {"operation": "verify", "token": jwt.encode({"a": "\ud800"}, SECRET)},
        {"operation": "decode", "token": jwt.encode({"a": math.nan}, SECRET)},
    ],
)
def test_claims_that_nobody_can_store_are_rejected(run: Run, options: dict[str, Any]) -> None:
    result = rejection(run, "json-web-token", **{"secret": SECRET, **options})
    assert "cannot be used" in result["message"]
