"""/auth/login/{provider}: logins by other services (docs/sso.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import falcon

from cms.auth import factors, sessions
from cms.auth.sessions import IssuedTokens, Issuer, LoginSource, Mode
from cms.config.providers import Provider
from cms.errors import Refused, unavailable
from cms.http.answers.envelope import send
from cms.http.auth import mode_of, session_body
from cms.http.middleware.rate_limit import count_account
from cms.http.requests.cookies import Cookies, cookie_value
from cms.http.requests.media import check_texts, optional_text, read_json_object, required_text
from cms.http.requests.origins import Origins
from cms.http.requests.request import Request
from cms.processes.slots import NoFreeSlot, WaitSlots
from cms.sso import external_login, provider_clients
from cms.sso.browser_login import (
    FACTOR_LIFE,
    LIFE,
    LoginState,
    PendingFactor,
    checked_redirect,
    not_begun,
    with_reason,
)
from cms.sso.external_login import DirectoryCredentials
from cms.sso.external_users import ExternalAccount, ExternalAccounts, pending_account
from cms.sso.provider_clients import Providers
from cms.sso.provider_errors import ProviderError, provider_failed
from cms.store.store import Store

_STATE_COOKIE = "cms_login"
_FACTOR_COOKIE = "cms_login_factor"
_STATE_PREFIX = 16
"""Characters of the state in the name of its cookie, so that logins of two tabs do not mix."""


@dataclass(frozen=True, slots=True)
class ExternalLogins:
    """The collaborators that all calls of external logins share."""

    store: Store
    issuer: Issuer
    providers: Providers
    cookies: Cookies
    wait_slots: WaitSlots

    @contextmanager
    def asking(self, provider: Provider) -> Iterator[None]:
        """Ask a provider something: a slow one takes half of the threads at most.

        Raises `Refused` SERVICE_UNAVAILABLE where it does not answer as it should.
        """
        try:
            with self.wait_slots.take():
                yield
        except ProviderError as error:
            raise provider_failed(provider, error) from None
        except NoFreeSlot:
            reason = "Too many logins wait for their providers"
            raise unavailable(f"login provider {provider.name}", reason) from None

    def log_in_by_directory(
        self, request: Request, name: str, payload: Mapping[str, object], *, mode: Mode
    ) -> IssuedTokens:
        """Open a session of a user of a directory, with the identifier and password of a body."""
        check_texts(payload, "password", optional=("identifier", "email", "otp"))
        directory = self.providers.directory(name)
        credentials = DirectoryCredentials(
            optional_text(payload, "identifier") or required_text(payload, "email"),
            required_text(payload, "password"),
            optional_text(payload, "otp"),
        )
        count_account(request, credentials.identifier)
        with self.asking(directory.provider):
            return external_login.log_in_by_directory(
                self.store,
                self.issuer,
                directory,
                credentials,
                mode=mode,
                client=request.client,
            )

    def refresh(self, request: Request, token: str) -> IssuedTokens:
        """Renew a session; if its user is a provider's that can be asked, it has to agree.

        Raises `Refused`: SERVICE_UNAVAILABLE where it does not answer, INVALID_PROVIDER where there
        is none of that name any more, and as `sessions.refresh` does.
        """
        client = request.client
        confirmation = provider_clients.confirmation_of(self.store, self.providers, token)
        if confirmation is not None:
            with self.asking(confirmation.provider):
                confirmation.require(self.store, self.issuer.secret, client)
        return sessions.refresh(self.store, self.issuer, token=token, client=client)

    def finish(
        self,
        request: Request,
        response: falcon.Response,
        account: ExternalAccount,
        source: LoginSource,
        *,
        mode: Mode,
    ) -> IssuedTokens:
        """Open the session of a user, and set its cookies."""
        issued = external_login.log_in(
            self.store,
            self.issuer,
            account,
            source,
            mode=mode,
            client=request.client,
        )
        self.cookies.set_session(request, response, issued)
        return issued


class ExternalLoginResource:
    def __init__(self, logins: ExternalLogins, origins: Origins) -> None:
        self._logins = logins
        self._origins = origins

    def on_get(self, request: Request, response: falcon.Response, provider: str) -> None:
        """Send the browser to the provider."""
        login_provider = self._logins.providers.provider(provider)
        redirect = checked_redirect(login_provider, request.get_param("redirect"))
        with _refusal_as_redirect(response, redirect), self._logins.asking(login_provider):
            url, state = self._logins.providers.client(login_provider.name).begin(redirect)
            self._logins.cookies.set_for_login(
                request,
                response,
                _state_cookie(state.id),
                state.signed(self._logins.issuer.secret),
                provider=login_provider.name,
                max_age=int(LIFE.total_seconds()),
            )
            send_browser(response, url)

    def on_post(self, request: Request, response: falcon.Response, provider: str) -> None:
        """Log in by a directory, or take the code of the second factor for a confirmed login."""
        login_provider = self._logins.providers.provider(provider)
        payload = read_json_object(request)
        if login_provider.name in self._logins.providers.directories:
            mode = mode_of(payload) or Mode.JSON
            issued = self._logins.log_in_by_directory(
                request, login_provider.name, payload, mode=mode
            )
            self._logins.cookies.set_session(request, response, issued)
            _send_json(response, issued)
            return
        self._finish_with_factor(request, response, login_provider, required_text(payload, "otp"))

    def _finish_with_factor(
        self,
        request: Request,
        response: falcon.Response,
        login_provider: Provider,
        code: str,
    ) -> None:
        # The cookie alone stands for the confirmed user: another site's page must not use it.
        self._origins.require(request)
        cookie = cookie_value(request, _FACTOR_COOKIE)
        if not cookie:
            raise not_begun()
        secret = self._logins.issuer.secret
        pending = PendingFactor.read(cookie, provider=login_provider.name, secret=secret)
        count_account(request, pending.user)
        account = pending_account(self._logins.store, login_provider, pending.user)
        if account is None:
            raise not_begun()
        external_login.check_status(account)
        external_login.check_factor(self._logins.store, account, code, client=request.client)
        issued = self._logins.finish(request, response, account, pending.source, mode=pending.mode)
        self._logins.cookies.forget_for_login(
            request, response, _FACTOR_COOKIE, provider=login_provider.name
        )
        _send_json(response, issued)


class CallbackResource:
    def __init__(self, logins: ExternalLogins) -> None:
        self._logins = logins

    def on_get(self, request: Request, response: falcon.Response, provider: str) -> None:
        """Take the provider's answer, with which it sends the browser back."""
        login_provider = self._logins.providers.provider(provider)
        answer = answer_of(request)
        state = self._begun_login(request, response, login_provider, answer.get("state", ""))
        with _refusal_as_redirect(response, state.redirect):
            issued = self._log_in(request, response, login_provider, state, answer)
            if state.redirect is None:
                _send_json(response, issued)
            else:
                send_browser(response, state.redirect)

    def _begun_login(
        self, request: Request, response: falcon.Response, provider: Provider, state: str
    ) -> LoginState:
        """Return the login that this browser has begun, and make the browser forget it."""
        name = _state_cookie(state)
        cookie = cookie_value(request, name)
        if not state or not cookie:
            raise not_begun()
        begun = LoginState.read(
            cookie, provider=provider.name, state=state, secret=self._logins.issuer.secret
        )
        self._logins.cookies.forget_for_login(request, response, name, provider=provider.name)
        return begun

    def _log_in(
        self,
        request: Request,
        response: falcon.Response,
        provider: Provider,
        state: LoginState,
        answer: Mapping[str, str],
    ) -> IssuedTokens:
        client = self._logins.providers.client(provider.name)
        with self._logins.asking(provider):
            user = client.confirmed_user(state, answer)
            accounts = ExternalAccounts(self._logins.store, provider, request.client)
            account = accounts.account_of(user.profile)
        external_login.check_status(account)
        mode = _mode_of(provider, state)
        source = LoginSource(provider.name, user.logout_url, user.refresh_token)
        if account.tfa_secret is not None:
            pending = PendingFactor(account.id, mode, source)
            with self._logins.asking(provider):
                sealed = pending.sealed(self._logins.issuer.secret)
            self._logins.cookies.set_for_login(
                request,
                response,
                _FACTOR_COOKIE,
                sealed,
                provider=provider.name,
                max_age=int(FACTOR_LIFE.total_seconds()),
            )
            raise factors.invalid_otp()
        return self._logins.finish(request, response, account, source, mode=mode)


