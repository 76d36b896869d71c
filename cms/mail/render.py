"""Render a mail: the operator's templates in DATA_DIR/templates come before the service's own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from html import unescape
from pathlib import Path

from jinja2 import FileSystemLoader, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from markupsafe import Markup

from cms.jobs.task import JobError
from cms.mail.mail_queue import GENERIC, Mail
from cms.markdown import html_of_markdown

BUILT_IN_TEMPLATES = Path(__file__).parent / "templates"
TEMPLATES_FOLDER = "templates"

_HIDDEN_TAGS = frozenset({"head", "script", "style", "title"})
_BLOCKS = frozenset(
    {"br", "div", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "p", "table", "tr"}
)

# A comment, a tag, or text. Each is read once, whatever does not end: html.parser takes quadratic
# time for that, and ends with an exception for some of it.
_PIECE = re.compile(r"<!--.*?(?:-->|\Z)|<[a-zA-Z/!?][^<>]*>|[^<]+|<", re.DOTALL)
_TAG = re.compile(r"<(/?)([a-zA-Z][^\s/>]*)")
_HREF = re.compile(r"""\shref\s*+=\s*+(?:"([^"]*)"|'([^']*)'|([^\s>]+))""", re.IGNORECASE)
# The longest that stand for a character; more digits than that, int() may refuse.
_REFERENCE = re.compile(r"&(?:#\w{1,8}|\w{1,32});?", re.ASCII)


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
            return {"html": Markup(html_of_markdown(mail.body)), "text": mail.body}
        case _:
            return {"html": mail.body, "text": mail.body}


def plain(html: str) -> str:
    """Return the text that a reader would see, with the address of each link after its words."""
    reader = _TextExtractor()
    for piece in _PIECE.findall(html):
        reader.read(piece)
    lines = "".join(reader.pieces).splitlines()
    text = "\n".join(" ".join(line.split()) for line in lines)
    # Every block begins and ends a line, so that nested ones leave many empty lines.
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def _unescaped(text: str) -> str:
    return _REFERENCE.sub(lambda match: unescape(match[0]), text)


class _TextExtractor:
    """Collects the visible text of a document in `pieces`."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self._hidden_depth = 0
        # A stack of the addresses of open links: their ends have no attributes.
        self._links: list[str] = []

    def read(self, piece: str) -> None:
        """Read the next piece of the document."""
        tag = _TAG.match(piece)
        if tag is None:
            # Comments, declarations and instructions begin with these as well, and are not shown.
            if not piece.startswith(("<!", "<?", "</")):
                self._text(piece)
        elif tag[1]:
            self._end(tag[2].lower())
        else:
            self._start(tag[2].lower(), piece)

    def _start(self, name: str, tag: str) -> None:
        if name in _HIDDEN_TAGS:
            self._hidden_depth += 1
        elif name == "a":
            href = _HREF.search(tag)
            self._links.append(_unescaped(href[1] or href[2] or href[3] or "") if href else "")
        elif name in _BLOCKS:
            self.pieces.append("\n")

    def _end(self, name: str) -> None:
        if name in _HIDDEN_TAGS:
            # An end tag without its start must not bring the depth below zero.
            self._hidden_depth = max(0, self._hidden_depth - 1)
        elif name == "a" and self._links:
            address = self._links.pop()
            if address:
                self.pieces.append(f" ({address})")
        elif name in _BLOCKS:
            self.pieces.append("\n")

    def _text(self, text: str) -> None:
        if not self._hidden_depth:
            # Line breaks of the source are spaces to a reader; only blocks break lines.
            self.pieces.append(re.sub(r"\s+", " ", _unescaped(text)))
