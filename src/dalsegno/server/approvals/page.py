"""The pages of approval links: plain HTML that works without scripts and loads nothing from other hosts.

Values from a workflow are escaped here and nowhere else.
The form's JSON Schema becomes the fields of the page, and the submitted fields become data. A value without a field
of its own kind (objects, lists) is entered as JSON. The schema decides whether the data are valid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from typing import Any, Literal

import msgspec

from dalsegno.core.graph.external_waits import LONGEST_COMMENT
from dalsegno.engine.operations.approvals import Approval
from dalsegno.errors import InvalidInput
from dalsegno.server.approvals.links import Found, Link
from dalsegno.server.schemas.values import moment

Kind = Literal["text", "long", "number", "integer", "yes", "choice", "date", "email", "json"]
WHOLE = "data"
LONG = 200


@dataclass(frozen=True, slots=True)
class FormField:
    name: str
    label: str
    kind: Kind
    help: str = ""
    required: bool = False
    choices: tuple[Any, ...] = ()
    default: Any = None
    bounds: Mapping[str, Any] | None = None


def fields_of(form: Mapping[str, Any] | None) -> list[FormField]:
    """Return the fields of a form; none without a form, because a comment needs none."""
    if not form:
        return []
    properties = form.get("properties")
    if not isinstance(properties, Mapping) or not properties:
        return [FormField(WHOLE, "Data (JSON)", "json", required=form.get("type") not in (None, "null"))]
    required = form.get("required")
    needed = required if isinstance(required, Sequence) else ()
    return [
        _field(str(name), schema if isinstance(schema, Mapping) else {}, required=name in needed)
        for name, schema in properties.items()
    ]


def _field(name: str, schema: Mapping[str, Any], *, required: bool) -> FormField:
    schema = _without_null(schema)
    choices = schema.get("enum")
    return FormField(
        name,
        str(schema.get("title") or name.replace("_", " ").capitalize()),
        _kind(schema),
        str(schema.get("description") or ""),
        required,
        tuple(choices) if isinstance(choices, list) else (),
        schema.get("default"),
        {key: schema[key] for key in ("minimum", "maximum", "minLength", "maxLength") if key in schema},
    )


def _without_null(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema without its null alternative: an empty field is left out of the data."""
    choices = schema.get("anyOf")
    if not isinstance(choices, list):
        return schema
    others = [each for each in choices if isinstance(each, Mapping) and each.get("type") != "null"]
    return {**others[0], **schema} if len(others) == 1 and len(choices) == 2 else schema


def _kind(schema: Mapping[str, Any]) -> Kind:
    if isinstance(schema.get("enum"), list):
        return "choice"
    match schema.get("type"):
        case "string":
            return _text_kind(schema)
        case "number":
            return "number"
        case "integer":
            return "integer"
        case "boolean":
            return "yes"
        case _:
            return "json"


def _text_kind(schema: Mapping[str, Any]) -> Kind:
    longest = schema.get("maxLength")
    if schema.get("format") == "date":
        return "date"
    if schema.get("format") == "email":
        return "email"
    return "long" if isinstance(longest, int) and longest > LONG else "text"


def data_of(form: Mapping[str, Any] | None, given: Mapping[str, str]) -> Any:
    """Convert submitted fields to data. Empty fields are left out. Raises InvalidInput that names the field."""
    found = {
        field.name: _value(field, given.get(f"field:{field.name}", ""))
        for field in fields_of(form)
        if field.kind == "yes" or given.get(f"field:{field.name}", "").strip()
    }
    if form and list(found) == [WHOLE] and not form.get("properties"):
        return found[WHOLE]
    return found or None


def _value(field: FormField, text: str) -> Any:
    match field.kind:
        case "yes":
            return text == "yes"
        case "choice":
            return next((each for each in field.choices if _written(each) == text), text)
        case "number" | "integer" | "json":
            return _read(field, text)
        case _:
            return text.replace("\r\n", "\n")


def _read(field: FormField, text: str) -> Any:
    what = "JSON" if field.kind == "json" else "a number"
    try:
        value = msgspec.json.decode(text.strip())
    except (msgspec.DecodeError, RecursionError, ValueError):
        raise InvalidInput(f"{field.label}: {text[:60]!r} is not {what}") from None
    if field.kind != "json" and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise InvalidInput(f"{field.label}: {text[:60]!r} is not a number")
    return value


def _written(choice: Any) -> str:
    return choice if isinstance(choice, str) else msgspec.json.encode(choice).decode()


def written(value: Any) -> str:
    """Return a default or choice as the text of a field."""
    return "" if value is None else _written(value)


STYLE = "/v1/approvals/links/approval.css"
LONGEST_DATA = 20_000
_REJECTING = "<p><small>A rejection sends only the comment, not the other fields.</small></p>"
ENDINGS: dict[str, tuple[str, str]] = {
    "unknown": ("This link is not valid", "Check that the whole address was copied, or ask for a new link."),
    "expired": (
        "This link has expired",
        "It was valid until {until}, and was not used. Ask for a new link.",
    ),
    "used": ("This has been decided", "It was {decision} with this link on {used}. A link works once."),
    "decided": (
        "This decision is no longer open",
        "Someone else has decided, the time has passed, or the workflow has ended. Nothing was changed.",
    ),
}


def question_page(
    found: Found, text: str, given: Mapping[str, str] | None = None, problem: str | None = None
) -> str:
    approval, link = found.approval, found.link
    if approval is None or link is None:
        return ending_page(found)
    title = approval.message or f"Decide '{approval.node}'"
    parts = [
        f"<p class=from>{escape(approval.workflow)}</p><h1>{escape(title)}</h1>",
        _facts(approval, link),
        f"<p class=problem role=alert id=problem>{_lines(problem)}</p>" if problem else "",
        _data(found.context),
        _form(approval, link, text, given or {}),
    ]
    return _page(title, "".join(parts))


