"""What applications test their workflows with. Public, like `outlast` itself: it exports, and holds no other code.

Owns: a clock that stands still until it is moved (`clock`) and the suite that every store passes (`store_contract`).
May import: everything below; nothing of the library imports it.
Start at `clock`.
"""

from outlast.testing.clock import ManualClock

__all__ = ["ManualClock"]
