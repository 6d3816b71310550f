"""Where in the application's code something failed or stands, read from the text of a traceback or from frames."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Final

from outlast.errors import Failure

_LONGEST: Final = 500
"""Characters of a message that a line tells."""

_FRAME: Final = re.compile(r'^  File "(.+)", line (\d+), in (.+)(?:\n    (.+))?', re.MULTILINE)
# A traceback may be of another machine, so a file is known by the end of its path: ours by its room.
_OURS: Final = re.compile(
    r"[/\\]outlast[/\\](?:(?:app|errors|serving)\.py|"
    r"(?:cli|client|engine|events|integrations|model|ports|stores|testing|worker)[/\\])"
)
_INSTALLED: Final = re.compile(
    r"^<|[/\\]lib[/\\]python\d|[/\\](?:site|dist)-packages[/\\]|[/\\]Lib[/\\]", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Place:
    """A line of code; `code` is its text, empty where the source was not there."""

    file: str
    line: int
    function: str
    code: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    @property
    def shown(self) -> str:
        """The way Python shows it, which editors and terminals make a link of."""
        code = f"\n    {self.code}" if self.code else ""
        return f'  File "{self.file}", line {self.line}, in {self.function}{code}'


def places(failure: Failure) -> tuple[Place, ...]:
    """Return the frames of the application in a failure's own traceback, the last one last. Frames of what is installed
    stand in for them where there are no others (an application may be installed too), frames of outlast never do."""
    found = [
        Place(file, int(line), function, (code or "").strip())
        for file, line, function, code in _FRAME.findall(failure.traceback)
        if not _OURS.search(file)
    ]
    return tuple([place for place in found if not _INSTALLED.search(place.file)] or found)


def frame_of_application(frames: Iterable[FrameType]) -> FrameType | None:
    """Return the first of these frames that is the application's, or where there is none the first of what is installed."""
    installed = None
    for frame in frames:
        file = frame.f_code.co_filename
        if not _OURS.search(file):
            if not _INSTALLED.search(file):
                return frame
            installed = installed or frame
    return installed


def origin(failure: Failure) -> Place | None:
    """Return where a failure came from: of a step that gave up, the line in the step."""
    for part in (*_told_already(failure), failure):
        if found := places(part):
            return found[-1]
    return None


def in_one_line(failure: Failure) -> str:
    """Return each reason of a failure once, with the place in the code that it came from."""
    parts = [failure, *(part for part in failure.inner if not _is_told(failure, part))]
    return "; ".join(_with_place(part) for part in parts)


def _with_place(failure: Failure) -> str:
    where = origin(failure)
    return _short(failure) if where is None or f"({where})" in failure.message else f"{_short(failure)} ({where})"


def _short(failure: Failure) -> str:
    """Return its type and message as they fit into a log: some drivers' messages are whole statements."""
    text = str(failure)
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}…"
    return " ".join(text.split())


def note(failure: Failure) -> str | None:
    """Return what to tell of the places of a failure and of what it came from, a few lines; None when nothing is known."""
    # What undoing came from stands a level deeper than what the run failed with.
    parts = (told for part in (failure, *failure.inner) for told in (part, *_told_already(part)))
    found = [place for part in parts for place in places(part)[-1:]]
    if not found:
        return None
    is_installed = all(_INSTALLED.search(place.file) for place in found)
    where = "Where it came from:" if is_installed else "Where it came from, in the application's code:"
    return "\n".join([where, *dict.fromkeys(place.shown for place in found)])


def _told_already(failure: Failure) -> Iterator[Failure]:
    return (part for part in failure.inner if _is_told_by(failure, part))


def _is_told_by(failure: Failure, part: Failure) -> bool:
    """Say whether a failure's message ends with its reason, as that of a step that gave up does."""
    return failure.message.endswith(str(part))


def _is_told(failure: Failure, part: Failure) -> bool:
    """Say whether a failure's message tells all that is known of its reason."""
    return _is_told_by(failure, part) or (not part.traceback and str(part) in failure.message)
