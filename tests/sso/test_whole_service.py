"""Logins with `cms serve` as a whole, and the lines of its log about them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.smoke.running import command, free_port, new_folder, serving
from tests.sso.oidc import BASIC_CLIENT, CLIENT_SECRET, Setup, running_provider
from tests.sso.site import APP_URL, Browser, query_of, reason_of, target_of

pytestmark = [pytest.mark.slow, pytest.mark.release]


def answer_url(browser: Browser, url: str, account: str) -> str:
    """Log in at the provider; return where the browser is sent with the answer."""
    begun = browser.get(f"{url}/auth/login/openid?redirect={APP_URL}")
    page = browser.follow(begun, until=url)
    redirected = browser.follow(browser.post(page.url, data={"account": account}), until=url)
    return target_of(redirected)


def test_the_log_has_no_secrets_and_a_start_needs_no_provider(installed: Path) -> None:
    port = free_port()
    url = f"http://localhost:{port}"
    setup = Setup([f"{url}/auth/login/openid/callback"])
    with running_provider(installed, setup) as provider, new_folder() as folder:
        settings = provider.settings("openid", client=BASIC_CLIENT, redirect_allow_list=APP_URL)
        down = provider.settings("other", issuer_url="https://127.0.0.1:1/x")
        settings |= down | {"AUTH_OPENID_ALLOW_PUBLIC_REGISTRATION": "true"}
        settings |= {"AUTH_PROVIDERS": "openid,other", "PUBLIC_URL": url, "LOG_LEVEL": "trace"}
        with serving(folder, PORT=str(port), **settings) as service:
            browser = Browser()
            answer = answer_url(browser, url, "alice")
            secrets = [CLIENT_SECRET, query_of(answer)["code"], browser.cookie("cms_login")]
            assert reason_of(browser.get(answer)) is None
            secrets.append(browser.cookie("cms_session_token"))
            assert browser.get(f"{url}/users/me").status_code == 200
            # Refused ones write more into the log.
            second = Browser()
            again = answer_url(second, url, "alice")
            code = query_of(again)["code"]
            refused = second.get(again.replace(code, f"{code}-changed"))
            assert reason_of(refused) == "INVALID_CREDENTIALS"
            secrets.append(code)
            failing = Browser().get(f"{url}/auth/login/other")
            assert failing.status_code == 503
            left = browser.post(f"{url}/auth/logout", headers={"Origin": url})
            secrets.append(query_of(left.json()["data"]["logout_url"])["id_token_hint"])
            log = service.log_text()
            diagnosis = command(folder, "doctor", "--providers", **settings).stdout
        assert "The login provider other fails" in log
        for secret in secrets:
            assert secret
            assert secret not in log
            assert secret not in diagnosis
        assert f"register {url}/auth/login/openid/callback there" in diagnosis
        assert "wrong    provider other: " in diagnosis
