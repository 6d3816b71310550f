"""The companies that the shop works with, played by one small application: uvicorn examples.shop.providers:api

Like the real ones, it deduplicates by idempotency key: the first request with a key has an effect, each further one
gets the first answer. It writes every request down; `/ledger` tells what it has seen. `/holds` makes it keep answers
back, after the effect, so that the shop can be killed between the two.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import msgspec
from fastapi import FastAPI, Header, HTTPException, Response


class Operation(StrEnum):
    """What can be asked of the companies; also the path to ask it at."""

    CHARGE = "charges"
    REFUND = "refunds"
    RESERVE = "reservations"
    RELEASE = "releases"
    MAIL = "mails"


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """One request. `effect` is False when its key was known, so that nothing happened but the answer."""

    operation: Operation
    key: str
    body: dict[str, Any]
    answer: dict[str, Any]
    effect: bool


class Ledger:
    """All requests ever made, in a file of one JSON document a line, so that a restart forgets none."""

    def __init__(self, path: Path) -> None:
        path.touch()
        self.lines = [msgspec.json.decode(line, type=LedgerLine) for line in path.read_bytes().splitlines()]
        self._first = {line.key: line for line in self.lines if line.effect}
        self._path = path

    def record(self, operation: Operation, key: str, body: dict[str, Any]) -> LedgerLine:
        """Perform a request, or repeat the answer to an earlier one with its key. One call is never half done."""
        first = self._first.get(key)
        if first is None:
            answer = {"id": f"{operation.value}-{len(self._first) + 1}", **body}
            line = LedgerLine(operation, key, body, answer, effect=True)
            self._first[key] = line
        else:
            line = LedgerLine(operation, key, body, first.answer, effect=False)
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")
        self.lines.append(line)
        return line


@dataclass(slots=True)
class Holds:
    """The operations whose answers are kept back for now."""

    _released: dict[Operation, asyncio.Event] = field(default_factory=dict[Operation, asyncio.Event])

    def hold(self, operation: Operation) -> None:
        """Keep the answers to an operation back from now on."""
        self._released.setdefault(operation, asyncio.Event())

    def release(self, operation: Operation) -> None:
        """Let all answers to an operation go, and keep none back any more."""
        if event := self._released.pop(operation, None):
            event.set()

    async def wait(self, operation: Operation) -> None:
        """Return when answers to an operation may go."""
        if event := self._released.get(operation):
            await event.wait()


CARD_LIMIT = 100_000
ledger = Ledger(Path(os.environ.get("PROVIDERS_LEDGER", "ledger.jsonl")))
holds = Holds()
api = FastAPI(title="Providers")


@api.get("/health")
async def health() -> dict[str, str]:
    """Answer once the providers are up."""
    return {"status": "ok"}


@api.get("/ledger")
async def read_ledger() -> list[LedgerLine]:
    """Tell all that was asked, in order."""
    return ledger.lines


@api.put("/holds/{operation}", status_code=204)
async def hold(operation: Operation) -> Response:
    """Keep the answers to an operation back until its hold is deleted."""
    holds.hold(operation)
    return Response(status_code=204)


@api.delete("/holds/{operation}", status_code=204)
async def release(operation: Operation) -> Response:
    """Let the answers to an operation go."""
    holds.release(operation)
    return Response(status_code=204)


@api.post("/{operation}", status_code=201)
async def perform(
    operation: Operation, body: dict[str, Any], idempotency_key: Annotated[str, Header()]
) -> dict[str, Any]:
    """Charge, refund, reserve, release or mail: once for each idempotency key."""
    if operation is Operation.CHARGE and body["amount"] > CARD_LIMIT:
        raise HTTPException(402, "The card was declined.")
    line = ledger.record(operation, idempotency_key, body)
    await holds.wait(operation)
    return line.answer
