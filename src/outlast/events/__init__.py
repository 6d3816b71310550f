"""What the application's events do to workflows: start them, and send them signals.

Decides, and writes nothing: mappings and an event go in, the starts and signals that it means come out. It may import the
engine and what is below; `client/publishing` performs what it plans. Start with `mappings`.
"""
