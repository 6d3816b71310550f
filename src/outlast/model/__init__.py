"""What exists: runs, journals, signals, options and stored values, as frozen values without I/O and without a clock.

Owns: ids and their bounds (`ids`), a run and its statuses (`run`), what a run records (`journal`), signals (`signal`),
options that authors and callers pass (`options`), durations (`durations`) and the stored form of values (`values`).
May import: `outlast.errors`, the standard library and msgspec.
Start at `run`, then `journal`.
"""
