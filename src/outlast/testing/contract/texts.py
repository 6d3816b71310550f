"""Texts come back as they were given, character by character."""

from __future__ import annotations

from typing import Final

from outlast.model.ids import MAX_ENTRY_NAME, RunId
from outlast.ports.store import Batch, NewSignal, RunFilter, Wait
from outlast.testing.contract.desk import Desk, cases, finished, new_run, same, showing, step
from outlast.testing.contract.verbs import listing, sending

HARD: Final = (
    '""',
    '"\\u0000"',
    '"\\\\u0000 \\\\\\\\u0000"',
    '"\U0001f600 \u0301e \ufeff \u2028 \uffff"',
    '"it\'s %s :name ? $1 {x} \\n"',
    '{"a" : 1,  "b":[ ] }',
    '"' + "x" * 1_000_000 + '"',
    "123456789012345678901234567890",
    "1e400",
    " null ",
)


def payloads_come_back_as_they_were_given(desk: Desk) -> None:
    lease = desk.worker()
    desk.begin("r", lease)
    desk.flush(lease, Batch(records=tuple((RunId("r"), step(seq, f"s{seq}", text)) for seq, text in enumerate(HARD))))

    same([record.payload == text for record, text in zip(desk.get("r").journal, HARD, strict=True)], [True] * len(HARD))


def names_of_entries_come_back_whole_however_long(desk: Desk) -> None:
    """Two that differ in their last character only are two."""
    lease = desk.worker()
    desk.begin("r", lease)
    names = ["x" * MAX_ENTRY_NAME, "x" * (MAX_ENTRY_NAME - 1) + "X", "\U0001f600" * MAX_ENTRY_NAME, "it's \\ %s :n ?"]
    desk.flush(lease, Batch(records=tuple((RunId("r"), step(seq, name)) for seq, name in enumerate(names))))

    same([record.name for record in desk.get("r").journal], names)


def inputs_outputs_and_shown_texts_come_back_as_they_were_given(desk: Desk) -> None:
    lease = desk.worker()
    for n, text in enumerate(HARD):
        desk.start(new_run(f"r{n}", input=text))
        same(desk.claim_one(lease).input == text, True)
        desk.flush(lease, Batch(writes=(showing(f"r{n}", text),)))
        desk.flush(lease, Batch(writes=(finished(f"r{n}", output=text, error=text),)))

        run = desk.get(f"r{n}").run
        same((run.custom_status == text, run.output == text, run.error == text), (True, True, True))


def signal_payloads_come_back_as_they_were_given(desk: Desk) -> None:
    lease = desk.worker()
    desk.begin("r", lease)
    desk.park(lease, "r", Wait("t", 0))
    desk.do(sending(*(NewSignal("t", "t", str(n), text) for n, text in enumerate(HARD))))

    claimed = desk.claim_one(lease)

    same([one.payload == text for one, text in zip(claimed.signals, HARD, strict=True)], [True] * len(HARD))


def ids_are_compared_exactly(desk: Desk) -> None:
    ids = (
        "a",
        "A",
        "a ",
        " a",
        "á",
        "a\u0301",
        "ß",
        "ss",
        "a%",
        "a_",
        "a'",
        'a"',
        "a\\",
        "\uff41",
        "\U0001f600",
        "x" * 255,
    )
    outcomes = [desk.start(new_run(run_id, input=str(n)))[0] for n, run_id in enumerate(ids)]

    same([one.created for one in outcomes], [True] * len(ids))
    same([desk.get(run_id).run.input for run_id in ids], [str(n) for n in range(len(ids))])
    same(len(desk.claim(desk.worker(), limit=99).runs), len(ids))


def ids_are_ordered_by_their_characters(desk: Desk) -> None:
    ids = ["B", "a", "b", "A", "á", "\U0001f600", "_", "Z", "z", "a b", "a-b", "ab", "\uff41"]
    desk.start(*(new_run(run_id) for run_id in ids))

    first = desk.do(listing(RunFilter(limit=6)))
    rest = desk.do(listing(RunFilter(limit=99, after=(first[-1].created_at, first[-1].id))))

    same([run.id for run in (*first, *rest)], sorted(ids))


CASES = cases(
    payloads_come_back_as_they_were_given,
    names_of_entries_come_back_whole_however_long,
    inputs_outputs_and_shown_texts_come_back_as_they_were_given,
    signal_payloads_come_back_as_they_were_given,
    ids_are_compared_exactly,
    ids_are_ordered_by_their_characters,
)