def ending_page(found: Found) -> str:
    title, words = ENDINGS[found.state]
    link = found.link
    if link is not None:
        used = _time(link.used_at) if link.used_at is not None else ""
        words = words.format(until=_time(link.expires_at), used=used, decision=link.decision or "decided")
    return _page(title, f"<h1>{escape(title)}</h1><p>{escape(words)}</p>")


def thanks_page(decision: str, by: str | None) -> str:
    title = "Approved" if decision == "approved" else "Rejected"
    who = f" by {escape(by)}" if by else ""
    words = f"<p>This was {decision}{who}. The workflow continues; you can close this page.</p>"
    return _page(title, f'<h1 class="{decision}">{title}</h1>{words}')


def _page(title: str, inside: str) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="robots" content="noindex"><meta name="color-scheme" content="light dark">'
        f'<title>{escape(title)} · Dal Segno</title><link rel="stylesheet" href="{STYLE}"></head>'
        f"<body><main>{inside}</main></body></html>"
    )


def _facts(approval: Approval, link: Link) -> str:
    facts = [("Asked", _time(approval.since))]
    if approval.approvers:
        facts.append(("For", ", ".join(approval.approvers)))
    facts.append(("Link valid until", _time(link.expires_at)))
    if approval.due is not None:
        facts.append(("Question open until", _time(approval.due)))
    rows = "".join(f"<dt>{name}</dt><dd>{escape(value)}</dd>" for name, value in facts)
    return f"<dl>{rows}</dl>"


def _data(context: dict[str, Any] | None) -> str:
    given = (context or {}).get("input")
    if given in (None, {}, []):
        return ""
    text = msgspec.json.format(msgspec.json.encode(given), indent=2).decode()
    more = "\n…" if len(text) > LONGEST_DATA else ""
    return (
        "<details open><summary>Input of the workflow</summary>"
        f'<pre tabindex="0">{escape(text[:LONGEST_DATA])}{more}</pre></details>'
    )


def _form(approval: Approval, link: Link, text: str, given: Mapping[str, str]) -> str:
    fields = "".join(_input(field, given, number) for number, field in enumerate(fields_of(approval.form)))
    who = (
        f"<p class=who>You decide as <strong>{escape(link.by)}</strong>.</p>"
        if link.by
        else _label(
            "by",
            "Your name",
            f'<input id="by" name="by" maxlength="200" autocomplete="name" '
            f'value="{escape(given.get("by", ""))}">',
        )
    )
    return (
        f'<form method="post" accept-charset="utf-8"><input type="hidden" name="token" value="{escape(text)}">'
        f"{fields}{_comment(given)}{who}<div class=buttons>"
        '<button name="decision" value="approved" class=approved>Approve</button>'
        '<button name="decision" value="rejected" class=rejected formnovalidate>Reject</button></div>'
        f"{_REJECTING if approval.form else ''}</form>"
    )


def _comment(given: Mapping[str, str]) -> str:
    text = escape(given.get("comment", ""))
    box = f'<textarea id="comment" name="comment" rows="3" maxlength="{LONGEST_COMMENT}">\n{text}</textarea>'
    return _label("comment", "Comment", box)


def _label(id: str, label: str, control: str, help: str = "", *, required: bool = False) -> str:
    mark = " <span class=needed>(needed to approve)</span>" if required else ""
    note = f'<small id="{id}-help">{escape(help)}</small>' if help else ""
    return f'<div class=field><label for="{id}">{escape(label)}{mark}</label>{note}{control}</div>'


def _input(field: FormField, given: Mapping[str, str], number: int) -> str:
    place, name = f"f{number}", f"field:{field.name}"
    value = given.get(name, written(field.default))
    common = f'id="{place}" name="{escape(name)}"' + (" required" if field.required else "")
    common += f' aria-describedby="{place}-help"' if field.help else ""
    match field.kind:
        case "yes":
            checked = " checked" if value in ("yes", "true") else ""
            # Never required: an unticked box means false, which is a valid answer.
            box = f'<input type="checkbox" id="{place}" name="{escape(name)}" value="yes"{checked}>'
            return f'<div class="field tick">{box}<label for="{place}">{escape(field.label)}</label></div>'
        case "choice":
            control = f"<select {common}>{_options(field, value)}</select>"
        case "long" | "json":
            control = f'<textarea {common} rows="4">\n{escape(value)}</textarea>'
        case _:
            control = f'<input {common} {_type(field)} value="{escape(value)}">'
    return _label(place, field.label, control, field.help, required=field.required)


def _options(field: FormField, value: str) -> str:
    texts = ["", *map(written, field.choices)]
    return "".join(
        f'<option value="{escape(text)}"{" selected" if text == value else ""}>{escape(text) or "–"}</option>'
        for text in texts
    )


def _type(field: FormField) -> str:
    bounds = field.bounds or {}
    limits = "".join(
        f' {html}="{escape(written(bounds[key]))}"'
        for key, html in (("minimum", "min"), ("maximum", "max"), ("maxLength", "maxlength"))
        if isinstance(bounds.get(key), int | float)
    )
    types = {"number": 'type="number" step="any"', "integer": 'type="number" step="1"'}
    return types.get(field.kind, f'type="{field.kind}"') + limits


def _lines(text: str | None) -> str:
    return "<br>".join(escape(line) for line in (text or "").splitlines())


def _time(seconds: float) -> str:
    found: datetime = moment(seconds)
    return f"{found:%d %B %Y, %H:%M} UTC"
