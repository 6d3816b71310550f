"""The demo: real processes over HTTP, one of them killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from examples.shop.report import Checks, table
from support.processes import StartProcess

PROMISES = [
    "the charge was asked for again after the crash",
    "with the same idempotency key",
    "the card was charged once",
    "the webhook was taken once and its repetition recognised",
    "the webhook completed the wait, and the order",
    "the customer was asked for a review once",
    "a delivered order cannot be cancelled",
    "the cancel was accepted",
    "a cancelled order ended as cancelled",
    "a cancelled order was released, then refunded, each once",
    "a returned order ended as failed",
    "a returned order was released, then refunded, each once",
    "an order that never arrived ended as failed",
    "an order that never arrived was released, then refunded, each once",
]


@pytest.mark.time_limit(180)
@pytest.mark.parametrize("database", ["sqlite", "postgresql", "mysql", "mariadb"])
def test_the_demo_keeps_every_promise_and_cleans_up_behind_itself(
    database: str, tmp_path: Path, start_process: StartProcess, request: pytest.FixtureRequest
) -> None:
    environment = {"TMPDIR": str(tmp_path)}
    if database != "sqlite":
        fixture = "postgres_url" if database == "postgresql" else f"{database}_url"
        environment[f"OUTLAST_{fixture.upper()}"] = request.getfixturevalue(fixture)

    demo = start_process("-m", "examples.shop.demo", "--database", database, env=environment)

    assert demo.wait(timeout=150) == 0, demo.output
    _, _, summary = demo.output.partition("What was promised")
    assert [line[7:] for line in summary.splitlines() if line.startswith("  ok")] == PROMISES, demo.output
    assert "await-delivery" in demo.output
    assert "$compensate:charge" in demo.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("told, code", [(signal.SIGINT, 0), (signal.SIGTERM, 128 + signal.SIGTERM)])
def test_the_shop_left_running_survives_a_kill_and_ends_when_told(
    told: signal.Signals, code: int, tmp_path: Path, start_process: StartProcess
) -> None:
    shop = start_process("-m", "examples.shop", env={"TMPDIR": str(tmp_path)})
    process = int(shop.wait_for("kill -9").split()[-1])

    os.kill(process, signal.SIGKILL)
    shop.wait_for("was started again")
    os.kill(shop.pid, told)

    assert shop.wait() == code, shop.output
    assert list(tmp_path.iterdir()) == []


def test_one_promise_that_is_not_kept_fails_the_demo(capsys: pytest.CaptureFixture[str]) -> None:
    checks = Checks()
    checks.expect("the card was charged once", holds=True)
    checks.expect("nothing was charged twice", holds=False)

    assert not checks.all_hold
    assert "FAIL nothing was charged twice" in capsys.readouterr().out


def test_a_demo_that_checked_nothing_is_no_success() -> None:
    assert not Checks().all_hold


def test_a_table_is_aligned_under_its_columns() -> None:
    printed = table(("entry", "attempts"), [("charge", 1), ("reserve-stock", 12)])

    assert printed.splitlines() == [
        "    entry          attempts",
        "    -------------  --------",
        "    charge         1",
        "    reserve-stock  12",
    ]
