"""What commands say to operators."""

from __future__ import annotations

from outlast.client.operating import in_words, migrated
from outlast.errors import SchemaBehind


def test_an_error_is_told_in_one_line_with_its_notes() -> None:
    error = SchemaBehind("outlast", 0, 1)
    error.add_note("Only this role sees none.")

    told = in_words(error)

    assert told.startswith("SchemaBehind: The tables of outlast in 'outlast' are not there")
    assert told.endswith(" Only this role sees none.")
    assert "\n" not in told


def test_what_was_applied_is_told() -> None:
    assert migrated([1, 2]) == "Applied 1, 2; the tables are up to date."
    assert migrated([]) == "The tables were up to date already."
