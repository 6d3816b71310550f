"""Flushes: what one writes, and that it is all or nothing."""

from __future__ import annotations

from msgspec.structs import replace

from outlast.model.ids import RunId
from outlast.model.journal import Kind, Phase, Record
from outlast.model.run import TERMINAL, Status
from outlast.ports.store import Batch, RunWrite, Wait
from outlast.testing.contract.desk import SECOND, Desk, cases, finished, kept, new_run, parked, same, showing, step
from outlast.testing.contract.verbs import asking_after, reaping


def records_come_back_as_they_were_given(desk: Desk) -> None:
    lease = desk.worker()
    desk.begin("r", lease)
    given = (
        Record(0, Kind.STEP, Phase.RETRY, "pay", 1, desk.now + 5, '{"type":"x"}', desk.now - 3),
        Record(1, Kind.STEP, Phase.DONE, "pay", 2, None, "null", desk.now - 2),
        Record(2, Kind.SLEEP, Phase.OPEN, "nap", 0, desk.now + 7 * SECOND, None, desk.now - 1),
        Record(3, Kind.COMPENSATION, Phase.FAILED, "$compensate:pay", 3, None, '""', desk.now),
    )
    desk.flush(lease, Batch(records=tuple((RunId("r"), record) for record in given)))

    same(desk.get("r").journal, given)


def a_record_without_a_time_is_recorded_now(desk: Desk) -> None:
    lease = desk.worker()
    desk.begin("r", lease)
    desk.flush(lease, Batch(records=((RunId("r"), step(0, "s")),)))

    same([record.recorded_at for record in desk.get("r").journal], [desk.now])


def no_payload_and_a_null_are_two_things(desk: Desk) -> None:
    lease = desk.worker()
    desk.begin("r", lease)
    desk.flush(
        lease,
        Batch(records=tuple((RunId("r"), step(seq, f"s{seq}", text)) for seq, text in enumerate([None, "null", '""']))),
    )

    same([record.payload for record in desk.get("r").journal], [None, "null", '""'])


def a_run_ends_with_its_output_or_its_error(desk: Desk) -> None:
    lease = desk.worker()
    desk.start(new_run("good"), new_run("bad"))
    desk.claim(lease)
    desk.later(1)
    failed = finished("bad", Status.COMPENSATION_FAILED, output=None, error='{"type":"x"}')
    outcome = desk.flush(lease, Batch(writes=(finished("good", output="null"), failed)))

    same((outcome.lost, outcome.ready), ((), ()))
    good, bad = desk.get("good").run, desk.get("bad").run
    same((good.status, good.output, good.error, good.owner), (Status.COMPLETED, "null", None, None))
    same((good.finished_at, good.updated_at, good.due_at), (desk.now, desk.now, None))
    same((bad.status, bad.output, bad.error), (Status.COMPENSATION_FAILED, None, '{"type":"x"}'))


def a_run_that_is_kept_stays_with_its_worker(desk: Desk) -> None:
    lease = desk.worker()
    desk.begin("r", lease)
    desk.later(1)
    desk.flush(lease, Batch(writes=(kept("r", Status.COMPENSATING),)))

    run = desk.get("r").run
    same((run.status, run.owner, run.updated_at), (Status.COMPENSATING, lease.worker, desk.now))
    same((run.finished_at, run.due_at, desk.claim(desk.worker()).runs), (None, None, ()))


def what_a_run_shows_is_set_kept_and_cleared(desk: Desk) -> None:
    lease = desk.worker()
    desk.begin("r", lease)

    def shown_after(write: RunWrite) -> str | None:
        desk.flush(lease, Batch(writes=(write,)))
        return desk.get("r").run.custom_status

    same(shown_after(kept("r")), None)
    same(shown_after(showing("r", '"paid"')), '"paid"')
    same(shown_after(kept("r")), '"paid"')
    same(shown_after(showing("r", "null")), "null")
    same(shown_after(showing("r", None)), None)


def progress_sets_lapses_back_and_nothing_else_does(desk: Desk) -> None:
    desk.start(new_run("r"))
    for _ in range(2):
        desk.claim_one(desk.worker())
        desk.later(31)
        desk.do(reaping)
    lease = desk.worker()
    desk.claim_one(lease)

    desk.flush(lease, Batch(writes=(kept("r"),)))
    same(desk.get("r").run.lapses, 2)
    desk.flush(lease, Batch(writes=(kept("r", progressed=True),)))
    same(desk.get("r").run.lapses, 0)


