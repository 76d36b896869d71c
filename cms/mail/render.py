"""From a letter to its texts: the operator's templates in DATA_DIR/templates before those of the service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from jinja2 import FileSystemLoader, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from markdown_it import MarkdownIt
from markupsafe import Markup

from cms.jobs.tasks import JobError, PermanentError
from cms.mail.plain import plain
from cms.mail.post import GENERIC, Mail

BUILT_IN_TEMPLATES = Path(__file__).parent / "templates"
TEMPLATES_FOLDER = "templates"


@dataclass(frozen=True, slots=True)
class RenderedMail:
    """What a letter says; there may be no HTML."""

    subject: str
    text: str
    html: str | None


def render(mail: Mail, project: Mapping[str, object], *, data_dir: Path) -> RenderedMail:
    """Fill the templates of a letter with its data and the project's name and colour; raises `JobError`."""
    environment = _template_environment(data_dir)
    variables = {**mail.data, **_body(mail), **project}
    try:
        html, text, subject = (
            _render_template(environment, f"{mail.template}.{kind}", variables)
            for kind in _SUFFIXES
        )
    except TemplateError as fault:
        raise JobError(f"The mail template {mail.template} is wrong: {fault}") from None
    if html is None and text is None:
        raise PermanentError(f"There is no mail template named {mail.template}")
    if mail.template == GENERIC and mail.kind == "text":
        html = None
    return RenderedMail(
        mail.subject or subject or "", text if text is not None else plain(html or ""), html
    )


_SUFFIXES = ("html", "txt", "subject.txt")


def _template_environment(data_dir: Path) -> ImmutableSandboxedEnvironment:
    return ImmutableSandboxedEnvironment(
        loader=FileSystemLoader([data_dir / TEMPLATES_FOLDER, BUILT_IN_TEMPLATES]),
        autoescape=lambda name: name is not None and name.endswith(".html"),
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _render_template(
    environment: ImmutableSandboxedEnvironment, name: str, variables: Mapping[str, object]
) -> str | None:
    """Return a filled template, or None when neither the operator nor the service has a file of that name."""
    if name not in environment.list_templates():
        return None
    return environment.get_template(name).render(variables)


def _body(mail: Mail) -> dict[str, object]:
    """Return the body in both forms; what Markdown brings along as HTML is shown and not taken."""
    match mail.kind:
        case "html":
            return {"html": Markup(mail.body), "text": plain(mail.body)}
        case "markdown":
            return {
                "html": Markup(MarkdownIt("commonmark", {"html": False}).render(mail.body)),
                "text": mail.body,
            }
        case _:
            return {"html": mail.body, "text": mail.body}
