"""Where in the application's code something failed."""

from __future__ import annotations

from pathlib import Path

import pytest

import outlast
from outlast.errors import Failure
from outlast.model.failures import failure_of
from outlast.model.origins import Place, in_one_line, note, origin, places

HERE = __file__


def _raised(error: Exception) -> Failure:
    try:
        raise error
    except Exception as caught:  # noqa: BLE001  what is described
        return failure_of(caught)


def _failure(*files: str, type: str = "KeyError", message: str = "'nope'", inner: tuple[Failure, ...] = ()) -> Failure:
    frames = [f'  File "{file}", line {n}, in f\n    code()\n    ^^^^^^\n' for n, file in enumerate(files, 1)]
    return Failure(type=type, message=message, traceback="".join(frames), inner=inner)


def test_the_place_of_a_real_exception_is_its_line_with_its_code() -> None:
    (place,) = places(_raised(KeyError("nope")))

    assert (place.file, place.function, place.code) == (HERE, "_raised", "raise error")
    assert str(place) == f"{HERE}:{place.line}"
    assert place.shown == f'  File "{HERE}", line {place.line}, in _raised\n    raise error'


def test_a_frame_whose_source_is_not_there_has_no_code() -> None:
    failure = Failure(
        type="E", message="", traceback='  File "/gone.py", line 3, in f\n  File "/gone.py", line 4, in g\n'
    )

    assert places(failure) == (Place("/gone.py", 3, "f"), Place("/gone.py", 4, "g"))
    assert places(failure)[0].shown == '  File "/gone.py", line 3, in f'


@pytest.mark.parametrize(
    "ours",
    [
        "/venv/lib/python3.11/site-packages/outlast/engine/code.py",
        r"C:\venv\Lib\site-packages\outlast\worker\turn.py",
        "/src/outlast/app.py",
    ],
)
def test_frames_of_the_library_are_no_place(ours: str) -> None:
    assert [str(place) for place in places(_failure("/shop/orders.py", ours))] == ["/shop/orders.py:1"]
    assert places(_failure(ours)) == ()
    assert origin(_failure(ours)) is None


def test_every_room_of_the_library_is_known() -> None:
    """What the library's own frames would be told as otherwise is a place in the application."""
    package = Path(outlast.__file__).parent
    rooms = [str(found) for pattern in ("[!_]*.py", "[!_]*/__init__.py") for found in package.glob(pattern)]

    assert len(rooms) > 10
    assert [room for room in rooms if places(_failure(room)) != ()] == []


def test_a_folder_of_the_application_may_have_the_name_of_the_library() -> None:
    assert len(places(_failure("/shop/outlast/orders.py"))) == 1


@pytest.mark.parametrize(
    "installed", ["/usr/lib/python3.11/json/decoder.py", "/venv/lib/site-packages/httpx/_client.py", "<frozen runpy>"]
)
def test_what_is_installed_is_a_place_only_where_there_is_no_other(installed: str) -> None:
    assert [place.file for place in places(_failure("/shop/orders.py", installed))] == ["/shop/orders.py"]
    assert [place.file for place in places(_failure(installed))] == [installed]


def test_what_is_installed_is_not_told_as_the_application_s() -> None:
    told = note(_failure("/venv/lib/site-packages/httpx/_client.py"))

    assert told == 'Where it came from:\n  File "/venv/lib/site-packages/httpx/_client.py", line 1, in f\n    code()'


def test_a_step_that_gave_up_came_from_the_line_in_the_step_and_tells_its_reason_once() -> None:
    cause = _failure("/shop/steps.py")
    gave_up = _failure(
        "/shop/flows.py", type="outlast.errors.StepFailed", message=f"Step 'x' gave up: {cause}", inner=(cause,)
    )

    assert str(origin(gave_up)) == "/shop/steps.py:1"
    assert in_one_line(gave_up) == "outlast.errors.StepFailed: Step 'x' gave up: KeyError: 'nope' (/shop/steps.py:1)"
    assert note(gave_up) == (
        "Where it came from, in the application's code:\n"
        '  File "/shop/flows.py", line 1, in f\n    code()\n'
        '  File "/shop/steps.py", line 1, in f\n    code()'
    )


def test_another_reason_is_told_with_its_own_place() -> None:
    undoing = _failure("/shop/undo.py", type="OSError", message="gone")

    assert in_one_line(_failure("/shop/flows.py", inner=(undoing,))) == (
        "KeyError: 'nope' (/shop/flows.py:1); OSError: gone (/shop/undo.py:1)"
    )


def test_what_undoing_came_from_is_told_with_the_line_in_the_compensation() -> None:
    cause = _failure("/shop/undo.py", type="OSError", message="gone")
    gave_up = Failure(type="outlast.errors.StepFailed", message=f"It gave up: {cause}", inner=(cause,))

    assert note(_failure("/shop/flows.py", inner=(gave_up,))) == (
        "Where it came from, in the application's code:\n"
        '  File "/shop/flows.py", line 1, in f\n    code()\n'
        '  File "/shop/undo.py", line 1, in f\n    code()'
    )


def test_what_has_no_place_is_told_without_one() -> None:
    failure = Failure(type="outlast.errors.RunCancelled", message="Ada called")

    assert (in_one_line(failure), note(failure)) == ("outlast.errors.RunCancelled: Ada called", None)


def test_a_long_message_of_many_lines_is_shortened_to_one() -> None:
    failure = Failure(type="ValueError", message="first\n  second\n" + "x" * 1_000_000)

    line = in_one_line(failure)

    assert line.startswith("ValueError: first second xxx")
    assert line.endswith("x…")
    assert len(line) < 600
