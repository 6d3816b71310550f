"""An ASGI application behind a real server, on a loopback port, for the length of a test."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import uvicorn


@asynccontextmanager
async def served(application: Any) -> AsyncGenerator[httpx.AsyncClient]:
    """Serve an application, lifespan included, and give a client of it. The socket listens before the application is up."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(application, lifespan="on", log_config=None))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        host, port = listening.getsockname()
        try:
            async with httpx.AsyncClient(base_url=f"http://{host}:{port}", timeout=30) as client:
                yield client
        finally:
            server.should_exit = True
            await serving
