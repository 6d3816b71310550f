"""Django: an app to install, whose verbs join the current `transaction.atomic()` block.

    INSTALLED_APPS = [..., "outlast.integrations.django"]
    OUTLAST = {"DATABASE": "default"}                          # every key has a default

    from outlast.integrations.django import app

    with transaction.atomic():
        order.save()
        app.blocking.start(fulfil_order, order.pk)             # both commit, or neither

The whole is described in docs/how-to/django.md. Imports no model, so it may be imported from anywhere, settings included.
"""

from outlast.integrations.django.application import DjangoOutlast, app
from outlast.integrations.django.transactions import APART

__all__ = ["APART", "DjangoOutlast", "app"]
