"""Orders: how they are placed, followed and cancelled, and the process that fulfils them."""
