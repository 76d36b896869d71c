"""`cms migrate`, `cms bootstrap` and `cms maintain`: what a database needs to be served, and to stay well."""

from __future__ import annotations

from cms.auth.accounts import first_admin
from cms.cli.session import database, existing_database, say
from cms.config import Config
from cms.database.connections import standalone_transaction
from cms.database.maintenance import MaintenanceReport, run_maintenance
from cms.database.migrate import migrate as apply_migrations
from cms.errors import Refused
from cms.files import storage
from cms.files.stray_contents import SweepResult, sweep


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


def maintain(config: Config) -> None:
    with existing_database(config) as dsn:
        done = run_maintenance(
            dsn, retention=config.activity_retention, access_life=config.access_token_ttl
        )
        swept = _sweep(dsn, config)
    for name in done.dropped:
        say(f"Dropped {name}.")
    for path in swept.removed:
        say(f"Removed {path}, which belonged to no file.")
    for key in swept.without_content:
        say(f"The file {key} has lost its content.")
    for count, what in (
        (done.made, "partitions made"),
        (done.deleted, "old rows of history without a partition deleted"),
        (done.sessions, "expired sessions deleted"),
        (done.answers, "expired idempotent answers deleted"),
    ):
        if count:
            say(f"{count} {what}.")
    if done == MaintenanceReport(made=0, sessions=0, answers=0) and swept == SweepResult():
        say("There is nothing to do.")


def _sweep(dsn: str, config: Config) -> SweepResult:
    try:
        with standalone_transaction(dsn) as transaction:
            return sweep(transaction, storage.open(config))
    except Refused as refused:
        say(f"The contents of files were not looked at: {refused}")
        return SweepResult()


def prepare(dsn: str, *, config: Config) -> None:
    """Migrate, tidy up and see to the first admin; a password that had to be made up is printed,
    this once.
    """
    apply_migrations(dsn)
    run_maintenance(dsn, retention=config.activity_retention, access_life=config.access_token_ttl)
    password = first_admin(dsn, email=config.admin_email, password=config.admin_password)
    if password is not None:
        say(
            f"The first admin is {config.admin_email} with the password {password} (it is not shown again)."
        )
