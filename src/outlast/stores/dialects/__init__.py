"""What differs between databases, and nothing else.

Owns: the list of differences (`base`) and one module for each database.
May import: `outlast.stores.tables`, `outlast.ports`, SQLAlchemy Core.
Start at `base`.
"""
