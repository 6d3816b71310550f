"""How runs are remembered: the only home of SQL.

Owns: the tables (`tables`), every statement, grouped by noun, what differs between databases (`dialects`), the ways on
which statements reach one (`databases`), callers' transactions (`transactions`) and the tables' versions (`migrations`).
May import: `outlast.ports`, `outlast.model`, `outlast.errors`, SQLAlchemy Core; drivers only in `databases`.
Start at `tables`, then `sql`, then `rows/flushing`.
"""
