"""/users/me/tfa: the second factor of the current user."""

from __future__ import annotations

import falcon

from cms.auth import second_factor
from cms.http.answers.envelope import send
from cms.http.middleware.rate_limit import count_account
from cms.http.requests.media import (
    check_texts,
    idempotency_key_of,
    optional_text,
    read_json_object,
    required_text,
)
from cms.http.requests.request import Request
from cms.store.identity import Identity
from cms.store.store import Store


class _SecondFactorResource:
    """Base of the resources of users' own second factor.

    A user whose role demands a second factor reaches them before having one.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def _enrolling(self, request: Request) -> Identity:
        """Return the caller, once its attempt is counted."""
        identity: Identity = request.identity
        # Otherwise a user who must have a second factor would be refused, and could never set one
        # up.
        enrolling = identity._replace(may_enrol=True)
        count_account(request, self._account_of(enrolling))
        return enrolling

    def _account_of(self, identity: Identity) -> str:
        """Return the user, whom cookies and static tokens do not name: a user may have several."""
        if identity.user or identity.is_anonymous:
            return identity.name
        for attempt in self._store.unversioned_reads(identity):
            with attempt as context:
                user = context.actor.user
        return user or identity.name


class GenerateResource(_SecondFactorResource):
    def on_post(self, request: Request, response: falcon.Response) -> None:
        """Answer a secret for an authenticator app; it is stored when a code proves its use."""
        password = optional_text(read_json_object(request), "password")
        enrolment = second_factor.generate(self._store, self._enrolling(request), password=password)
        send(response, {"secret": enrolment.secret, "otpauth_url": enrolment.otpauth_url})


class EnableResource(_SecondFactorResource):
    def on_post(self, request: Request, response: falcon.Response) -> None:
        payload = read_json_object(request)
        check_texts(payload, "secret", "otp")
        second_factor.enable(
            self._store,
            self._enrolling(request),
            secret=required_text(payload, "secret"),
            code=required_text(payload, "otp"),
            idempotency=idempotency_key_of(request),
        )
        response.status = falcon.HTTP_204


class DisableResource(_SecondFactorResource):
    def on_post(self, request: Request, response: falcon.Response) -> None:
        code = required_text(read_json_object(request), "otp")
        second_factor.disable(
            self._store,
            self._enrolling(request),
            code=code,
            idempotency=idempotency_key_of(request),
        )
        response.status = falcon.HTTP_204


class RecoveryCodesResource(_SecondFactorResource):
    def __init__(self, store: Store, secret: str) -> None:
        super().__init__(store)
        self._secret = secret

    def on_post(self, request: Request, response: falcon.Response) -> None:
        """Answer ten new recovery codes, each good for one login; older ones become invalid."""
        password = optional_text(read_json_object(request), "password")
        codes = second_factor.recovery_codes(
            self._store,
            self._enrolling(request),
            password=password,
            secret=self._secret,
            idempotency=idempotency_key_of(request),
        )
        send(response, codes)
