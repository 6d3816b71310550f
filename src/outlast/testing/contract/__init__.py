"""The cases of the store contract, split as the store's statements are.

Owns: the cases, and the desk at which they are worked (`desk`).
May import: `outlast.ports`, `outlast.model`, `outlast.errors`, `outlast.testing.clock`.
Start at `desk`.
"""
