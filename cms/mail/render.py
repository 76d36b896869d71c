"""Render a mail: the operator's templates in DATA_DIR/templates come before the service's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from jinja2 import FileSystemLoader, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from markupsafe import Markup

from cms.html_texts import html_of_markdown
from cms.jobs.task import JobError
from cms.mail.mail_queue import GENERIC, Mail
from cms.mail.plain import plain

BUILT_IN_TEMPLATES = Path(__file__).parent / "templates"
TEMPLATES_FOLDER = "templates"


@dataclass(frozen=True, slots=True)
class RenderedMail:
    """The texts of a mail; `html` is None where there is only plain text."""

    subject: str
    text: str
    html: str | None


def render(mail: Mail, project: Mapping[str, object], *, data_dir: Path) -> RenderedMail:
    """Fill the templates of a mail with its data and the project's name and colour.

    Raises `JobError`, for the operator may correct a template, or put a missing one back, before
    the next attempt.
    """
    environment = _template_environment(data_dir)
    # The project comes last: data of a mail must not pass itself off as the project's name.
    variables = {**mail.data, **_body(mail), **project}
    try:
        html = _render_template(environment, f"{mail.template}.html", variables)
        text = _render_template(environment, f"{mail.template}.txt", variables)
        subject = _render_template(environment, f"{mail.template}.subject.txt", variables)
    except TemplateError as error:
        raise JobError(f"The mail template {mail.template} is wrong: {error}") from None
    if html is None and text is None:
        raise JobError(f"There is no mail template named {mail.template}")
    if mail.template == GENERIC and mail.kind == "text":
        html = None  # whoever posts plain text wants nothing else
    if text is None:
        text = plain(html or "")
    return RenderedMail(mail.subject or subject or "", text, html)


def template_names(data_dir: Path) -> frozenset[str]:
    """Return the names of all templates, the operator's and the service's own."""
    files = _template_environment(data_dir).list_templates()
    # A template is a file for each format: `welcome.html`, `welcome.subject.txt`.
    return frozenset(file.partition(".")[0] for file in files)


def _template_environment(data_dir: Path) -> ImmutableSandboxedEnvironment:
    # Sandboxed: the author of a template must not be able to run code by it.
    return ImmutableSandboxedEnvironment(
        # The operator's folder comes first, so that a file there takes the place of the built-in
        # one.
        loader=FileSystemLoader([data_dir / TEMPLATES_FOLDER, BUILT_IN_TEMPLATES]),
        # Plain texts and subjects are no HTML, and would show `&amp;`.
        autoescape=lambda name: name is not None and name.endswith(".html"),
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _render_template(
    environment: ImmutableSandboxedEnvironment, name: str, variables: Mapping[str, object]
) -> str | None:
    """Return a filled template, or None when neither the operator nor the service has one."""
    # Looked up first: `TemplateNotFound` may also come from an include in a template that exists.
    if name not in environment.list_templates():
        return None
    return environment.get_template(name).render(variables)


def _body(mail: Mail) -> dict[str, object]:
    """Return the body as HTML and as plain text; HTML inside Markdown is escaped."""
    match mail.kind:
        case "html":
            return {"html": Markup(mail.body), "text": plain(mail.body)}
        case "markdown":
            return {
                "html": Markup(html_of_markdown(mail.body)),
                "text": mail.body,
            }
        case _:
            return {"html": mail.body, "text": mail.body}
