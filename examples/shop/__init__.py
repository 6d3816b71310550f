"""The order process of an online shop, on outlast, FastAPI and SQLAlchemy.

Start here: `fulfilment` is the workflow, `main` the HTTP application around it, `demo` the story that `make demo`
tells. `clients` calls the companies that the shop works with; `providers` plays them, in a process of its own.
"""
