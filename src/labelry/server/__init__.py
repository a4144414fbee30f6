"""The HTTP server (the ``serve`` extra); `labelry.server.run.serve` starts it."""
