"""The companies that the shop works with, as it calls them.

Each call carries an idempotency key. A step may run twice, when its process dies before the answer is recorded; the provider
answers a repeated key with its first answer, so the card is charged once all the same.
"""

from __future__ import annotations

from typing import Any

import httpx
from django.conf import settings

from outlast import NonRetryable


def post(path: str, body: dict[str, Any], key: str) -> dict[str, Any]:
    """Ask a provider for something, once however often the key is sent."""
    response = httpx.post(f"{settings.PROVIDERS_URL}{path}", json=body, headers={"Idempotency-Key": key}, timeout=30)
    if response.is_client_error:
        raise NonRetryable(f"{path} refused {body}: {response.text}")
    answer: dict[str, Any] = response.raise_for_status().json()
    return answer
