"""The command line.

Each command imports its code when it runs, so that --help and completion stay quick.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, BinaryIO
from uuid import UUID

import click

from cms.cli.session import current_config, interruptible, is_expected, sentence_of, warn_of_names
from cms.distribution import DISTRIBUTION

if TYPE_CHECKING:
    from cms.extensions import Extensions

EPILOG = """Settings come from the environment and from .env in the current folder.

Completion of names with the tab key, for bash, zsh or fish: put the output of
`_CMS_COMPLETE=bash_source cms` into the shell's start file."""


class CommandGroup(click.Group):
    """Prints expected errors as a sentence; other errors keep their traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise  # click itself prints these
        except Exception as error:
            if not is_expected(error):
                raise
            raise click.ClickException(sentence_of(error)) from error


@click.group(
    cls=CommandGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(package_name=DISTRIBUTION, prog_name="cms")
def cms() -> None:
    """A content management service: REST over PostgreSQL."""


@cms.command()
def serve() -> None:
    """Start the service; Ctrl-C stops it.

    Without DATABASE_URL it brings a database of its own, in DATA_DIR. The first start makes an
    admin of ADMIN_EMAIL and ADMIN_PASSWORD; without a password it makes one up and prints it once.
    """
    from cms.cli.serve import serve

    settings = current_config()
    warn_of_names(settings)
    raise SystemExit(serve(settings))


# `cms serve` holds the other end of this pipe, which closes with that process.
@cms.command()
@click.option("--parent-pipe", type=int, hidden=True)
@click.pass_obj
def worker(extensions: Extensions | None, parent_pipe: int | None) -> None:
    """Run background jobs; Ctrl-C stops it.

    `cms serve` runs one by itself. Installations that start gunicorn themselves run one or more
    beside it.
    """
    from cms.cli.worker import run_worker
    from cms.extensions import OWN

    settings = current_config()
    # `cms serve` has said it for the worker that it starts.
    if parent_pipe is None:
        warn_of_names(settings)
    run_worker(settings, extensions or OWN, parent_pipe=parent_pipe)


@cms.command()
def migrate() -> None:
    """Bring the database's system tables to this version."""
    from cms.cli.setup import migrate

    migrate(current_config())


@cms.command()
def bootstrap() -> None:
    """Migrate, and make the first admin when there is none.

    For installations that start gunicorn themselves; `cms serve` does it by itself.
    """
    from cms.cli.setup import bootstrap

    bootstrap(current_config())


@cms.command()
def maintain() -> None:
    """Do the maintenance that a database needs once a day.

    It makes the partitions of activity and revisions for the months ahead, drops those older than
    ACTIVITY_RETENTION, and deletes expired sessions and idempotent answers. `cms serve` does it
    when it starts. It also removes stored contents that belong to no file, and names files that
    have lost their content.
    """
    from cms.cli.setup import maintain

    maintain(current_config())


@cms.command()
@click.argument("archive")
def backup(archive: str) -> None:
    """Write the database and all files into one archive: a file, or s3://BUCKET/KEY.

    The service may run meanwhile. Files whose content is lost are named; the exit status is 3 then.
    """
    from cms.cli.backup import back_up

    with interruptible():
        status = back_up(current_config(), archive)
    raise SystemExit(status)


@cms.command()
@click.argument("archive")
@click.option("--force", is_flag=True, help="Replace all that an installation holds.")
@click.option("--collection", metavar="NAME", help="The rows of this collection alone.")
def restore(archive: str, force: bool, collection: str | None) -> None:  # noqa: FBT001
    """Put an archive back into an empty installation, all of it or nothing.

    A damaged archive changes nothing. Files that it has no content of are named; the exit status is
    3 then. With --collection its rows come back into an installation that goes on: rows with the
    same key are replaced, all others stay.
    """
    from cms.cli.backup import restore, restore_collection

    if force and collection is not None:
        raise click.UsageError("--force is for whole archives, not for one collection.")
    status = 0
    with interruptible():
        if collection is None:
            status = restore(current_config(), archive, replaces=force)
        else:
            restore_collection(current_config(), archive, collection=collection)
    raise SystemExit(status)


@cms.command()
def config() -> None:
    """Print the settings in effect, with secrets masked."""
    from cms.config import effective

    settings = current_config()
    for name, value in effective(settings):
        click.echo(f"{name}={value}")
    warn_of_names(settings)


