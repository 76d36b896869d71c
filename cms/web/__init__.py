"""gunicorn's worker classes: an event loop for clients, threads for the application."""
