"""`cms migrate` and `cms bootstrap`: what a database needs before it can be served."""

from __future__ import annotations

from cms.auth.accounts import first_admin
from cms.cli.session import database, say
from cms.config import Config
from cms.store.migrate import migrate as apply_migrations
from cms.store.upkeep import keep_up


def migrate(config: Config) -> None:
    with database(config) as dsn:
        applied = apply_migrations(dsn)
    for name in applied:
        say(f"Applied {name}.")
    if not applied:
        say("The database is up to date.")


def bootstrap(config: Config) -> None:
    with database(config) as dsn:
        prepare(dsn, config=config)
    say("The database is ready.")


def prepare(dsn: str, *, config: Config) -> None:
    """Migrate, tidy up and see to the first admin; a password that had to be made up is printed, this once."""
    apply_migrations(dsn)
    keep_up(dsn)
    password = first_admin(dsn, email=config.admin_email, password=config.admin_password)
    if password is not None:
        say(f"The first admin is {config.admin_email} with the password {password} (it is not shown again).")
