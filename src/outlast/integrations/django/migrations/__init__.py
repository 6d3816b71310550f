"""What `manage.py migrate` applies. Each migration brings the tables to one more version of `outlast.stores.migrations`."""
