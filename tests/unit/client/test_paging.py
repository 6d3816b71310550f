import pytest

from outlast.client.paging import cursor_after, position_after
from outlast.errors import InvalidArgument
from outlast.model.ids import RunId
from outlast.model.run import Status
from outlast.ports.store import StoredRun


def stored(run_id: str, created_at: int) -> StoredRun:
    return StoredRun(
        id=RunId(run_id),
        workflow="w",
        version=1,
        status=Status.PENDING,
        priority=0,
        input="null",
        output=None,
        error=None,
        custom_status=None,
        held=None,
        stop=None,
        owner=None,
        due_at=None,
        deadline_at=None,
        turns=0,
        lapses=0,
        created_at=created_at,
        started_at=None,
        updated_at=created_at,
        finished_at=None,
    )


@pytest.mark.parametrize("run_id", ["a", "order,1", "Ж 👩‍👩‍👧", "x" * 255])
def test_a_cursor_leads_back_to_where_it_was_made(run_id: str) -> None:
    assert position_after(cursor_after(stored(run_id, 1_767_225_600_000_000))) == (1_767_225_600_000_000, run_id)


@pytest.mark.parametrize(
    "cursor", ["", "x", "é", "MTIz", "LGE=", "MSw=", "eCxh", "////", "OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5LGE=", 7]
)
def test_anything_else_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidArgument, match="cursor"):
        position_after(cursor)
