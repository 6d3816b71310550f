"""The demo: real processes over HTTP, one of them killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from examples.shop.report import Checks, table

ROOT = Path(__file__).resolve().parents[2]

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
def test_the_demo_keeps_every_promise_and_cleans_up_behind_itself(tmp_path: Path) -> None:
    demo = subprocess.Popen(
        [sys.executable, "-m", "examples.shop.demo"],
        cwd=ROOT,
        env={"PATH": "", "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        output, _ = demo.communicate(timeout=150)
    finally:
        demo.terminate()  # The demo ends its own processes when it is told to end.
        demo.wait()

    assert demo.returncode == 0, output
    summary = output.partition("What was promised")[2]
    assert [line[7:] for line in summary.splitlines() if line.startswith("  ok")] == PROMISES, output
    assert "await-delivery" in output
    assert "$compensate:charge" in output
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