def a_held_run_says_why_until_it_goes_on(desk: Desk) -> None:
    lease = desk.worker()
    desk.begin("r", lease)
    desk.flush(lease, Batch(writes=(parked("r", due_at=desk.now + SECOND, held='{"type":"mismatch"}'),)))

    same(desk.get("r").run.held, '{"type":"mismatch"}')
    (outcome,) = desk.do(lambda store: store.outcomes([RunId("r")])).values()
    same((outcome.status, outcome.held), (Status.SUSPENDED, '{"type":"mismatch"}'))
    desk.later(1)
    desk.claim_one(lease)
    desk.flush(lease, Batch(writes=(kept("r"),)))
    same(desk.get("r").run.held, None)


def a_run_starts_already_leased(desk: Desk) -> None:
    lease = desk.worker()
    outcome = desk.flush(lease, Batch(starts=(new_run("r", timeout=SECOND, priority=3, input="[]"),)))

    same((outcome.started, outcome.started_at, outcome.signal_cursor), (("r",), desk.now, 0))
    run = desk.get("r").run
    same((run.status, run.owner, run.turns, run.priority, run.input), (Status.RUNNING, lease.worker, 1, 3, "[]"))
    same((run.created_at, run.started_at, run.deadline_at), (desk.now, desk.now, desk.now + SECOND))
    same(desk.claim(desk.worker()).runs, ())
    desk.flush(lease, Batch(writes=(finished("r"),)))
    same(desk.get("r").run.status, Status.COMPLETED)


def a_leased_start_of_an_id_that_is_taken_writes_nothing(desk: Desk) -> None:
    lease = desk.worker()
    desk.start(new_run("taken", input="1"))
    before = desk.get("taken")

    outcome = desk.flush(lease, Batch(starts=(new_run("taken", input="2"), new_run("free"))))

    same(outcome.started, ("free",))
    same(desk.get("taken"), before)


def a_flush_repeated_after_a_lost_answer_changes_nothing(desk: Desk) -> None:
    lease = desk.worker()
    desk.start(new_run("ends"), new_run("stays"), new_run("waits"))
    desk.claim(lease)
    batch = Batch(
        starts=(new_run("new"),),
        records=((RunId("ends"), step(0, "s")), (RunId("stays"), step(0, "s"))),
        writes=(finished("ends"), kept("stays"), parked("waits", Wait("t", 0), due_at=desk.now + SECOND)),
    )
    desk.flush(lease, batch)
    before = [desk.get(run_id) for run_id in ("ends", "stays", "waits", "new")]

    again = desk.flush(lease, batch)

    same((again.started, sorted(again.lost)), ((), ["ends", "waits"]))
    same([desk.get(run_id) for run_id in ("ends", "stays", "waits", "new")], before)


def a_run_of_another_worker_is_lost_and_nothing_of_it_is_written(desk: Desk) -> None:
    lease, other = desk.worker(), desk.worker()
    desk.begin("mine", lease)
    desk.begin("theirs", other)
    desk.start(new_run("nobody's"))
    before = [desk.get(run_id) for run_id in ("theirs", "nobody's")]

    outcome = desk.flush(
        lease,
        Batch(
            records=tuple((RunId(run_id), step(0, "s")) for run_id in ("theirs", "mine", "nobody's", "not there")),
            writes=(
                parked("theirs", Wait("t", 0)),
                showing("mine", "1"),
                finished("nobody's"),
                finished("not there"),
            ),
        ),
    )

    same(sorted(outcome.lost), ["nobody's", "not there", "theirs"])
    same([desk.get(run_id) for run_id in ("theirs", "nobody's")], before)
    same((desk.get("mine").run.custom_status, len(desk.get("mine").journal)), ("1", 1))


def a_write_of_an_earlier_turn_is_lost_in_a_later_one(desk: Desk) -> None:
    lease = desk.worker()
    desk.begin("r", lease)
    parking = replace(parked("r", due_at=desk.now), turns=1)
    same(desk.flush(lease, Batch(writes=(parking,))).lost, ())
    desk.claim(lease)
    before = desk.get("r")

    late = desk.flush(lease, Batch(records=((RunId("r"), step(0, "s")),), writes=(parking,)))

    same(late.lost, (RunId("r"),))
    same(desk.get("r"), before)
    same(desk.flush(lease, Batch(writes=(replace(finished("r"), turns=2),))).lost, ())


def an_empty_flush_proves_the_lease(desk: Desk) -> None:
    lease = desk.worker()

    same(desk.flush(lease, Batch()).lost, ())


def a_big_flush_is_written_whole(desk: Desk) -> None:
    lease = desk.worker()
    names = [f"r{n:03}" for n in range(300)]
    desk.flush(lease, Batch(starts=tuple(new_run(name) for name in names)))
    records = tuple((RunId(name), step(seq, f"s{seq}", f'"{name}"')) for name in names for seq in range(3))
    writes: tuple[RunWrite, ...] = tuple(
        finished(name, output=f'"{name}"') if n % 2 else parked(name, Wait(f"t\n{name}", 0))
        for n, name in enumerate(names)
    )

    outcome = desk.flush(lease, Batch(records=records, writes=writes))

    same((outcome.lost, outcome.ready), ((), ()))
    for n in (0, 1, 150, 299):
        details = desk.get(names[n])
        same([record.payload for record in details.journal], [f'"{names[n]}"'] * 3)
        same(details.run.output, f'"{names[n]}"' if n % 2 else None)
        same(details.waiting_for, () if n % 2 else (f"t\n{names[n]}",))


