"""Any workflow, any order of events, a crash at any point: the journal leads to the same end.

Programs are made up of all that workflow code can do; a schedule says which step ends next, when time passes, when the worker
dies and whether the run is stopped. What must hold then is what replay promises.
"""  # noqa: E501

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outlast import Context, Retry, Signal, StepFailed, workflow
from outlast.engine.decision import Finished, Held, Parked, Working
from outlast.model.run import StopKind
from support.replaying import START, Rehearsal, Turn

LINES = [Signal("red", int), Signal("blue", int)]


@dataclass(frozen=True)
class Op:
    kind: str
    parts: tuple[tuple[Op, ...], ...] = ()
    seconds: int = 0
    line: int = 0


def _leaves() -> st.SearchStrategy[Op]:
    seconds = st.integers(0, 4)
    kinds = [
        "step",
        "undoable",
        "failing",
        "sleep",
        "asleep",
        "draw",
        "now",
        "commit",
        "yield",
        "poll",
        "race",
        "status",
    ]
    return st.builds(Op, st.sampled_from(kinds), seconds=seconds, line=st.integers(0, 1))


def _programs() -> st.SearchStrategy[tuple[Op, ...]]:
    def deeper(inner: st.SearchStrategy[tuple[Op, ...]]) -> st.SearchStrategy[tuple[Op, ...]]:
        branches = st.lists(inner, min_size=2, max_size=3).map(tuple)
        nested = st.builds(Op, st.sampled_from(["gather", "group", "any"]), branches)
        limited = st.builds(Op, st.just("limit"), inner.map(lambda program: (program,)), st.integers(0, 3))
        return st.lists(st.one_of(_leaves(), nested, limited), min_size=1, max_size=3).map(tuple)

    return st.recursive(st.lists(_leaves(), min_size=1, max_size=3).map(tuple), deeper, max_leaves=6)


class Interpreter:
    """Runs a program as workflow code; names come from the place of each operation."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.said: list[object] = []

    async def run(self, program: tuple[Op, ...], place: str) -> None:
        for number, op in enumerate(program):
            name = f"{place}.{number}"
            self.said.append([name, await self.perform(op, name)])

    async def perform(self, op: Op, name: str) -> object:
        ctx, line = self.ctx, LINES[op.line]
        match op.kind:
            case "step" | "failing" | "undoable":
                options: dict[str, Any] = {"compensate": lambda s, r: None} if op.kind == "undoable" else {}
                try:
                    return await ctx.step(name, lambda s: name, retry=Retry(attempts=2), **options)
                except StepFailed as error:
                    if op.kind == "failing":
                        raise
                    return error.attempts
            case "sleep":
                await ctx.sleep(name, f"{op.seconds}s")
            case "asleep":
                await asyncio.sleep(op.seconds)
            case "yield":
                await asyncio.sleep(0)
            case "draw":
                return [ctx.random(), str(ctx.uuid())]
            case "now":
                return str(ctx.now())
            case "commit":
                ctx.commit(name)
            case "status":
                ctx.set_status(name)
            case "poll":
                return await ctx.wait_for(name, ctx.signal(line), timeout=f"{op.seconds}s")
            case "race":
                conditions = [ctx.signal(LINES[0]), ctx.timer(f"{op.seconds}s"), ctx.signal(line)]
                return conditions.index(await ctx.first(name, *conditions))
            case "limit":
                return await self.limited(op, name)
            case _:
                return await self.branch(op, name)
        return None

    async def limited(self, op: Op, name: str) -> str:
        try:
            async with asyncio.timeout(op.seconds):
                await self.run(op.parts[0], name)
        except TimeoutError:
            return "late"
        return "in time"

    async def branch(self, op: Op, name: str) -> object:
        branches: list[Awaitable[None]] = [self.run(part, f"{name}/{n}") for n, part in enumerate(op.parts)]
        if op.kind == "gather":
            return [str(answer) for answer in await asyncio.gather(*branches, return_exceptions=True)]
        if op.kind == "group":
            async with asyncio.TaskGroup() as tasks:
                for part in branches:
                    tasks.create_task(part)  # type: ignore[arg-type]
            return None
        tasks_of = [asyncio.ensure_future(part) for part in branches]
        finished, pending = await asyncio.wait(tasks_of, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        return [tasks_of.index(task) for task in finished if not task.exception()]


def declared(program: tuple[Op, ...]) -> object:
    @workflow("any")
    async def any_program(ctx: Context) -> list[object]:
        interpreter = Interpreter(ctx)
        await interpreter.run(program, "")
        return interpreter.said

    return any_program


class Schedule:
    """Plays a run with events in the order that hypothesis draws."""

    def __init__(self, draw: Any, run: Rehearsal) -> None:  # noqa: ANN401, RUF100
        self.draw = draw
        self.run = run

    def choose(self, *options: str) -> str:
        return self.draw(st.sampled_from(options))

    def play(self) -> Finished | Held:
        for _ in range(200):
            turn = self.run.begin(lapses=self.draw(st.integers(0, 1)))
            while isinstance(turn.state, Working) and not self.event(turn):
                pass
            if isinstance(turn.state, Finished | Held):
                return turn.state
            if isinstance(turn.state, Parked):
                self.between(turn.state)
        raise AssertionError("it never ends")

    def event(self, turn: Turn) -> bool:
        """Let one thing happen in a turn; True when the worker died by it."""
        name = self.draw(st.sampled_from(sorted(turn.in_flight)))
        match self.choose("return", "return", "raise", "time", "both", "die", "signal"):
            case "return":
                turn.returns(name, name)
            case "raise":
                turn.raises(name, OSError("down"))
            case "time":
                self.run.now += self.draw(st.integers(0, 2_000_000))
                turn.run()
            case "both":
                for each in list(turn.in_flight):
                    turn.execution.step_returned(turn.in_flight.pop(each), each)
                turn.run()
            case "signal":
                self.send()
            case _:
                return True
        return False

    def between(self, parked: Parked) -> None:
        """Let something happen to a parked run."""
        if self.choose("signal", "time", "time") == "signal":
            self.send()
        if not self.run.is_due(parked):
            self.run.now = self.run.next_time(parked)

    def send(self) -> None:
        self.run.send(self.draw(st.sampled_from(LINES)), len(self.run.signals))


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data())
def test_every_journal_leads_to_the_same_end(data: st.DataObject) -> None:
    run = Rehearsal(declared(data.draw(_programs())), timeout=data.draw(st.sampled_from([None, "6s"])))
    if data.draw(st.integers(0, 5)) == 0:
        run.ask_stop(data.draw(st.sampled_from([StopKind.CANCEL, StopKind.TERMINATE])))
        assert run.stop is not None
        run.stop = type(run.stop)(run.stop.kind, run.stop.failure, START + data.draw(st.integers(0, 3_000_000)))
    end = Schedule(data.draw, run).play()
    assert isinstance(end, Finished), end

    replayed = run.cut(len(run.journal))
    assert replayed.end() == end, "the whole journal"
    assert replayed.journal == run.journal

    for length in range(len(run.journal)):
        again = run.cut(length)
        ended = again.end()
        assert isinstance(ended, Finished), (length, ended)
        assert again.journal[:length] == run.journal[:length]
