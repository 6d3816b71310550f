"""An online shop as a Django project: the order process of `examples.shop` with Django's ORM and a worker process."""