@cms.command()
@click.option("--providers", is_flag=True, help="Ask each login provider, too.")
@click.pass_obj
def doctor(extensions: Extensions | None, *, providers: bool) -> None:
    """Tell what is wrong with this installation.

    It looks at settings, disk, database, extensions and connections. The exit code is 1 when
    something is wrong, and 0 when there are warnings only.
    """
    from cms.cli.doctor import diagnose
    from cms.extensions import OWN

    raise SystemExit(diagnose((extensions or OWN).operations, asks_providers=providers))


@cms.command()
@click.argument("collection", required=False)
@click.argument("path", required=False)
@click.option("--drop", is_flag=True, help="Drop the index instead.")
def index(collection: str | None, path: str | None, *, drop: bool) -> None:
    """List, make and drop indexes over fields and paths into JSON fields.

    `cms index` lists those of all collections, `cms index articles` those of one. `cms index
    articles meta.price` makes one, while the service runs; with --drop it goes again.
    """
    from cms.cli.index import IndexCommand, run_index_command

    run_index_command(current_config(), IndexCommand(collection, path, drop=drop))


@cms.group()
def user() -> None:
    """Make users, set passwords, make tokens."""


EMAIL = click.option("--email", required=True, prompt="E-mail", help="The user's e-mail address.")
PASSWORD = click.option(
    "--password",
    envvar="CMS_USER_PASSWORD",
    help="Asked for when left out, which keeps it out of the shell's history.",
    show_envvar=True,
)


def _ask_password() -> str:
    return str(click.prompt("Password", hide_input=True, confirmation_prompt=True))


@user.command("create")
@EMAIL
@PASSWORD
@click.option(
    "--no-password",
    is_flag=True,
    help="For a user who logs in elsewhere only: at a provider, or at the application around this.",
)
@click.option("--role", help="Name or id of the user's role; without one there is none.")
def create_user(email: str, password: str | None, role: str | None, *, no_password: bool) -> None:
    """Make a user and print its id."""
    from cms.cli.setup import create_user

    if no_password:
        password = None
    elif password is None:
        password = _ask_password()
    create_user(current_config(), email=email, password=password, role=role)


@user.command("password")
@EMAIL
@PASSWORD
def set_password(email: str, password: str | None) -> None:
    """Set a user's password."""
    from cms.cli.setup import set_password

    set_password(current_config(), email=email, password=password or _ask_password())


@user.command("token")
@EMAIL
def make_token(email: str) -> None:
    """Make a static token for a user and print it, once; the one before it ends."""
    from cms.cli.setup import make_token

    make_token(current_config(), email=email)


@cms.group()
def flows() -> None:
    """List flows, and run them."""


@flows.command("list")
def list_flows() -> None:
    """Print id, status, trigger and name of every flow."""
    from cms.cli.flows import list_flows

    list_flows(current_config())


@flows.command("run")
@click.argument("key", metavar="ID", type=click.UUID)
@click.option("--data", default="{}", help="What templates see as $trigger, as JSON.")
@click.pass_obj
def run_flow(extensions: Extensions | None, key: UUID, data: str) -> None:
    """Run a flow with all rights, and print its steps with their results, secrets included.

    Its trigger and its status do not matter. The exit code is 1 when it is rejected.
    """
    from cms.cli.flows import run_flow
    from cms.extensions import OWN

    is_accepted = run_flow(current_config(), extensions or OWN, key=str(key), data=data)
    raise SystemExit(0 if is_accepted else 1)


URL = click.option("--url", help="The address of the service; PUBLIC_URL when left out.")
TOKEN = click.option(
    "--token",
    envvar="CMS_TOKEN",
    show_envvar=True,
    help="A token; an administrator's is made when left out.",
)


@cms.command("import")
@click.argument("collection")
@click.argument("file", type=click.File("rb"))
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["csv", "json", "jsonl"]),
    help="When the file's name does not tell.",
)
@URL
@TOKEN
def import_(
    collection: str, file: BinaryIO, file_format: str | None, url: str | None, token: str | None
) -> None:
    """Import a file into a collection of the running service, all of it or nothing.

    The file - is standard input. A row whose key exists already changes that item; every other row
    makes a new one.
    """
    import os

    from cms.cli.service import service
    from cms.cli.transfer import file_format_of, import_file

    # Before the service is asked for anything: a missing format is a wrong command.
    chosen_format = file_format_of(file.name, file_format)
    size = os.fstat(file.fileno()).st_size or None  # a pipe has the size 0
    with service(current_config(), url=url, token=token) as running:
        import_file(running, collection, file, size=size, file_format=chosen_format)


