"""The project's settings. What differs between a laptop, the tests and production comes from the environment."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

import django


def database(url: str) -> dict[str, Any]:
    """Return the entry of DATABASES for a URL."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        # Django's own transactions begin like those of outlast, so that neither is refused when it writes late.
        options = {"transaction_mode": "IMMEDIATE"} if django.VERSION >= (5, 1) else {}
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": parts.path[1:], "OPTIONS": options}
    if parts.scheme in ("mysql", "mariadb"):
        # PyMySQL, which outlast uses too, in the place of mysqlclient, which has to be compiled.
        import_module("pymysql").install_as_MySQLdb()
    backend = "postgresql" if parts.scheme == "postgresql" else "mysql"
    options = {"charset": "utf8mb4"} if backend == "mysql" else {}
    return {
        "ENGINE": f"django.db.backends.{backend}",
        "NAME": parts.path[1:],
        "USER": parts.username or "",
        "PASSWORD": parts.password or "",
        "HOST": parts.hostname or "",
        "PORT": parts.port or "",
        "OPTIONS": options,
    }


SECRET_KEY = os.environ.get("SHOP_SECRET_KEY", "only for the example")
ALLOWED_HOSTS = ["127.0.0.1", "localhost", "testserver"]
USE_TZ = True
ROOT_URLCONF = "examples.django_shop.urls"
ASGI_APPLICATION = "examples.django_shop.asgi.application"
STATIC_URL = "static/"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "outlast.integrations.django",
    "examples.django_shop.orders",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

DATABASES = {"default": database(os.environ.get("SHOP_DATABASE_URL", "sqlite:///shop.db"))}

OUTLAST = {"WORKER": {"lease": os.environ.get("SHOP_LEASE", "30s")}}

# The shop's own.
PROVIDERS_URL = os.environ.get("SHOP_PROVIDERS_URL", "http://127.0.0.1:8001")
DELIVERY_WITHIN = os.environ.get("SHOP_DELIVERY_WITHIN", "3d")
REVIEW_AFTER = os.environ.get("SHOP_REVIEW_AFTER", "7d")
