"""/users/me/tfa: the second factor of the current user (decisions, section 9)."""

from __future__ import annotations

from dataclasses import replace

import falcon

from cms.auth import second_factor
from cms.http.media import check_texts, idempotency_key_of, read_json_object, required_text, send
from cms.store.identity import Identity
from cms.store.store import Store


class _SecondFactorResource:
    """What a user does to the own account, also before there is the second factor that the role asks for."""

    def __init__(self, store: Store, max_bytes: int) -> None:
        self._store = store
        self._max_bytes = max_bytes


class GenerateResource(_SecondFactorResource):
    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        """Give a secret to put into an authenticator app; nothing is stored before a code of it has come."""
        password = required_text(read_json_object(request, max_bytes=self._max_bytes), "password")
        found = second_factor.generate(self._store, _enrolling(request), password=password)
        send(response, {"secret": found.secret, "otpauth_url": found.otpauth_url})


class EnableResource(_SecondFactorResource):
    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        payload = read_json_object(request, max_bytes=self._max_bytes)
        check_texts(payload, "secret", "otp")
        secret, code = required_text(payload, "secret"), required_text(payload, "otp")
        second_factor.enable(
            self._store,
            _enrolling(request),
            secret=secret,
            code=code,
            idempotency=idempotency_key_of(request),
        )
        response.status = falcon.HTTP_204


class DisableResource(_SecondFactorResource):
    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        code = required_text(read_json_object(request, max_bytes=self._max_bytes), "otp")
        second_factor.disable(
            self._store, _enrolling(request), code=code, idempotency=idempotency_key_of(request)
        )
        response.status = falcon.HTTP_204


class RecoveryCodesResource(_SecondFactorResource):
    def __init__(self, store: Store, secret: str, max_bytes: int) -> None:
        super().__init__(store, max_bytes)
        self._secret = secret

    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        """Give ten new codes that stand in for the second factor, once each; the older ones are worth nothing."""
        password = required_text(read_json_object(request, max_bytes=self._max_bytes), "password")
        codes = second_factor.recovery_codes(
            self._store,
            _enrolling(request),
            password=password,
            secret=self._secret,
            idempotency=idempotency_key_of(request),
        )
        send(response, codes)


def _enrolling(request: falcon.Request) -> Identity:
    found: Identity = request.context.identity
    return replace(found, may_enrol=True)