@cms.command()
@click.argument("collection")
@click.argument("file", type=click.File("wb"), default="-")
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["csv", "json", "jsonl", "xml", "yaml"]),
    default="csv",
    show_default=True,
)
@click.option("--filter", "rule", help="A filter as JSON; all items when left out.")
@click.option("--fields", help="Names of fields with commas between them; all when left out.")
@URL
@TOKEN
def export(
    collection: str,
    file: BinaryIO,
    file_format: str,
    rule: str | None,
    fields: str | None,
    **address: str | None,
) -> None:
    """Export the items of a collection of the running service.

    They are written to standard output, or into a file.
    """
    from cms.cli.service import service
    from cms.cli.transfer import export_file

    options = {"export": file_format, "filter": rule, "fields": fields}
    params = {name: value for name, value in options.items() if value}
    # `address` holds the options URL and TOKEN.
    with service(current_config(), url=address["url"], token=address["token"]) as running:
        export_file(running, collection, file, params=params)


@cms.command()
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), default="-")
@click.option("--language", type=click.Choice(["typescript", "python"]), required=True)
@URL
@TOKEN
def types(file: str, language: str, url: str | None, token: str | None) -> None:
    """Write the types of the running service's collections for programs in a language.

    They are written to standard output, or into a file.
    """
    from cms.cli.service import service
    from cms.cli.transfer import write_types

    with service(current_config(), url=url, token=token) as running:
        write_types(running, file, language=language)


@cms.group()
def schema() -> None:
    """The structure of the running service: as a file, and changed by one."""


@schema.command()
# A path and no file: nothing may be opened for writing before the service has answered.
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), default="-")
@URL
@TOKEN
@click.option(
    "--include",
    default="",
    help="Further parts: roles, permissions, flows, dashboards, settings; several with commas.",
)
def snapshot(file: str, url: str | None, token: str | None, include: str) -> None:
    """Write the collections, fields and relations of the running service.

    They are YAML on standard output or in a file, JSON in a file whose name ends in .json.
    """
    from cms.cli.schema import write_snapshot
    from cms.cli.service import service

    with service(current_config(), url=url, token=token) as running:
        write_snapshot(running, file, include=include)


@schema.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@URL
@TOKEN
@click.pass_context
def diff(context: click.Context, file: str, url: str | None, token: str | None) -> None:
    """Print what leads from the running service to a snapshot.

    The exit status is 0 where there is no difference, 1 where there is one, and 2 where the
    comparison fails.
    """
    from cms.cli.schema import faults_with_own_status, print_diff
    from cms.cli.service import service

    with faults_with_own_status(), service(current_config(), url=url, token=token) as running:
        is_different = print_diff(running, file)
    context.exit(int(is_different))


@schema.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@URL
@TOKEN
@click.option(
    "--allow-destructive", is_flag=True, help="Delete collections and fields with their data."
)
def apply(
    file: str,
    url: str | None,
    token: str | None,
    allow_destructive: bool,  # noqa: FBT001
) -> None:
    """Change the running service until it has the structure of a snapshot.

    All of it is changed or nothing. What would delete data is refused unless it is allowed.
    """
    from cms.cli.schema import apply_file
    from cms.cli.service import service

    with service(current_config(), url=url, token=token) as running:
        apply_file(running, file, allow_destructive=allow_destructive)


@cms.command()
@URL
@TOKEN
@click.option(
    "--replace", is_flag=True, help="Delete the demo's collections first when they are there."
)
def demo(url: str | None, token: str | None, replace: bool) -> None:  # noqa: FBT001
    """Fill the running service with continents, countries and cities of GeoNames."""
    from cms.cli.demo import load_demo

    load_demo(current_config(), url=url, token=token, replace=replace)


def command_line(extensions: Extensions) -> click.Group:
    """Return the command line of a service with extensions."""
    group = copy.copy(cms)
    further = {str(command.name): command for command in extensions.commands}
    group.commands = {**cms.commands, **further}
    group.context_settings = {**cms.context_settings, "obj": extensions}
    return group
