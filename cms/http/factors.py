"""/users/me/tfa: the second factor of the current user (decisions, section 9)."""

from __future__ import annotations

from dataclasses import replace

import falcon

from cms.auth import enrolment
from cms.http.media import check_texts, fields, once_of, send, text_of
from cms.store.store import Identity, Store


class _Own:
    """What a user does to the own account, also before there is the second factor that the role asks for."""

    def __init__(self, store: Store, most: int) -> None:
        self._store = store
        self._most = most


class Generate(_Own):
    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        """Give a secret to put into an authenticator app; nothing is stored before a code of it has come."""
        password = text_of(fields(request, most=self._most), "password")
        found = enrolment.generate(self._store, _enrolling(request), password=password)
        send(response, {"secret": found.secret, "otpauth_url": found.otpauth_url})


class Enable(_Own):
    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        payload = fields(request, most=self._most)
        check_texts(payload, "secret", "otp")
        secret, code = text_of(payload, "secret"), text_of(payload, "otp")
        enrolment.enable(self._store, _enrolling(request), secret=secret, code=code, once=once_of(request))
        response.status = falcon.HTTP_204


class Disable(_Own):
    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        code = text_of(fields(request, most=self._most), "otp")
        enrolment.disable(self._store, _enrolling(request), code=code, once=once_of(request))
        response.status = falcon.HTTP_204


class RecoveryCodes(_Own):
    def __init__(self, store: Store, secret: str, most: int) -> None:
        super().__init__(store, most)
        self._secret = secret

    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        """Give ten new codes that stand in for the second factor, once each; the older ones are worth nothing."""
        password = text_of(fields(request, most=self._most), "password")
        codes = enrolment.recovery_codes(
            self._store, _enrolling(request), password=password, secret=self._secret, once=once_of(request)
        )
        send(response, codes)


def _enrolling(request: falcon.Request) -> Identity:
    found: Identity = request.context.identity
    return replace(found, enrolling=True)
