"""The providers that the demo's claims are checked against."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from examples.shop import providers
from examples.shop.providers import Holds, Ledger, Operation

KEY = {"Idempotency-Key": "order-1:charge"}
CHARGE = {"order": "1", "amount": 2900}


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    monkeypatch.setattr(providers, "ledger", ledger)
    return ledger


@pytest.fixture
def http() -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(providers.api), base_url="http://providers")


async def test_a_repeated_key_gets_the_first_answer_and_has_no_effect(ledger: Ledger, http: httpx.AsyncClient) -> None:
    first = await http.post("/charges", json=CHARGE, headers=KEY)
    again = await http.post("/charges", json=CHARGE | {"amount": 1}, headers=KEY)

    assert first.json() == again.json() == {"id": "charges-1", **CHARGE}
    assert [line.effect for line in ledger.lines] == [True, False]


async def test_a_request_without_a_key_is_refused(ledger: Ledger, http: httpx.AsyncClient) -> None:
    response = await http.post("/charges", json=CHARGE)

    assert response.status_code == 422
    assert ledger.lines == []


async def test_a_declined_card_has_no_effect(ledger: Ledger, http: httpx.AsyncClient) -> None:
    response = await http.post("/charges", json=CHARGE | {"amount": 1_000_000}, headers=KEY)

    assert response.status_code == 402
    assert ledger.lines == []


async def test_a_held_answer_comes_after_its_effect_and_once_it_is_released(
    ledger: Ledger, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_back = asyncio.Event()
    wait = Holds.wait

    async def tell_and_wait(self: Holds, operation: Operation) -> None:
        kept_back.set()
        await wait(self, operation)

    monkeypatch.setattr(Holds, "wait", tell_and_wait)
    await http.put("/holds/charges")
    request = asyncio.ensure_future(http.post("/charges", json=CHARGE, headers=KEY))
    await kept_back.wait()
    assert [line.effect for line in ledger.lines] == [True]
    assert not request.done()

    await http.delete("/holds/charges")

    assert (await request).status_code == 201


def test_a_ledger_remembers_its_keys_over_a_restart(tmp_path: Path) -> None:
    first = Ledger(tmp_path / "ledger.jsonl").record(Operation.REFUND, "key", {"charge": "1"})

    again = Ledger(tmp_path / "ledger.jsonl").record(Operation.REFUND, "key", {"charge": "1"})

    assert (first.effect, again.effect) == (True, False)
    assert again.answer == first.answer
