"""The operation that publishing events becomes, over any store: for races and for stops in the middle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from outlast.client.calls import Calls
from outlast.client.catalog import Catalog
from outlast.client.publishing import Publishing
from outlast.engine.definition import workflow_of
from outlast.events.mappings import mappings_of
from outlast.events.routes import Routes
from outlast.ports.operation import Op
from outlast.stores.sql import SqlStore
from support.programs.publishing import Thank, fulfil


def publishing(*events: object, workflows: tuple[object, ...] = (fulfil, Thank)) -> Callable[[SqlStore], Op[Any]]:
    """Return what makes the operation."""
    declared = [(workflow_of(one), mappings_of(one, workflow_of(one))) for one in workflows]

    def make(store: SqlStore) -> Op[Any]:
        room = Publishing(Calls(store, Catalog(one for one, _ in declared)), Routes(declared))
        return room.write(room.plan(events, id=None)).make()

    return make
