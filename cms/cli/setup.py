"""`cms migrate`, `cms bootstrap` and `cms maintain` prepare and maintain a database, `cms user` its
accounts: the first ones, and those whose password is lost.
"""

from __future__ import annotations

from cms.auth import accounts
from cms.auth.accounts import first_admin
from cms.cli.session import database, existing_database, say
from cms.config import Config
from cms.database.connections import standalone_transaction
from cms.database.maintenance import MaintenanceReport, run_maintenance
from cms.database.migrate import migrate as apply_migrations
from cms.errors import Refused
from cms.files.contents import SweepResult, sweep
from cms.files.storage import Storages


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
        report = run_maintenance(
            dsn, retention=config.activity_retention, access_life=config.access_token_ttl
        )
        sweep_result = _sweep(dsn, config)
    for name in report.dropped_partitions:
        say(f"Dropped {name}.")
    for path in sweep_result.removed:
        say(f"Removed {path}, which belonged to no file.")
    for key in sweep_result.without_content:
        say(f"The file {key} has lost its content.")
    counts = {
        "partitions made": report.created_partitions,
        "old rows of history without a partition deleted": report.deleted_rows,
        "expired sessions deleted": report.deleted_sessions,
        "expired idempotent answers deleted": report.deleted_answers,
    }
    for description, count in counts.items():
        if count:
            say(f"{count} {description}.")
    # Those of nothing done: the other members have that as their default.
    if report == MaintenanceReport(0, 0, 0) and sweep_result == SweepResult():
        say("There is nothing to do.")


def _sweep(dsn: str, config: Config) -> SweepResult:
    try:
        with standalone_transaction(dsn) as transaction:
            return sweep(transaction, Storages.from_config(config))
    except Refused as refused:
        # A storage location that does not answer must not fail the rest of the maintenance.
        say(f"The contents of files were not looked at: {refused}")
        return SweepResult()


def prepare(dsn: str, *, config: Config) -> None:
    """Migrate, run the maintenance, and make the first admin where there is none.

    A password that had to be made up is printed, this once.
    """
    apply_migrations(dsn)
    run_maintenance(dsn, retention=config.activity_retention, access_life=config.access_token_ttl)
    password = first_admin(
        dsn,
        email=config.admin_email,
        password=config.admin_password,
        parameters=config.hash_parameters,
    )
    if password is not None:
        say(
            f"The first admin is {config.admin_email} with the password {password} "
            "(it is not shown again)."
        )


def create_user(config: Config, *, email: str, password: str | None, role: str | None) -> None:
    with existing_database(config) as dsn:
        user = accounts.create_user(
            dsn, email=email, password=password, role=role, parameters=config.hash_parameters
        )
        say(user)


def set_password(config: Config, *, email: str, password: str) -> None:
    with existing_database(config) as dsn:
        accounts.set_password(
            dsn, email=email, password=password, parameters=config.hash_parameters
        )
    say(f"{email} has a new password.")


def make_token(config: Config, *, email: str) -> None:
    with existing_database(config) as dsn:
        say(accounts.make_token(dsn, email=email))