def _mode_of(provider: Provider, state: LoginState) -> Mode:
    """Return how the client holds the session: without `redirect` the answer has both tokens."""
    if state.redirect is None:
        return Mode.JSON
    mode = Mode(provider.mode)
    if mode is Mode.JSON:
        # An address takes no tokens: the page that it leads to gets them by a refresh.
        mode = Mode.COOKIE
    return mode


def _state_cookie(state: str) -> str:
    # Only characters that the service itself puts there: a browser may send any.
    prefix = "".join(filter(_is_plain, state[:_STATE_PREFIX]))
    return f"{_STATE_COOKIE}_{prefix}"


def _is_plain(character: str) -> bool:
    return character.isascii() and (character.isalnum() or character in "-_")


def answer_of(request: Request) -> Mapping[str, str]:
    """Return the parameters of a provider's answer, without those that are sent twice."""
    answer = {}
    for name, value in request.params.items():
        if isinstance(value, str):
            answer[name] = value
    return answer


@contextmanager
def _refusal_as_redirect(response: falcon.Response, redirect: str | None) -> Iterator[None]:
    """Send the browser to `redirect` with the code of a refusal; without `redirect`, raise it."""
    try:
        yield
    except Refused as refused:
        if redirect is None:
            raise
        send_browser(response, with_reason(redirect, refused.problems[0].code))


def send_browser(response: falcon.Response, url: str) -> None:
    """Answer with a redirect that nobody keeps."""
    response.status = falcon.HTTP_302
    response.location = url
    # The address and the cookies beside it are for this one browser, now.
    response.cache_control = ["no-store"]
    # The next page must not learn the code in this address.
    response.set_header("Referrer-Policy", "no-referrer")


def _send_json(response: falcon.Response, issued: IssuedTokens) -> None:
    response.cache_control = ["no-store"]
    send(response, session_body(issued))
