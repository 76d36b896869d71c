"""`cms user`: accounts without a running service, for the first ones and for lost passwords."""

from __future__ import annotations

from cms.auth import accounts
from cms.cli.session import existing_database, say
from cms.config import Config


def create(config: Config, *, email: str, password: str | None, role: str | None) -> None:
    with existing_database(config) as dsn:
        user = accounts.create_user(
            dsn, email=email, password=password, role=role, parameters=config.hash_parameters
        )
        say(user)


def password(config: Config, *, email: str, password: str) -> None:
    with existing_database(config) as dsn:
        accounts.set_password(
            dsn, email=email, password=password, parameters=config.hash_parameters
        )
    say(f"{email} has a new password.")


def token(config: Config, *, email: str) -> None:
    with existing_database(config) as dsn:
        say(accounts.make_token(dsn, email=email))
