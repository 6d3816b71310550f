"""Runs in the admin, to be looked at: a list to search and filter, and for each run its values and its journal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from outlast.client.views import topic_view
from outlast.errors import Failure
from outlast.integrations.django.application import app
from outlast.integrations.django.conf import read_config
from outlast.integrations.django.models import Run as RunRow
from outlast.model.journal import Entry, Kind, Phase
from outlast.model.run import Run
from outlast.model.times import to_datetime

if TYPE_CHECKING:
    _Admin = admin.ModelAdmin[RunRow]
else:
    _Admin = admin.ModelAdmin

_HEADS: Final = ("Entry", "Kind", "Phase", "Attempts", "Result or error", "Recorded (UTC)")


@admin.register(RunRow)
class RunAdmin(_Admin):
    """Shows runs and changes none: what a run does next is for its workflow, its worker and the verbs."""

    # Django checks what these are; what its stubs call their types is private.
    list_display: Any = ("id", "workflow", "version", "status", "created_at", "updated_at", "due_at")
    list_filter: ClassVar[Any] = ("status",)
    search_fields: ClassVar[Any] = ("id__startswith", "workflow__exact")
    search_help_text: ClassVar[Any] = "The beginning of an id, or the name of a workflow"
    show_full_result_count = False
    list_per_page = 50
    fields: ClassVar[Any] = (
        "id", "workflow", "version", "status", "custom_status", "waiting_for", "held", "input", "output", "failure",
        "created_at", "started_at", "updated_at", "due_at", "deadline_at", "finished_at", "turns", "lapses", "journal",
    )  # fmt: skip
    readonly_fields: ClassVar[Any] = fields

    def get_queryset(self, request: HttpRequest) -> QuerySet[RunRow]:
        return super().get_queryset(request).using(read_config().database)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ANN401, ARG002 - as Django calls it
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ANN401, ARG002 - the same
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ANN401, ARG002 - the same
        return False

    def custom_status(self, row: RunRow) -> str:
        return _text(_run(row).custom_status)

    def waiting_for(self, row: RunRow) -> str:
        return ", ".join(_run(row).waiting_for) or "-"

    def held(self, row: RunRow) -> SafeString:
        return _failed(_run(row).held)

    def input(self, row: RunRow) -> SafeString:
        return _value(_run(row).input)

    def output(self, row: RunRow) -> SafeString:
        return _value(_run(row).output)

    def failure(self, row: RunRow) -> SafeString:
        return _failed(_run(row).failure)

    def journal(self, row: RunRow) -> SafeString:
        lines = format_html_join(
            "",
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            (
                (
                    entry.name,
                    entry.kind,
                    entry.phase,
                    _text(entry.attempts),
                    _said(entry),
                    f"{entry.recorded_at:%Y-%m-%d %X.%f}",
                )
                for entry in _run(row).journal
            ),
        )
        heads = format_html_join("", "<th>{}</th>", ((head,) for head in _HEADS))
        return format_html("<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>", heads, lines)


def _run(row: RunRow) -> Run:
    """Return all that is known of a run; asked once for each row that is shown."""
    found: Run | None = getattr(row, "_known", None)
    if found is None:
        found = app.blocking.get(row.id, journal=True)
        assert found is not None
        row._known = found  # type: ignore[attr-defined]  # noqa: SLF001 - kept on the row for the other fields
    return found


def _said(entry: Entry) -> str:
    if entry.failure is not None:
        return f"{entry.failure.type}: {entry.failure.message}"
    if entry.result is not None:
        return str(entry.result)
    if entry.kind in (Kind.WAIT, Kind.FIRST) and entry.phase is Phase.OPEN and entry.payload is not None:
        return _awaited(entry.payload)
    return _text(entry.payload)


def _awaited(plan: str) -> str:
    """Say what a wait is for: signals by their name and key, as `waiting_for` has them, and times."""
    try:
        parts = msgspec.json.decode(plan, type=list[str | int])
        return ", ".join(
            topic_view(part) if isinstance(part, str) else f"{to_datetime(part):%Y-%m-%d %X}" for part in parts
        )
    except (ValueError, OverflowError, msgspec.MsgspecError):
        return plan  # Damaged: the page shows what is there.


def _failed(failure: Failure | None) -> SafeString:
    if failure is None:
        return format_html("{}", _text(None))
    return format_html("<p>{}: {}</p><pre>{}</pre>", failure.type, failure.message, failure.traceback or "")


def _text(value: object) -> str:
    return "-" if value is None else str(value)


def _value(value: object) -> SafeString:
    return format_html("<pre>{}</pre>", repr(value))
