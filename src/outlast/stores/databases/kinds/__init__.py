"""What a caller may pass as `tx=`, one module for each library.

Owns: recognising a handle, refusing one that is no open transaction, and the way of our statements into it.
May import: the roads beside it, and libraries only by their loaded modules, never by import.
Start at `kind`, then `registry`; a further library is a module with a `Kind` and its line in `registry`.
"""