def of_many_runs_each_is_written_as_its_own_write_says(desk: Desk) -> None:
    """Written together or one by one, by however many statements, whatever stands in their texts."""
    lease, text = desk.worker(), '"a\'b\\\\c %s :d é \U0001f600"'
    sleeping, due = desk.now + 60 * SECOND, desk.now - 1
    nothing = (None, None, None, None)
    kinds = (
        (kept("", progressed=True), (Status.RUNNING, None, *nothing)),
        (finished("", output=text), (Status.COMPLETED, None, text, None, None, None)),
        (showing("", text), (Status.RUNNING, None, None, None, text, None)),
        (finished("", Status.FAILED, output=None, error=text), (Status.FAILED, None, None, text, None, None)),
        (parked("", due_at=sleeping, held=text), (Status.SUSPENDED, sleeping, None, None, None, text)),
        (parked("", due_at=due), (Status.SUSPENDED, desk.now, *nothing)),
        (parked("", Wait("nobody", 0)), (Status.SUSPENDED, None, *nothing)),
    )
    for count in (2, 5, 17, 90):
        names = [RunId(f"{count}-{n}") for n in range(count)]
        desk.flush(lease, Batch(starts=tuple(new_run(name) for name in names)))
        writes = tuple(replace(kinds[n % len(kinds)][0], id=name) for n, name in enumerate(names))

        outcome = desk.flush(lease, Batch(writes=writes))

        same((outcome.lost, sorted(outcome.ready)), ((), sorted(names[5 :: len(kinds)])))
        for n, name in enumerate(names):
            run, write = desk.get(name).run, kinds[n % len(kinds)][0]
            told = (run.status, run.due_at, run.output, run.error, run.custom_status, run.held)
            same(told, kinds[n % len(kinds)][1])
            same(run.owner, lease.worker if write.keep else None)
            same(run.finished_at, desk.now if write.status in TERMINAL else None)


def of_many_leased_starts_those_are_told_whose_ids_were_free(desk: Desk) -> None:
    lease = desk.worker()
    taken = [f"taken-{n}" for n in range(20)]
    desk.start(*(new_run(name, input="1") for name in taken))
    # The second time a start has found the taken ones taken before.
    for time in range(2):
        free = [f"free-{time}-{n}" for n in range(30)]
        starts = tuple(new_run(name, input="2") for name in (*taken[:9], *free, *taken[9:]))

        outcome = desk.flush(lease, Batch(starts=starts))

        same(sorted(outcome.started), sorted(free))
        same({desk.get(name).run.input for name in taken}, {"1"})
        same({desk.get(name).run.input for name in free}, {"2"})


def whether_a_flush_was_written_can_be_asked(desk: Desk) -> None:
    lease = desk.worker()
    desk.start(*(new_run(f"r{n}") for n in range(4)))
    desk.claim(lease)
    batches = (
        Batch(records=((RunId("r0"), step(0, "s")),), writes=(kept("r0"),)),
        Batch(writes=(parked("r1", due_at=desk.now + SECOND),)),
        Batch(writes=(finished("r2"),)),
        Batch(starts=(new_run("new"),)),
    )

    def was_written(batch: Batch) -> bool:
        return desk.do(asking_after(lease, batch))

    for batch in batches:
        same(was_written(batch), False)
        desk.flush(lease, batch)
        same(was_written(batch), True)


CASES = cases(
    records_come_back_as_they_were_given,
    a_record_without_a_time_is_recorded_now,
    no_payload_and_a_null_are_two_things,
    a_run_ends_with_its_output_or_its_error,
    a_run_that_is_kept_stays_with_its_worker,
    what_a_run_shows_is_set_kept_and_cleared,
    progress_sets_lapses_back_and_nothing_else_does,
    a_held_run_says_why_until_it_goes_on,
    a_run_starts_already_leased,
    a_leased_start_of_an_id_that_is_taken_writes_nothing,
    a_flush_repeated_after_a_lost_answer_changes_nothing,
    a_run_of_another_worker_is_lost_and_nothing_of_it_is_written,
    a_write_of_an_earlier_turn_is_lost_in_a_later_one,
    an_empty_flush_proves_the_lease,
    a_big_flush_is_written_whole,
    of_many_runs_each_is_written_as_its_own_write_says,
    of_many_leased_starts_those_are_told_whose_ids_were_free,
    whether_a_flush_was_written_can_be_asked,
)
