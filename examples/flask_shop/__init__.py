"""The order process of an online shop, on outlast, Flask and SQLAlchemy, without a line of async.

Start here: `fulfilment` is the workflow, `main` the application around it, `clients` calls the companies that the shop works
with. What the shop talks about (`orders`, `views`) and who plays the companies is that of `examples.shop`.
"""
