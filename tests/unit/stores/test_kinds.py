"""What a caller may pass as `tx=`, and what is said of that which only looks like it. No database is asked."""

from __future__ import annotations

import importlib
import re
from typing import Any

import pytest

from outlast import NotATransaction
from outlast.stores.databases.kinds.kind import told
from outlast.stores.databases.kinds.registry import KINDS, after_commit, is_open, recognise
from outlast.stores.dialects.base import Dialect
from outlast.stores.dialects.sqlite import SQLite

ROOTS = [(module, name, hint) for kind in KINDS for (module, name), hint in kind.roots.items()]


@pytest.fixture
def dialect() -> Dialect:
    return SQLite()


@pytest.mark.parametrize("module, name, hint", ROOTS, ids=[f"{module}.{name}" for module, name, _ in ROOTS])
def test_what_a_library_has_beside_its_transaction_is_refused_with_what_to_pass(
    dialect: Dialect, module: str, name: str, hint: str
) -> None:
    """Libraries move and rename their classes; a hint for one that is not there would never be given."""
    kind: Any = getattr(importlib.import_module(module), name)

    with pytest.raises(NotATransaction, match=re.escape(hint)):
        recognise(kind.__new__(kind), dialect)

    assert "tx=" in hint or "connection that it came from" in hint


def test_what_is_no_transaction_at_all_is_refused_with_all_that_may_be_passed(dialect: Dialect) -> None:
    with pytest.raises(NotATransaction) as refused:
        recognise("a text", dialect)

    message = str(refused.value)
    assert message.startswith("tx= is a str, which is no transaction. Pass what your own statements")
    assert [kind.handles for kind in KINDS if kind.handles not in message] == []
    assert not after_commit("a text", lambda: None)
    assert not is_open("a text")


class Order: ...


@pytest.mark.parametrize(
    "value, words", [(None, "None"), (7, "an int"), ("", "a str"), (Order, "a type"), (SQLite(), "an outlast.SQLite")]
)
def test_a_value_is_named_by_its_kind(value: object, words: str) -> None:
    assert told(value) == words


def test_a_kind_of_the_applications_own_is_named_with_its_package_and_place() -> None:
    class Cart: ...

    assert told(Cart()).endswith(
        ".test_a_kind_of_the_applications_own_is_named_with_its_package_and_place.<locals>.Cart"
    )
    assert told(Order()).partition(".")[0] == f"a {__name__.partition('.')[0]}"
