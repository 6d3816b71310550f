"""Property tests are not timed: two loaded cores are no proof that a function is slow."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("house", settings.get_profile("default"), deadline=None)
settings.load_profile("house")
