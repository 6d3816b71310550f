"""The versions of our tables and how a database comes from one to the next.

Owns: the numbered versions, each frozen once it was released, and `runner`, which applies them once under a lock.
May import: `outlast.stores.dialects`, `outlast.ports`, SQLAlchemy Core.
Start at `runner`.
"""
